"""Reads the annotations of the models: what a field takes, in words, and where an error is."""

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
_UNNAMED = 2**20
"""Upper bounds from here on are none that a user has to know."""


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """Where in the tree an error is, what stands there and what should."""

    path: str
    annotation: Any
    """Type of the field; the model itself where a key is unknown to it."""
    value: Any
    above: str = ""
    """Path of the mapping that ``key`` is in."""
    key: str = ""


def branches(annotation: Any) -> tuple[Any, ...]:
    """Members of a union, None left out, nested unions flattened; else the annotation alone."""
    if get_origin(annotation) is Annotated and not _quantity(annotation):
        inner = get_args(annotation)[0]
        return branches(inner) if get_origin(inner) in {Union, UnionType} else (annotation,)
    if get_origin(annotation) in {Union, UnionType}:
        members = (arg for arg in get_args(annotation) if arg is not type(None))
        return tuple(branch for member in members for branch in branches(member))
    return (annotation,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model among the branches of ``annotation``; there is at most one."""
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            return branch
    return None


def literals(annotation: Any) -> tuple[Any, ...]:
    """Literal values that ``annotation`` takes, in order."""
    members = (_bare(branch) for branch in branches(annotation))
    listed = (member for member in members if get_origin(member) is Literal)
    return tuple(value for member in listed for value in get_args(member))


def plain_types(annotation: Any) -> tuple[Any, ...]:
    """The branches as plain types: int, float, str, bool, tuple, dict, a model, Literal."""
    return tuple(get_origin(_bare(branch)) or _bare(branch) for branch in branches(annotation))


def expected(annotation: Any) -> str:
    """What ``annotation`` takes, in words."""
    words = [_expected_one(branch) for branch in branches(annotation)]
    return " or ".join(dict.fromkeys(words))


def _expected_one(branch: Any) -> str:
    quantity = _quantity(branch)
    if quantity:
        return quantity.expected
    bare = _bare(branch)
    if get_origin(bare) is Literal:
        return ", ".join(str(value) for value in get_args(bare))
    if get_origin(bare) is tuple:
        inner = get_args(bare)[0]
        return "a list of mappings" if model_of(inner) else f"a list of {expected(inner)}"
    if get_origin(bare) is dict:
        return f"a mapping of names to {expected(get_args(bare)[1])}"
    if model_of(bare):
        return "a mapping"
    return _WORDS.get(bare, "a number") + _bounds(branch)


def _bounds(branch: Any) -> str:
    """``of at least 1``; upper bounds that only stop slips of the keyboard are not named."""
    bounds = {name: bound for name, bound in _each_bound(branch) if bound is not None}
    if bounds.get("le", _UNNAMED) < _UNNAMED:
        return f" from {bounds['ge']} to {bounds['le']}"
    if "lt" in bounds:
        return f" of at least {bounds['ge']} and below {bounds['lt']}"
    if "ge" in bounds:
        return f" of at least {bounds['ge']}"
    return f" above {bounds['gt']}" if "gt" in bounds else ""


def _each_bound(branch: Any) -> Iterator[tuple[str, Any]]:
    for mark in _marks(branch):
        for name in ("ge", "gt", "le", "lt"):
            yield name, getattr(mark, name, None)


def _marks(branch: Any) -> Iterator[Any]:
    for mark in get_args(branch)[1:] if get_origin(branch) is Annotated else ():
        yield from mark.metadata if isinstance(mark, FieldInfo) else (mark,)


def _quantity(branch: Any) -> Quantity | None:
    return next((mark for mark in _marks(branch) if isinstance(mark, Quantity)), None)


def is_percentage(annotation: Any) -> bool:
    """Whether ``annotation`` takes a percentage."""
    quantities = (_quantity(branch) for branch in branches(annotation))
    return any("%" in quantity.factors for quantity in quantities if quantity)


def _bare(branch: Any) -> Any:
    return get_args(branch)[0] if get_origin(branch) is Annotated else branch


def locate_error(
    root: type[BaseModel], tree: Any, loc: tuple[int | str, ...]
) -> ErrorLocation | None:
    """The place of a pydantic error; None where it is about a union branch nobody meant.

    pydantic puts the name of a branch into ``loc``. A mapping means the model among the branches,
    a list means the tuple; any other value that fits no branch is one error of the whole union.
    """
    place = ErrorLocation("", root, tree)
    for part in loc:
        members = branches(place.annotation)
        if len(members) < 2:
            place = _step(place, part)
            continue
        meant = [branch for branch in members if _means(branch, place.value)]
        if not meant:
            return place
        if not _is_tag(part, meant[0]):
            return None
        place = ErrorLocation(place.path, meant[0], place.value)
    return place


def _means(branch: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return model_of(branch) is not None or get_origin(branch) is dict
    return isinstance(value, list) and get_origin(branch) is tuple


def _is_tag(part: int | str, branch: Any) -> bool:
    model = model_of(branch)
    return part == model.__name__ if model else str(part).startswith(("tuple", "dict"))


def _step(place: ErrorLocation, part: int | str) -> ErrorLocation:
    """One key or index down."""
    annotation = place.annotation
    for branch in branches(annotation):  # exactly one; it strips None
        annotation = _bare(branch)
    value = place.value
    if isinstance(part, int):
        inner = value[part] if isinstance(value, list) and part < len(value) else None
        return ErrorLocation(f"{place.path}[{part}]", get_args(annotation)[0], inner)
    path = join(place.path, part)
    inner = value.get(part) if isinstance(value, dict) else None
    if get_origin(annotation) is dict:
        return ErrorLocation(path, get_args(annotation)[1], inner, place.path, part)
    model = model_of(annotation)
    info = model.model_fields.get(part) if model else None
    wanted = info.rebuild_annotation() if info else annotation
    return ErrorLocation(path, wanted, inner, place.path, part)
