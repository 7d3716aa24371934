"""Functions that inspect the type annotations of spec models.

They describe the accepted values in words, and find the place in the spec to which a pydantic error
belongs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.spec.units import Quantity

_WORDS: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number"}
_PLURAL = re.compile(r"^(?:an? )?(whole number|number|mapping|text)\b")
_PLURALS = {
    "whole number": "whole numbers",
    "number": "numbers",
    "mapping": "mappings",
    "text": "strings",
}
"""Start of the description of one value, of which a list contains several."""
_SAFETY_BOUND = 2**20
"""Upper bounds of at least this size only keep the arithmetic finite, so messages do not mention
them."""


@frozen
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


def union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union annotation except None; nested unions are flattened.

    For an annotation that is not a union, return a tuple with only the annotation itself.
    """
    if get_origin(annotation) is Annotated and not _quantity_of_member(annotation):
        inner = get_args(annotation)[0]
        return union_members(inner) if get_origin(inner) in {Union, UnionType} else (annotation,)
    if get_origin(annotation) in {Union, UnionType}:
        members = (arg for arg in get_args(annotation) if arg is not type(None))
        return tuple(inner for member in members for inner in union_members(member))
    return (annotation,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model that ``annotation`` contains; None if it contains none.

    ``annotation`` is a type or a union of types. No annotation of the spec contains two models.
    """
    for member in union_members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def is_list_of_mappings(annotation: Any) -> bool:
    """Return True if ``annotation`` accepts a list whose entries are mappings."""
    members = map(_without_metadata, union_members(annotation))
    return any(get_origin(one) is tuple and model_of(get_args(one)[0]) for one in members)


def literal_values(annotation: Any) -> tuple[Any, ...]:
    """Return the values of all Literal types in the union ``annotation``, in order."""
    members = (_without_metadata(member) for member in union_members(annotation))
    listed = (member for member in members if get_origin(member) is Literal)
    return tuple(value for member in listed for value in get_args(member))


def plain_types(annotation: Any) -> tuple[Any, ...]:
    """Return the type of each union member of ``annotation``, without metadata and type arguments.

    Each type is int, float, str, bool, tuple, dict, Literal, or a pydantic model.
    """
    return tuple(
        get_origin(_without_metadata(member)) or _without_metadata(member)
        for member in union_members(annotation)
    )


def describe_expected(annotation: Any) -> str:
    """Return a description of the values that ``annotation`` accepts, for messages."""
    words = [_describe_member(member) for member in union_members(annotation)]
    # dict.fromkeys removes repeated descriptions and keeps their order.
    return " or ".join(dict.fromkeys(words))


def _describe_member(member: Any) -> str:
    quantity = _quantity_of_member(member)
    if quantity:
        return quantity.expected
    bare = _without_metadata(member)
    if get_origin(bare) is Literal:
        return ", ".join(str(value) for value in get_args(bare))
    if get_origin(bare) is tuple:
        inner = get_args(bare)[0]
        one = "a mapping" if model_of(inner) else describe_expected(inner)
        return f"a list of {_PLURAL.sub(lambda found: _PLURALS[found[1]], one)}"
    if get_origin(bare) is dict:
        key, value = get_args(bare)
        if get_origin(key) is Literal:
            return f"{{{_describe_member(key)}: {describe_expected(value)}}}"
        return f"a mapping of names to {describe_expected(value)}"
    if model_of(bare):
        return "a mapping"
    return _WORDS.get(bare, "a number") + _describe_bounds(member)


def _describe_bounds(member: Any) -> str:
    """Return the bounds of a number type in words, such as `` of at least 1``.

    Bounds that only keep the arithmetic finite are left out.
    """
    bounds = {name: bound for name, bound in _numeric_bounds(member) if bound is not None}
    if bounds.get("le", _SAFETY_BOUND) >= _SAFETY_BOUND:
        bounds.pop("le", None)
    if bounds.keys() == {"ge", "le"}:
        return f" from {bounds['ge']} to {bounds['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    text = " and ".join(f"{words[name]} {bound}" for name, bound in bounds.items())
    return f" {text}" if text else ""


def _numeric_bounds(member: Any) -> Iterator[tuple[str, Any]]:
    for item in _annotated_metadata(member):
        for name in ("ge", "gt", "le", "lt"):
            yield name, getattr(item, name, None)


def _annotated_metadata(member: Any) -> Iterator[Any]:
    """Yield the metadata of an Annotated type.

    If the metadata contains a pydantic FieldInfo, the metadata of the FieldInfo is yielded instead.
    """
    for item in get_args(member)[1:] if get_origin(member) is Annotated else ():
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _quantity_of_member(member: Any) -> Quantity | None:
    # pydantic keeps the Quantity of Percent, Seconds and others as metadata of Annotated.
    return next((item for item in _annotated_metadata(member) if isinstance(item, Quantity)), None)


def is_percentage(annotation: Any) -> bool:
    """Return True if ``annotation`` accepts a number with a percent sign."""
    return any("%" in quantity.factors for quantity in quantities(annotation))


def quantities(annotation: Any) -> tuple[Quantity, ...]:
    """Return the quantities with units that ``annotation`` accepts."""
    found = (_quantity_of_member(member) for member in union_members(annotation))
    return tuple(quantity for quantity in found if quantity)


def _without_metadata(member: Any) -> Any:
    return get_args(member)[0] if get_origin(member) is Annotated else member


def locate_error(
    root: type[BaseModel], tree: Any, loc: tuple[int | str, ...]
) -> ErrorLocation | None:
    """Return the location of a pydantic error in the spec; None for an error to ignore.

    For a value of a union type, pydantic reports one error per member of the union, and adds the
    name of the member to ``loc``. Only the errors for the most likely member count: the pydantic
    model if the value is a mapping, the tuple if it is a list. For any other value that matches no
    member, the location of the whole value is returned.
    """
    location = ErrorLocation("", root, tree)
    for part in loc:
        members = union_members(location.annotation)
        if len(members) < 2:
            location = _locate_child(location, part)
            continue
        intended = [member for member in members if _is_intended_member(member, location.value)]
        # A scalar that matches no member: the union as a whole is wrong.
        if not intended:
            return location
        # The error belongs to a different member from the one that the user meant.
        if not _is_name_of_member(part, intended[0]):
            return None
        location = ErrorLocation(location.path, intended[0], location.value)
    return location


def _is_intended_member(member: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return model_of(member) is not None or get_origin(member) is dict
    return isinstance(value, list) and get_origin(member) is tuple


def _is_name_of_member(part: int | str, member: Any) -> bool:
    """Return True if ``part`` of pydantic's ``loc`` names the union member ``member``."""
    model = model_of(member)
    return part == model.__name__ if model else str(part).startswith(("tuple", "dict"))


def _locate_child(location: ErrorLocation, part: int | str) -> ErrorLocation:
    """Return the location of the key or list entry ``part`` inside ``location``."""
    annotation = location.annotation
    for member in union_members(annotation):  # a single member; the loop strips None
        annotation = _without_metadata(member)
    value = location.value
    if isinstance(part, int):
        inner = value[part] if isinstance(value, list) and part < len(value) else None
        return ErrorLocation(f"{location.path}[{part}]", get_args(annotation)[0], inner)
    path = join_path(location.path, part)
    inner = value.get(part) if isinstance(value, dict) else None
    if get_origin(annotation) is dict:
        return ErrorLocation(path, get_args(annotation)[1], inner, location.path, part)
    model = model_of(annotation)
    info = model.model_fields.get(part) if model else None
    wanted = info.rebuild_annotation() if info else annotation
    return ErrorLocation(path, wanted, inner, location.path, part)
