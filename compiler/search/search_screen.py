"""The rules of a search, each asked once for every combination of what it reads.

A rule names the fields of a layout that it reads (``Rule.reads``). Rules that read the same are a
group; a group answers with the position of its first broken rule, and remembers the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule
from parc.compiler.search.search_space import Point

PLACES: dict[str, tuple[int, ...]] = {
    "tp": (0,),
    "cp": (1,),
    "pp": (2,),
    "vpp": (6,),
    "dp_replicate": (3,),
    "dp_shard": (3,),
    "ep": (4,),
    "etp": (5,),
    "micro_batch": (7,),
    "schedule": (6,),
    "sequence_parallel": (0,),
    "zero_stage": (),
    "recompute": (8,),
    "split": (2, 6),
    "order": (),
    "cp_comm": (0, 1),
    "cp_a2a": (0, 1),
    "offload": (),
    "zero_plus": (),
}
"""Field of a layout -> the entries of a point that decide it in one search."""

DEPTHS: tuple[tuple[str, frozenset[int]], ...] = (
    ("mesh", frozenset(range(6))),
    ("stages", frozenset((2, 6))),
    ("batch", frozenset((0, 1, 2, 3, 4, 5, 7))),
    ("family", frozenset(range(8))),
    ("level", frozenset((2, 6, 8))),
    ("layout", frozenset(range(9))),
)
"""Loops of the search, and what is fixed when each of them asks its rules."""


@dataclass(slots=True)
class Group:
    """Rules that read the same entries of a point, in the order of all rules."""

    key: Callable[[Point], Any]
    rules: list[tuple[int, Rule]] = field(default_factory=list)
    seen: dict[Any, int] = field(default_factory=dict)


class Screen:
    """All rules of one problem."""

    def __init__(
        self, problem: Problem, rules: Iterable[Rule], build: Callable[[Point], Layout]
    ) -> None:
        """``build`` makes a layout with the values of a point, where a rule must look at one."""
        self._problem, self._build = problem, build
        self.rules = tuple(rules)
        self.kept = len(self.rules)
        """Position that stands for no broken rule."""
        groups: dict[tuple[int, ...], Group] = {}
        for position, rule in enumerate(self.rules):
            places = tuple(sorted({place for name in rule.reads for place in PLACES[name]}))
            group = groups.setdefault(places, Group(_key(places)))
            group.rules.append((position, rule))
        self.depths: dict[str, tuple[Group, ...]] = {name: () for name, _ in DEPTHS}
        for places, group in groups.items():
            depth = next(name for name, fixed in DEPTHS if fixed.issuperset(places))
            self.depths[depth] += (group,)

    def first(self, depth: str, point: Point) -> int:
        """Position of the first rule of ``depth`` that ``point`` breaks; ``kept`` where none is."""
        first = self.kept
        for group in self.depths[depth]:
            key = group.key(point)
            found = group.seen.get(key)
            if found is None:
                found = group.seen[key] = self._ask(group, point)
            if found < first:
                first = found
        return first

    def _ask(self, group: Group, point: Point) -> int:
        layout = self._build(point)
        for position, rule in group.rules:
            if rule.broken(self._problem, layout):
                return position
        return self.kept


def _key(places: tuple[int, ...]) -> Callable[[Point], Any]:
    """What a group of rules that read ``places`` sees of a point."""
    return itemgetter(*places) if places else _nothing


def _nothing(_: Point) -> None:
    """No entry of the point matters."""
