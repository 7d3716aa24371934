"""Functions that inspect the type annotations of spec models.

They describe the accepted values in words, and find the place in the spec to which a pydantic error
belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parc.compiler.spec.reading.tree_builder import join
from parc.compiler.spec.units import Quantity

_WORDS: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number"}
_SAFETY_BOUND = 2**20
"""Upper bounds of at least this size only keep the arithmetic finite, so messages do not mention
them."""


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """Place of an error in the spec, with the value there and the type that was expected."""

    path: str
    annotation: Any
    """Expected type of the value; for an unknown key, the pydantic model that does not have the
    key."""
    value: Any
    parent: str = ""
    """Path of the mapping that contains ``key``."""
    key: str = ""


def branches(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union annotation except None; nested unions are flattened.

    For an annotation that is not a union, return a tuple with only the annotation itself.
    """
    if get_origin(annotation) is Annotated and not _quantity_of_branch(annotation):
        inner = get_args(annotation)[0]
        return branches(inner) if get_origin(inner) in {Union, UnionType} else (annotation,)
    if get_origin(annotation) in {Union, UnionType}:
        members = (arg for arg in get_args(annotation) if arg is not type(None))
        return tuple(branch for member in members for branch in branches(member))
    return (annotation,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model among the union members of ``annotation``; None if there is none.

    No annotation of the spec has more than one model.
    """
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            return branch
    return None


def literals(annotation: Any) -> tuple[Any, ...]:
    """Return the values of all Literal types in the union ``annotation``, in order."""
    members = (_without_metadata(branch) for branch in branches(annotation))
    listed = (member for member in members if get_origin(member) is Literal)
    return tuple(value for member in listed for value in get_args(member))


def plain_types(annotation: Any) -> tuple[Any, ...]:
    """Return the type of each union member of ``annotation``, without metadata and type arguments.

    The types are int, float, str, bool, tuple, dict, Literal, or a pydantic model.
    """
    return tuple(
        get_origin(_without_metadata(branch)) or _without_metadata(branch)
        for branch in branches(annotation)
    )


def expected(annotation: Any) -> str:
    """Return the values that ``annotation`` accepts, described in words for messages."""
    words = [_expected_by_branch(branch) for branch in branches(annotation)]
    # dict.fromkeys removes repeated descriptions and keeps their order.
    return " or ".join(dict.fromkeys(words))


def _expected_by_branch(branch: Any) -> str:
    quantity = _quantity_of_branch(branch)
    if quantity:
        return quantity.expected
    bare = _without_metadata(branch)
    if get_origin(bare) is Literal:
        return ", ".join(str(value) for value in get_args(bare))
    if get_origin(bare) is tuple:
        inner = get_args(bare)[0]
        return "a list of mappings" if model_of(inner) else f"a list of {expected(inner)}"
    if get_origin(bare) is dict:
        key, value = get_args(bare)
        if get_origin(key) is Literal:
            return f"{{{_expected_by_branch(key)}: {expected(value)}}}"
        return f"a mapping of names to {expected(value)}"
    if model_of(bare):
        return "a mapping"
    return _WORDS.get(bare, "a number") + _bounds(branch)


def _bounds(branch: Any) -> str:
    """Return the bounds of a number type in words, such as `` of at least 1``.

    Bounds that only keep the arithmetic finite are left out.
    """
    bounds = {name: bound for name, bound in _numeric_bounds(branch) if bound is not None}
    if bounds.get("le", _SAFETY_BOUND) < _SAFETY_BOUND:
        return f" from {bounds['ge']} to {bounds['le']}"
    if "lt" in bounds:
        return f" of at least {bounds['ge']} and below {bounds['lt']}"
    if "ge" in bounds:
        return f" of at least {bounds['ge']}"
    return f" above {bounds['gt']}" if "gt" in bounds else ""


def _numeric_bounds(branch: Any) -> Iterator[tuple[str, Any]]:
    for item in _metadata(branch):
        for name in ("ge", "gt", "le", "lt"):
            yield name, getattr(item, name, None)


def _metadata(branch: Any) -> Iterator[Any]:
    """Yield the metadata of an Annotated type.

    A pydantic FieldInfo is replaced by the metadata inside it.
    """
    for item in get_args(branch)[1:] if get_origin(branch) is Annotated else ():
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _quantity_of_branch(branch: Any) -> Quantity | None:
    # pydantic keeps the Quantity of Percent, Seconds and others as metadata of Annotated.
    return next((item for item in _metadata(branch) if isinstance(item, Quantity)), None)


def is_percentage(annotation: Any) -> bool:
    """Return True if ``annotation`` accepts a number with a percent sign."""
    quantities = (_quantity_of_branch(branch) for branch in branches(annotation))
    return any("%" in quantity.factors for quantity in quantities if quantity)


def _without_metadata(branch: Any) -> Any:
    return get_args(branch)[0] if get_origin(branch) is Annotated else branch


def locate_error(
    root: type[BaseModel], tree: Any, loc: tuple[int | str, ...]
) -> ErrorLocation | None:
    """Return the location of a pydantic error; None for an unintended union member.

    For a union, pydantic reports one error per member and adds the name of the member to ``loc``.
    PARC assumes that a mapping in the spec is meant as the model in the union, and a list as the
    tuple; errors about other members are dropped. Any other value that matches no member gives a
    single error for the whole union.
    """
    location = ErrorLocation("", root, tree)
    for part in loc:
        members = branches(location.annotation)
        if len(members) < 2:
            location = _locate_child(location, part)
            continue
        intended = [branch for branch in members if _is_intended_branch(branch, location.value)]
        # A scalar that matches no branch: the union as a whole is wrong.
        if not intended:
            return location
        # The error belongs to another branch than the one that the user meant.
        if not _names_branch(part, intended[0]):
            return None
        location = ErrorLocation(location.path, intended[0], location.value)
    return location


def _is_intended_branch(branch: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return model_of(branch) is not None or get_origin(branch) is dict
    return isinstance(value, list) and get_origin(branch) is tuple


def _names_branch(part: int | str, branch: Any) -> bool:
    """Return True if ``part`` of pydantic's ``loc`` names the union member ``branch``."""
    model = model_of(branch)
    return part == model.__name__ if model else str(part).startswith(("tuple", "dict"))


def _locate_child(location: ErrorLocation, part: int | str) -> ErrorLocation:
    """Return the location of the key or list entry ``part`` inside ``location``."""
    annotation = location.annotation
    for branch in branches(annotation):  # a single branch; the loop strips None
        annotation = _without_metadata(branch)
    value = location.value
    if isinstance(part, int):
        inner = value[part] if isinstance(value, list) and part < len(value) else None
        return ErrorLocation(f"{location.path}[{part}]", get_args(annotation)[0], inner)
    path = join(location.path, part)
    inner = value.get(part) if isinstance(value, dict) else None
    if get_origin(annotation) is dict:
        return ErrorLocation(path, get_args(annotation)[1], inner, location.path, part)
    model = model_of(annotation)
    info = model.model_fields.get(part) if model else None
    wanted = info.rebuild_annotation() if info else annotation
    return ErrorLocation(path, wanted, inner, location.path, part)
