"""Objects of the IR in which some fields are unknown.

An unknown field contains a sentinel. Reading the field raises ``UnknownFact``, which names it. A
rule that raises ``UnknownFact`` needs a fact that the launch file does not contain. So a rule does
not have to list the fields that it reads, and it cannot use a guess. Any other exception of a rule
is a bug and propagates.
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
        """Create the exception for an unknown field, such as ``Model.heads``."""
        super().__init__(field)
        self.field = field


def build_partial_instance(cls: type[T], **known: Any) -> T:
    """Return an instance of the dataclass ``cls`` in which only the fields ``known`` are known."""
    return _build_instance(
        cls, {one.name: known.get(one.name, _UNKNOWN) for one in _dataclass_fields(cls)}
    )


def mark_fields_unknown(obj: T, names: Collection[str]) -> T:
    """Return a copy of the dataclass instance ``obj`` in which the fields ``names`` are unknown."""
    return with_field_values(obj, **dict.fromkeys(names, _UNKNOWN))


def with_field_values(obj: T, **values: Any) -> T:
    """Return a copy of ``obj`` in which the fields named in ``values`` have these values.

    Other fields that are unknown in ``obj`` stay unknown.
    """
    kept = {one.name: _field_value(obj, one.name) for one in _dataclass_fields(type(obj))}
    return _build_instance(type(obj), {**kept, **values})


def is_field_known(obj: object, name: str) -> bool:
    """Return True if the field ``name`` of ``obj`` has a known value."""
    return _field_value(obj, name) is not _UNKNOWN


def find_missing_fact(check: Callable[[], None]) -> str | None:
    """Run ``check`` and return the unknown field that it reads first, such as ``Model.heads``.

    Return None if ``check`` reads no unknown field.
    """
    try:
        check()
    except UnknownFact as unknown:
        return unknown.field
    return None


def _dataclass_fields(cls: type[Any]) -> tuple[Any, ...]:
    return fields(cls)


def _field_value(obj: object, name: str) -> Any:
    """Return the value of a field, or ``_UNKNOWN``; never raise ``UnknownFact``."""
    return object.__getattribute__(obj, name)


def _build_instance(cls: type[T], values: dict[str, Any]) -> T:
    """Return an instance of ``cls`` with the field values ``values``.

    If some of the values are unknown, reading such a field of the instance raises ``UnknownFact``.
    """
    full: type[Any] = getattr(cls, "_full_class", cls)
    unknown = any(value is _UNKNOWN for value in values.values())
    # Bypasses __init__, which would run on unknown values, and the frozen __setattr__.
    copy = object.__new__(_partial_class(full) if unknown else full)  # type: ignore[arg-type]
    for name, value in values.items():
        object.__setattr__(copy, name, value)
    return cast(T, copy)


@cache
def _partial_class(cls: type[Any]) -> type[Any]:
    """Return a subclass of ``cls`` in which reading an unknown field raises ``UnknownFact``."""

    def read_field(self: object, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is _UNKNOWN:
            raise UnknownFact(f"{cls.__name__}.{name}")
        return value

    members = {"__slots__": (), "__getattribute__": read_field, "_full_class": cls}
    return type(cls.__name__, (cls,), members)
