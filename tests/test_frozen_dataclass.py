"""Frozen dataclasses of PARC behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any

import pytest

from parc.compiler.ir.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Fast:
    """Class with each kind of field."""

    size: int
    name: str = "x"
    parts: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    notes: list[int] = field(default_factory=list, hash=False)
    hidden: int = field(default=0, compare=False, repr=False)
    late: int = field(default=3, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """Copy of ``Fast`` that the standard library makes."""

    size: int
    name: str = "x"
    parts: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    notes: list[int] = field(default_factory=list, hash=False)
    hidden: int = field(default=0, compare=False, repr=False)
    late: int = field(default=3, kw_only=True)


@dataclass(frozen=True)
class Larger(Fast):
    """Class that inherits fields, and has a method of its own in place of a generated one."""

    more: float = 0.5

    def __repr__(self) -> str:
        return "larger"


def both(**values: Any) -> tuple[Any, Any]:
    return Fast(**values), Standard(**values)


def test_methods_are_those_of_the_standard_library() -> None:
    fast, standard = both(size=1, name="a", hidden=9, late=4)
    assert repr(fast) == repr(standard).replace("Standard", "Fast")
    assert hash(fast) == hash(standard)
    assert dataclasses.asdict(fast) == dataclasses.asdict(standard)
    assert fast == Fast(1, "a", late=4)
    assert fast != Fast(1, "a", notes=[1], late=4)
    assert fast != standard
    assert Fast.__match_args__ == Standard.__match_args__
    assert dataclasses.replace(fast, size=2) == Fast(2, "a", late=4)
    assert str(inspect.signature(Fast)) == str(inspect.signature(Standard))


@pytest.mark.parametrize("values", [{}, {"size": 1, "other": 2}])
def test_wrong_arguments_are_an_error(values: dict[str, int]) -> None:
    for one in (Fast, Standard):
        with pytest.raises(TypeError, match="argument"):
            one(**values)


def test_instances_cannot_change() -> None:
    for one in both(size=1):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'size'"):
            one.size = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'size'"):
            del one.size
        assert not hasattr(one, "__dict__")


@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_copies_are_equal(make: Any) -> None:
    for one in (Fast(1, notes=[2]), Larger(1, more=2.0)):
        assert make(one) == one


def test_classes_inherit_fields_and_keep_their_own_methods() -> None:
    one = Larger(1, "a", more=2.0)
    assert (one.size, one.parts, one.more) == (1, (1, 2), 2.0)
    assert repr(one) == "larger"
    assert one == Larger(1, "a", more=2.0)
    assert one != Larger(1, "a", more=3.0)


def test_other_dataclasses_are_those_of_the_standard_library() -> None:
    @dataclass
    class Plain:
        size: int

    @dataclass(frozen=True, order=True)
    class Ordered:
        size: int

    one = Plain(1)
    one.size = 2
    assert one == Plain(2)
    assert Ordered(1) < Ordered(2)


def test_frozen_classes_of_both_kinds_inherit_from_each_other() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Below(Fast):
        more: int = 1

    @dataclass(frozen=True, slots=True)
    class Lowest(Below):
        most: int = 2

    one = Lowest(1, more=5)
    assert (one.size, one.more, one.most) == (1, 5, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.most = 3  # type: ignore[misc]
