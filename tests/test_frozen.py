"""Tests of the decorator ``frozen``, against the one of the standard library."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from parc.compiler.ir.frozen import OBJECTS_WITHOUT_COMPILE, frozen
from tests.project_files import PACKAGE_FOLDERS, ROOT, python_files


def classes(decorate: Callable[..., Any], options: dict[str, bool]) -> tuple[type, type]:
    """Return a class that uses everything a dataclass of PARC may use, and a subclass of it."""

    class Base:
        name: str
        size: int = 2
        parts: tuple[str, ...] = ()
        notes: dict[str, int] = field(default_factory=dict, hash=False)
        cost: float = field(default=0.0, compare=False)

        @property
        def twice(self) -> int:
            return 2 * self.size

    Base = decorate(**options)(Base)  # type: ignore[misc]

    class Derived(Base):
        limit: int = field(kw_only=True)
        last: str | None = None

    return Base, decorate(**options)(Derived)


OURS, OURS_DERIVED = classes(frozen, {})
STANDARD, STANDARD_DERIVED = classes(dataclass, {"frozen": True, "slots": True})
PAIRS = ((OURS, STANDARD), (OURS_DERIVED, STANDARD_DERIVED))
ARGUMENTS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    (("a",), {"limit": 1}),
    (("a", 3), {"limit": 1}),
    (("a", 3, ("x",), {"k": 1}, 4.0), {"limit": 1}),
    (("b",), {"notes": {"k": 2}, "limit": 2}),
    (("b",), {"notes": {"k": 2}, "limit": 2, "cost": 7.0}),
    ((), {"name": "c", "parts": ("y", "z"), "limit": 0}),
)


@frozen
class Point:
    """Class at the top of a module, as pickling requires."""

    x: int
    y: tuple[int, ...] = ()


@frozen(slots=False)
class Sums:
    """Class whose objects can cache values."""

    numbers: tuple[int, ...]

    @cached_property
    def total(self) -> int:
        """Sum of the numbers."""
        return sum(self.numbers)


@frozen(kw_only=True)
class Named:
    """Class whose fields are given by name."""

    low: int = 0
    high: int


def objects(cls: type) -> list[Any]:
    """Return objects that were created before and after the constructor was compiled."""
    has_limit = cls in (OURS_DERIVED, STANDARD_DERIVED)
    return [
        cls(*given, **{key: value for key, value in named.items() if key != "limit" or has_limit})
        for given, named in ARGUMENTS * (1 + OBJECTS_WITHOUT_COMPILE // len(ARGUMENTS))
    ]


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
def test_objects_have_the_values_texts_and_equality_of_dataclasses(
    ours: type, standard: type
) -> None:
    mine, theirs = objects(ours), objects(standard)
    assert [asdict(one) for one in mine] == [asdict(one) for one in theirs]
    assert [repr(one) for one in mine] == [repr(one) for one in theirs]
    assert [one.twice for one in mine] == [one.twice for one in theirs]
    equal = [[first == second for second in mine] for first in mine]
    assert equal == [[first == second for second in theirs] for first in theirs]
    assert [hash(one) for one in mine] == [hash(one) for one in theirs]
    assert mine[0] != theirs[0]
    assert [asdict(replace(one, size=9)) for one in mine] == [
        asdict(replace(one, size=9)) for one in theirs
    ]
    assert [one.name for one in fields(ours)] == [one.name for one in fields(standard)]
    assert ours.__slots__ == standard.__slots__  # type: ignore[attr-defined]
    assert ours.__match_args__ == standard.__match_args__  # type: ignore[attr-defined]


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
def test_calls_have_the_parameters_of_dataclasses(ours: type, standard: type) -> None:
    objects(ours)

    def parameters(cls: type) -> list[tuple[str, Any]]:
        found = inspect.signature(cls).parameters.values()
        return [(one.name, one.kind) for one in found]

    assert parameters(ours) == parameters(standard)
    wrong: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((), {}),
        ((1, 2, 3, 4, 5, 6, 7, 8), {}),
        (("a",), {"unknown": 1}),
        (("a",), {"name": "b"}),
    )
    for given, named in wrong:
        messages = []
        for cls in (ours, standard):
            with pytest.raises(TypeError) as error:
                cls(*given, **named)
            messages.append(str(error.value).rpartition(".")[2])
        assert messages[0] == messages[1]


def test_objects_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.other = 2  # type: ignore[attr-defined]
    assert point == Point(1)


@pytest.mark.parametrize("one", [Point(1, (2,)), Sums((1, 2)), Named(high=3)], ids=repr)
def test_objects_can_be_copied_and_sent_to_other_processes(one: Any) -> None:
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one == copy.copy(one)


def test_values_can_be_cached_without_slots() -> None:
    sums = Sums((1, 2))
    assert sums.total == 3
    assert vars(sums) == {"numbers": (1, 2), "total": 3}
    assert sums == Sums((1, 2))
    with pytest.raises(FrozenInstanceError):
        sums.total = 4


def test_a_subclass_without_fields_behaves_like_its_base() -> None:
    class Other(Point):
        pass

    assert (Other(1), hash(Other(1))) == (Other(1), hash(Point(1)))
    assert Other(1) != Point(1)
    assert Point(1) == Point(1)


def test_own_methods_are_kept() -> None:
    @frozen
    class Loud:
        """Class with its own text."""

        x: int

        def __repr__(self) -> str:
            return "loud"

    assert repr(Loud(1)) == "loud"
    assert Loud(1) == Loud(1)


def test_frozen_types_of_parc_use_this_decorator() -> None:
    pattern = re.compile(r"@dataclass\((?=.*frozen=True)(?!.*(?:order=True|eq=False)).*\)")
    wrong = [
        path.relative_to(ROOT).as_posix()
        for path in python_files(*PACKAGE_FOLDERS)
        if pattern.search(path.read_text("utf-8"))
    ]
    assert not wrong


@pytest.mark.parametrize("named", [{"low": 1}, {"high": 1, "other": 2}, {"low": 1, "other": 2}])
def test_wrong_arguments_of_the_first_object_are_rejected(named: dict[str, int]) -> None:
    @frozen(kw_only=True)
    class New:
        low: int = 0
        high: int

    with pytest.raises(TypeError):
        New(**named)
