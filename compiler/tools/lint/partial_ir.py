"""Nouns of which only a part is known: what a script does not say is not there at all.

A rule that asks for a field that nobody told fails with ``AttributeError``, which is how the rule
is found out to need it. So no rule has to list what it reads, and none can guess.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")


def without(noun: T, names: Collection[str]) -> T:
    """A copy of a frozen dataclass, which may lack fields already, without the fields ``names``."""
    assert is_dataclass(noun)
    copy = object.__new__(type(noun))
    for one in fields(noun):
        if one.name not in names and _has(noun, one.name):
            object.__setattr__(copy, one.name, getattr(noun, one.name))
    return cast(T, copy)


def changed(noun: T, **values: Any) -> T:
    """``noun``, which may lack fields, with ``values`` in place."""
    assert is_dataclass(noun)
    copy = object.__new__(type(noun))
    for one in fields(noun):
        if one.name in values:
            object.__setattr__(copy, one.name, values[one.name])
        elif _has(noun, one.name):
            object.__setattr__(copy, one.name, getattr(noun, one.name))
    return cast(T, copy)


def _has(noun: object, name: str) -> bool:
    try:
        getattr(noun, name)
    except AttributeError:
        return False
    return True


def asked(question: Callable[[], None]) -> str | None:
    """Ask; ``Model.heads`` where the question needs a field that is not known, else None."""
    try:
        question()
    except AttributeError as error:
        noun, name = error.obj, error.name
        if not is_dataclass(noun) or name not in {one.name for one in fields(noun)}:
            raise
        return f"{type(noun).__name__}.{name}"
    return None
