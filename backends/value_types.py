"""Comparison of values with type annotations, for values that plugins return.

Numbers must be finite: NaN and infinity compare with nothing, so a search would lose its layouts
without a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from parc.backends.plugin_error import quote_value

_NUMBERS = (int, float)
_ALSO_VALID: dict[Any, tuple[type, ...]] = {tuple: (tuple, list), frozenset: (frozenset, set)}
"""Type -> the types of values that behave in the same way."""
_COLLECTIONS = (tuple, frozenset, Mapping, Iterable)
"""Types whose items are compared. Lists and dicts are left out: verifiers return long ones."""


def find_type_defect(value: object, hint: Any, verb: str, least: float | None = None) -> str:
    """Return the first part of ``value`` that does not have the type ``hint``; empty if none.

    The text completes the sentence "NAME ...", such as ``returned None, must be a text``.

    Args:
        value: the value to compare.
        hint: type annotation.
        verb: first word of the result: ``returned`` for a call, ``is`` for other values.
        least: smallest valid number in ``value``; None if each finite number is valid.
    """
    found = next(_defects(value, hint, least, ""), None)
    if found is None:
        return ""
    path, bad, needed = found
    part = f"a value whose {path} is " if path else ""
    return f"{verb} {part}{quote_value(bad)}, must be {needed}"


_Defect = tuple[str, object, str]
"""(path of a part of the value, the part, what it must be)."""


def _defects(value: Any, hint: Any, least: float | None, path: str) -> Iterator[_Defect]:
    """Yield the parts of ``value``, which is at ``path`` of the whole, that do not match."""
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        yield from _union_defects(value, get_args(hint), least, path)
    elif origin is Literal:
        if not any(value == one and type(value) is type(one) for one in get_args(hint)):
            yield path, value, _describe_type(hint)
    elif origin in _NUMBERS:
        yield from _number_defects(value, origin, least, path)
    elif not _is_instance(value, origin):
        yield path, value, _describe_type(hint)
    elif origin in _COLLECTIONS:
        yield from _item_defects(value, hint, least, path)
    else:
        for name, kind in _field_types(value.__class__ if is_dataclass(value) else origin):
            yield from _defects(getattr(value, name), kind, least, f"{path}.{name}".strip("."))


def _is_instance(value: object, origin: Any) -> bool:
    """Return True if ``value`` has the type ``origin``, or if ``origin`` is not a class."""
    if origin is Any or not isinstance(origin, type):
        return True
    # A text is a collection of texts too, but never meant as one.
    if isinstance(value, str) and origin is not str:
        return origin is object
    return isinstance(value, _ALSO_VALID.get(origin, origin))


def _union_defects(
    value: object, parts: tuple[Any, ...], least: float | None, path: str
) -> Iterator[_Defect]:
    found = [next(_defects(value, part, least, path), None) for part in parts]
    if None in found:
        return
    # The defect inside of the value tells more than the types of the whole value.
    inside = [one for one in found if one is not None and one[0] != path]
    needed = " or ".join(_describe_type(part) for part in parts)
    yield inside[0] if inside else (path, value, needed)


def _number_defects(value: object, kind: type, least: float | None, path: str) -> Iterator[_Defect]:
    valid = isinstance(value, _NUMBERS if kind is float else int) and not isinstance(value, bool)
    if not valid:
        yield path, value, _describe_type(kind)
    elif not isfinite(value):  # type: ignore[arg-type]
        yield path, value, "a finite number"
    elif least is not None and value < least:  # type: ignore[operator]
        yield path, value, f"at least {least:g}"


def _item_defects(value: Any, hint: Any, least: float | None, path: str) -> Iterator[_Defect]:
    """Yield the items of a collection that do not have the types in ``hint``."""
    parts = get_args(hint)
    if not parts:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _defects(key, parts[0], None, f"{path} key".strip())
            yield from _defects(item, parts[-1], least, f"{path}[{key!r}]")
        return
    kinds = parts
    if get_origin(hint) is not tuple or parts[-1] is Ellipsis:
        kinds = parts[:1] * len(value)
    if len(kinds) != len(value):
        yield path, value, f"{len(kinds)} values"
        return
    for index, (item, kind) in enumerate(zip(value, kinds, strict=True)):
        yield from _defects(item, kind, least, f"{path}[{index}]")


def _is_named_tuple(origin: Any) -> bool:
    return isinstance(origin, type) and hasattr(origin, "_fields")


@cache
def _field_types(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return (name, type) of each field of a dataclass or named tuple; empty for other types."""
    if not isinstance(kind, type) or not (is_dataclass(kind) or _is_named_tuple(kind)):
        return ()
    if not kind.__module__.startswith("parc."):
        return ()  # a class of the plugin, whose annotations PARC cannot resolve
    hints = get_type_hints(kind)
    names: Iterable[str]
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    return tuple((name, hints[name]) for name in names)


def _describe_type(hint: Any) -> str:
    """Return ``hint`` in words, such as ``a tuple of texts``, for a message."""
    if hint in (None, NoneType):
        return "None"
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe_type, parts))
    if origin is tuple and parts:
        inside = [_describe_type(one) for one in parts if one is not Ellipsis]
        return f"a tuple of ({', '.join(inside)}{', ...' if Ellipsis in parts else ''})"
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    words = {str: "text", int: "integer", float: "number", bool: "True or False"}
    name = getattr(origin or hint, "__name__", str(hint))
    return words.get(hint, name)
