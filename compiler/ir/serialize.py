"""Nouns to JSON types and back: dataclasses are mappings, tuples are lists."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NOT_SERIALIZED = {"serialized": False}
"""Metadata of a field that ``as_json`` leaves out, because another field holds its name."""
PLAIN = frozenset((str, int, float, bool, NoneType))
"""Types that are JSON as they are; most of a tree are these, so they are asked for first."""


def as_json(noun: Any, optional: frozenset[str] = frozenset()) -> Any:
    """A tree of dict, list, str, int, float, bool and None with the same content as ``noun``.

    Fields of the names ``optional`` are left out where they are empty.
    """
    kind = noun.__class__
    if kind in PLAIN:
        return noun
    if names := field_names(kind):
        values = ((name, getattr(noun, name)) for name in names)
        return {
            name: value if value.__class__ in PLAIN else as_json(value, optional)
            for name, value in values
            if value or name not in optional
        }
    if isinstance(noun, tuple | list):
        return [as_json(item, optional) for item in noun]
    if isinstance(noun, dict):
        return {str(key): as_json(value, optional) for key, value in noun.items()}
    return noun


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the serialized fields of a dataclass; none of any other type."""
    if not is_dataclass(kind):
        return ()
    return tuple(one.name for one in fields(kind) if one.metadata.get("serialized", True))


def from_json(kind: Any, tree: Any) -> Any:
    """The noun of type ``kind`` that ``as_json`` made ``tree`` of.

    Raises:
        ValueError: the tree is none of such a noun.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        return _noun(kind, tree)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple(parts, tree)
    if origin in (Union, UnionType):
        return _any_of(parts, tree)
    if origin is Literal:
        fits = tree in parts
    elif kind is float:
        fits = type(tree) in (int, float)
    else:
        fits = type(tree) is kind or (kind is NoneType and tree is None)
    if not fits:
        raise ValueError(f"{tree!r:.60} is no {getattr(kind, '__name__', kind)}")
    return tree


def _noun(kind: type, tree: Any) -> Any:
    if not isinstance(tree, dict):
        raise ValueError(f"{tree!r:.60} is no {kind.__name__}")
    hints = get_type_hints(kind)
    known = {field.name for field in fields(kind)}
    if not tree.keys() <= known:
        raise ValueError(f"{kind.__name__} has no {sorted(tree.keys() - known)[0]}")
    try:
        return kind(**{name: from_json(hints[name], value) for name, value in tree.items()})
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


def _tuple(parts: tuple[Any, ...], tree: Any) -> tuple[Any, ...]:
    if not isinstance(tree, list):
        raise ValueError(f"{tree!r:.60} is no list")
    if parts[-1] is Ellipsis:
        return tuple(from_json(parts[0], item) for item in tree)
    if len(parts) != len(tree):
        raise ValueError(f"{len(tree)} items, must be {len(parts)}")
    return tuple(from_json(part, item) for part, item in zip(parts, tree, strict=True))


def _any_of(kinds: tuple[Any, ...], tree: Any) -> Any:
    for kind in kinds:
        try:
            return from_json(kind, tree)
        except ValueError:
            continue
    raise ValueError(f"{tree!r:.60} is none of its types")
