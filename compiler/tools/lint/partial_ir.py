"""IR objects of which only some fields are known.

An unknown field contains a sentinel, and reading it raises ``UnknownFact``, which names the field.
A rule that raises it needs a fact that the launch file does not contain: so no rule has to list
what it reads, and none can work with a guess. Other exceptions of a rule are bugs and propagate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
_UNKNOWN: Final = object()


class UnknownFact(Exception):
    """Raised when a field without a known value is read."""

    def __init__(self, field: str) -> None:
        """Name the field, as in ``Model.heads``."""
        super().__init__(field)
        self.field = field


def build_partial(cls: type[T], **known: Any) -> T:
    """Return an instance of the dataclass ``cls`` of which only the fields ``known`` are known."""
    return _build(cls, {one.name: known.get(one.name, _UNKNOWN) for one in _fields(cls)})


def hide(obj: T, names: Collection[str]) -> T:
    """Return a copy of ``obj``, which may be partial, in which the fields ``names`` are unknown."""
    return with_values(obj, **dict.fromkeys(names, _UNKNOWN))


def with_values(obj: T, **values: Any) -> T:
    """Return a copy of ``obj``, which may be partial, with other values in some fields."""
    kept = {one.name: _stored(obj, one.name) for one in _fields(type(obj))}
    return _build(type(obj), {**kept, **values})


def is_known(obj: object, name: str) -> bool:
    """Return True if the field ``name`` of ``obj`` has a value."""
    return _stored(obj, name) is not _UNKNOWN


def find_missing_fact(check: Callable[[], None]) -> str | None:
    """Run ``check``; return the unknown field that it reads (``Model.heads``), None if none."""
    try:
        check()
    except UnknownFact as unknown:
        return unknown.field
    return None


def _fields(cls: type[Any]) -> tuple[Any, ...]:
    return fields(cls)


def _stored(obj: object, name: str) -> Any:
    """Return the content of a field without raising if it is unknown."""
    return object.__getattribute__(obj, name)


def _build(cls: type[T], values: dict[str, Any]) -> T:
    """Fill an instance field by field: a frozen dataclass would need a value for each of them."""
    full: type[Any] = getattr(cls, "_full_class", cls)
    unknown = any(value is _UNKNOWN for value in values.values())
    # Bypasses __init__, which would run on unknown values, and the frozen __setattr__.
    copy = object.__new__(_partial_class(full) if unknown else full)  # type: ignore[arg-type]
    for name, value in values.items():
        object.__setattr__(copy, name, value)
    return cast(T, copy)


@cache
def _partial_class(cls: type[Any]) -> type[Any]:
    """Return the subclass of ``cls`` whose unknown fields raise ``UnknownFact`` when read."""

    def read(self: object, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is _UNKNOWN:
            raise UnknownFact(f"{cls.__name__}.{name}")
        return value

    members = {"__slots__": (), "__getattribute__": read, "_full_class": cls}
    return type(cls.__name__, (cls,), members)
