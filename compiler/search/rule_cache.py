"""Results of the rules of a search, evaluated once per combination of the fields that they read.

A rule lists the fields of a layout that it reads (``Rule.reads``). Rules that read the same fields
form a group. A group caches the position of its first violated rule per combination of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule
from parc.compiler.search.enumerate_layouts import BuildLayout, Point

DECIDED_BY: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "pp": ("pp",),
    "vpp": ("vpp",),
    "dp_replicate": ("dp",),
    "dp_shard": ("dp",),
    "ep": ("ep",),
    "etp": ("etp",),
    "micro_batch": ("micro_batch",),
    "schedule": ("vpp",),
    "sequence_parallel": ("tp",),
    "zero_stage": (),
    "recompute": ("level",),
    "split": ("pp", "vpp"),
    "order": (),
    "cp_comm": ("tp", "cp"),
    "cp_a2a": ("tp", "cp"),
    "offload": (),
    "zero_plus": (),
}
"""Field of a layout -> fields of a point that determine it within one space."""

MESH = frozenset(("tp", "cp", "pp", "dp", "ep", "etp"))
LOOPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("mesh", MESH),
    ("stages", frozenset(("pp", "vpp"))),
    ("batch", MESH | {"micro_batch"}),
    ("siblings", MESH | {"vpp", "micro_batch"}),
    ("level", frozenset(("pp", "vpp", "level"))),
    ("layout", frozenset(Point._fields)),
)
"""Loops of the search, and the fields of a point that are fixed inside each of them.

A rule is evaluated in the first loop that fixes all fields that it reads."""


@dataclass(slots=True)
class RuleGroup:
    """Rules that read the same fields of a point, in the order of all rules."""

    key: Callable[[Point], Any]
    """Values of these fields."""
    rules: list[tuple[int, Rule]] = field(default_factory=list)
    first_violated: dict[Any, int] = field(default_factory=dict)


class RuleCache:
    """The rules of one problem, grouped by the loop that evaluates them."""

    def __init__(self, problem: Problem, rules: Iterable[Rule], build: BuildLayout) -> None:
        """``build`` returns a layout with the values of a point, for rules to read."""
        self._problem, self._build = problem, build
        self.rules = tuple(rules)
        self.valid = len(self.rules)
        """Result if no rule is violated."""
        groups: dict[tuple[str, ...], RuleGroup] = {}
        for position, rule in enumerate(self.rules):
            read = {name for one in rule.reads for name in DECIDED_BY[one]}
            names = tuple(name for name in Point._fields if name in read)
            group = groups.setdefault(names, RuleGroup(_key(names)))
            group.rules.append((position, rule))
        self.loops: dict[str, tuple[RuleGroup, ...]] = {name: () for name, _ in LOOPS}
        for names, group in groups.items():
            loop = next(name for name, fixed in LOOPS if fixed.issuperset(names))
            self.loops[loop] += (group,)

    def first_violated(self, loop: str, point: Point) -> int:
        """Return the position of the first rule of ``loop`` that ``point`` violates, or ``valid``.

        Fields of ``point`` that ``loop`` does not fix may have any value.
        """
        first = self.valid
        for group in self.loops[loop]:
            key = group.key(point)
            found = group.first_violated.get(key)
            if found is None:
                found = group.first_violated[key] = self._evaluate(group, point)
            if found < first:
                first = found
        return first

    def _evaluate(self, group: RuleGroup, point: Point) -> int:
        layout = self._build(point)
        for position, rule in group.rules:
            if rule.broken(self._problem, layout):
                return position
        return self.valid


def _key(names: tuple[str, ...]) -> Callable[[Point], Any]:
    """Return a function from a point to its values of ``names``."""
    # Positions rather than names: itemgetter of a tuple is the fastest key that Python has.
    return itemgetter(*map(Point._fields.index, names)) if names else _no_values


def _no_values(_: Point) -> None:
    """Return the key of rules that read no field of a point."""
