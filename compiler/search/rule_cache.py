"""Cache of rule results: a search evaluates a rule once per combination of the fields it reads.

A rule lists the fields of a layout that it reads (``Rule.reads``). Rules that read the same fields
form a group. For each combination of values, a group caches the index of its first violated rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from parc.compiler.ir import PipelineSplit, Problem
from parc.compiler.ir.rule import DECIDED_BY, Rule
from parc.compiler.search.enumerate_layouts import BuildLayout, LayoutPoint, ParallelSizes
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.time_cache import MeshTimes

MESH = frozenset(("tp", "cp", "pp", "dp", "ep", "etp"))
LOOPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("mesh", MESH),
    ("stages", frozenset(("pp", "vpp"))),
    ("batch", MESH | {"micro_batch"}),
    ("split", MESH | {"vpp"}),
    ("siblings", MESH | {"vpp", "micro_batch"}),
    ("level", frozenset(("pp", "vpp", "level"))),
    ("split and level", MESH | {"vpp", "level"}),
    ("layout", frozenset(LayoutPoint._fields)),
)
"""Name of each loop of the search, and the fields of a point that are fixed inside the loop.

A rule is evaluated in the first loop that fixes all fields that the rule reads."""


@dataclass(slots=True)
class RuleGroup:
    """Rules that read the same fields of a point, in the order in which rules are evaluated."""

    key: Callable[[LayoutPoint], Any]
    """Function that returns the values of these fields."""
    rules: list[tuple[int, Rule]] = field(default_factory=list)
    first_violated: dict[Any, int] = field(default_factory=dict)


@dataclass(slots=True)
class LevelResults:
    """Results of the rules of one loop, for all recompute levels."""

    key: Callable[[LayoutPoint], Any]
    """Function that returns the values of the fields that the rules read, except the level."""
    first_violated: dict[Any, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CheckedSplit:
    """Split of the layers into pipeline stages, with the results of rules that read only stages."""

    vpp: int
    split: PipelineSplit
    shape: StageShape
    levels: tuple[int, ...]
    """Index of the first violated rule for each recompute level."""
    buffers: int
    """Number of buffers that a rank keeps for messages between stages."""


@dataclass(slots=True, eq=False)
class CheckedMesh:
    """Parallel sizes with the micro-batch sizes to try, and the first rule that each violates."""

    degrees: ParallelSizes
    batches: list[tuple[int, int, int]]
    """(micro-batch size, micro-batches per step, index of the first violated rule) of each
    micro-batch size."""
    static: dict[tuple[StageShape, int], tuple[tuple[float, ...], float]]
    """(shape of the stages, vpp or 0 if it has no effect) -> result of
    ``PeakMemoryCache.static_bytes``, which does not depend on the micro-batch."""
    times: MeshTimes | None = None
    """Times of layouts with these sizes; None until one is needed."""


class RuleCache:
    """The rules of one problem, grouped by the loop that evaluates them."""

    def __init__(self, problem: Problem, rules: Iterable[Rule], build: BuildLayout) -> None:
        """Group ``rules`` by the fields that they read.

        ``build`` returns the layout for a ``LayoutPoint``.
        """
        self._problem, self._build = problem, build
        self.rules = tuple(rules)
        self.valid = len(self.rules)
        """Index that is returned if no rule is violated."""
        groups: dict[tuple[str, ...], RuleGroup] = {}
        # Groups keep the order of the rules, because a layout is counted under the first rule that
        # it violates.
        for position, rule in enumerate(self.rules):
            known = {name for one in rule.reads for name in DECIDED_BY[one]}
            names = tuple(name for name in LayoutPoint._fields if name in known)
            group = groups.setdefault(names, RuleGroup(_cache_key_of_fields(names)))
            group.rules.append((position, rule))
        read: dict[str, set[str]] = {name: set() for name, _ in LOOPS}
        self.loops: dict[str, tuple[RuleGroup, ...]] = {name: () for name, _ in LOOPS}
        for names, group in groups.items():
            # LOOPS is in the order of the search, so a rule is evaluated as early as possible.
            loop = next(name for name, fixed in LOOPS if fixed.issuperset(names))
            self.loops[loop] += (group,)
            read[loop] |= {name for name in names if name != "level"}
        self._levels = {
            loop: LevelResults(_cache_key_of_fields(tuple(sorted(names))))
            for loop, names in read.items()
        }

    def first_violated(self, loop: str, point: LayoutPoint) -> int:
        """Return the index of the first rule of ``loop`` that ``point`` violates.

        ``loop`` is the name of a search loop in ``LOOPS``. The rules of a loop read only the fields
        of ``point`` that ``LOOPS`` lists for the loop. Returns ``self.valid`` if no rule is
        violated.
        """
        first = self.valid
        for group in self.loops[loop]:
            key = group.key(point)
            found = group.first_violated.get(key)
            if found is None:
                found = group.first_violated[key] = self._first_violated_in_group(group, point)
            if found < first:
                first = found
        return first

    def first_violated_by_level(
        self, loop: str, point: LayoutPoint, levels: int
    ) -> tuple[int, ...]:
        """Return the result of ``first_violated`` for each recompute level.

        The layouts are ``point`` with each of the ``levels`` recompute levels. The result is cached
        by the other fields that rules of this loop read.
        """
        cache = self._levels[loop]
        key = cache.key(point)
        found = cache.first_violated.get(key)
        if found is None:
            found = cache.first_violated[key] = tuple(
                self.first_violated(loop, point.with_recompute_level(level))
                for level in range(levels)
            )
        return found

    def _first_violated_in_group(self, group: RuleGroup, point: LayoutPoint) -> int:
        """Return the index of the first rule of ``group`` that ``point`` violates.

        Returns ``self.valid`` if no rule is violated.
        """
        layout = self._build(point)
        for position, rule in group.rules:
            if rule.broken(self._problem, layout):
                return position
        return self.valid


def _cache_key_of_fields(names: tuple[str, ...]) -> Callable[[LayoutPoint], Any]:
    """Return a function: ``LayoutPoint`` -> values of the fields ``names``."""
    # itemgetter with tuple indices is faster than attribute access by name.
    return itemgetter(*map(LayoutPoint._fields.index, names)) if names else _constant_key


def _constant_key(_: LayoutPoint) -> None:
    """Return None as the cache key of rules that read no field of a ``LayoutPoint``."""
