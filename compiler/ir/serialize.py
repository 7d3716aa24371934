"""Conversion between IR objects and JSON types: dataclasses become dicts, tuples become lists."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NOT_SERIALIZED = {"serialized": False}
"""Metadata key of dataclass fields that ``as_json`` omits, because another field contains the name
with which the value can be looked up."""
PLAIN = frozenset((str, int, float, bool, NoneType))
"""Types that need no conversion. They are tested first, because most values have one of them."""


def as_json(value: Any, optional: frozenset[str] = frozenset()) -> Any:
    """Return ``value`` converted to dict, list, str, int, float, bool and None, recursively.

    Dataclass fields whose names are in ``optional`` are omitted if their value is empty.
    """
    cls = value.__class__
    if cls in PLAIN:
        return value
    if names := field_names(cls):
        members = ((name, getattr(value, name)) for name in names)
        return {
            name: member if member.__class__ in PLAIN else as_json(member, optional)
            for name, member in members
            if member or name not in optional
        }
    if isinstance(value, tuple | list):
        return [as_json(item, optional) for item in value]
    if isinstance(value, dict):
        return {str(key): as_json(item, optional) for key, item in value.items()}
    return value


@cache
def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of the dataclass fields that ``as_json`` writes.

    The result is empty for a type that is not a dataclass.
    """
    if not is_dataclass(cls):
        return ()
    return tuple(one.name for one in fields(cls) if one.metadata.get("serialized", True))


def from_json(hint: Any, tree: Any) -> Any:
    """Return an object of type ``hint`` from ``tree``, which ``as_json`` wrote.

    Raises:
        ValueError: the tree does not match the type; the message names the first mismatch.
    """
    if is_dataclass(hint) and isinstance(hint, type):
        return _read_dataclass(hint, tree)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _read_tuple(parts, tree)
    if origin in (Union, UnionType):
        return _read_union(parts, tree)
    if origin is Literal:
        fits = tree in parts
    elif hint is float:
        # JSON does not distinguish 1 and 1.0.
        fits = type(tree) in (int, float)
    else:
        # type() and not isinstance(), because True is an int in Python
        fits = type(tree) is hint or (hint is NoneType and tree is None)
    if not fits:
        raise ValueError(f"{tree!r:.60} is not {_type_name(hint)}")
    return tree


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return f"of type {getattr(hint, '__name__', hint)}"


def _read_dataclass(cls: type, tree: Any) -> Any:
    if not isinstance(tree, dict):
        raise ValueError(f"{tree!r:.60} is not of type {cls.__name__}")
    hints = get_type_hints(cls)
    known = {field.name for field in fields(cls)}
    # A lock file of a newer version may have fields that this version does not have.
    if not tree.keys() <= known:
        raise ValueError(f"{cls.__name__} has no field {sorted(tree.keys() - known)[0]}")
    try:
        return cls(**{name: from_json(hints[name], value) for name, value in tree.items()})
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def _read_tuple(parts: tuple[Any, ...], tree: Any) -> tuple[Any, ...]:
    if not isinstance(tree, list):
        raise ValueError(f"{tree!r:.60} is not a list")
    # tuple[X, ...] has any length; tuple[X, Y] has exactly two items.
    if parts[-1] is Ellipsis:
        return tuple(from_json(parts[0], item) for item in tree)
    if len(parts) != len(tree):
        raise ValueError(f"the list has {len(tree)} items, must have {len(parts)}")
    return tuple(from_json(part, item) for part, item in zip(parts, tree, strict=True))


def _read_union(hints: tuple[Any, ...], tree: Any) -> Any:
    # The first member that accepts the tree wins; unions of the IR are unambiguous.
    for hint in hints:
        try:
            return from_json(hint, tree)
        except ValueError:
            continue
    raise ValueError(f"{tree!r:.60} matches none of the expected types")
