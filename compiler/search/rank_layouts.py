"""Order of the layouts that passed the filter: fastest first, ties broken by simplicity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import NamedTuple

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Layout, Recompute, StepTime
from parc.compiler.search.enumerate_layouts import LayoutPoint
from parc.compiler.search.survivors import (
    ROUNDING,
    Sources,
    Survivor,
    fastest_first,
    survivors_within,
)

KEPT = 20
"""Number of candidates that the plan stores."""


class RankedLayout(NamedTuple):
    """Layout with its exact step time, and the seconds that its placement on hosts adds to it."""

    seconds: float
    layout: Layout
    key: tuple[int, LayoutPoint]
    """(index of the framework variant, point)."""
    time: StepTime
    """Step time of ``seconds``, by activity."""
    exposed_seconds: float = 0.0

    @property
    def score(self) -> float:
        """Seconds per step, including those that the placement adds."""
        return self.seconds + self.exposed_seconds


_Waiting = tuple[float, float, tuple[int, ...], int, Survivor, RankedLayout | None]
"""(GPUs to minimize, lower bound of the score, simplicity, index, survivor, its exact step time).
The simplicity is empty until the score is exact."""


def simplicity_key(variant: int, point: LayoutPoint, effort: int) -> tuple[int, ...]:
    """Return the key that sorts layouts of equal time by simplicity, the simplest layout first.

    The key compares the number of axes larger than 1, then the framework variant, then the
    recompute (``effort``: 0 none, 1 selective, 2 full, 3 some layers), the framework's own stage
    split before others, and then vpp, cp, pp, tp and ep.
    """
    # The larger micro-batch wins the last tie, because its GEMMs are larger.
    tp, cp, pp, _, ep, etp, vpp, micro_batch, _, split = point
    axes = (tp > 1) + (cp > 1) + (pp > 1) + (ep > 1)
    return (axes, variant, effort, min(split, 1), vpp, cp, pp, tp, ep, etp, -micro_batch)


class LayoutRanking:
    """Order of the survivors of one search.

    Layouts are sorted by the number of GPUs (only for the goal fewest-gpus), the step time and
    simplicity. Layouts within ``goals.tie`` of the fastest tie with it; the simplest of them comes
    first.

    If the order of hosts matters, step times include the seconds that the placement on hosts adds.
    A layout is placed only if its step time with a lower bound of these seconds does not decide.
    """

    def __init__(
        self,
        cost_model: CostModel,
        sources: Sources,
        levels: tuple[Recompute, ...],
    ) -> None:
        """Create a ranking of layouts.

        Args:
            cost_model: cost model of the problem.
            sources: layouts of each framework variant, and their step times.
            levels: recompute levels; ``LayoutPoint.level`` is an index into this tuple.
        """
        self.cost_model, self._sources = cost_model, sources
        self._minimizes_gpus = cost_model.problem.goals.maximize == "fewest-gpus"
        self._rows: dict[tuple[int, LayoutPoint], RankedLayout] = {}
        """Layouts with their exact step times, without placement."""
        self._slack = 1 + cost_model.problem.goals.tie
        names = ("none", "selective", "full")
        # A number of layers is harder to explain and to change than one word for all layers.
        self._effort = tuple(
            3 if level.method == "block" else names.index(level.granularity) for level in levels
        )

    def best_layouts(self, survivors: list[Survivor]) -> list[RankedLayout]:
        """Return the ``KEPT`` best layouts, best first."""
        ordered = list(islice(self.best_first(survivors), KEPT))
        # All survivors can come first, because the simplest tie may not be among the KEPT fastest.
        first = self._simplest_tie(survivors, ordered[0])
        return [first, *(row for row in ordered if row.key != first.key)][:KEPT]

    def best_first(self, survivors: Iterable[Survivor]) -> Iterator[RankedLayout]:
        """Yield ``survivors`` with their exact step times and placements, best first.

        Each layout waits with a lower bound of its score. The layout with the least bound gets the
        next better bound until its score is exact: the step time of the cache, the bound of its
        placement, its exact step time, and its placement.
        """
        waiting: list[_Waiting] = []
        rough = fastest_first(self._sources, survivors, self.gpus_to_minimize)
        for index, survivor in enumerate(rough):
            gpus = self.gpus_to_minimize(survivor.point)
            # The last digits of the bounds differ from the exact times.
            bound = survivor.seconds * (1 - ROUNDING)
            yield from self._exact_rows(waiting, (gpus, bound))
            bound += self._sources[survivor.variant].least_placement_seconds(survivor.point)
            heappush(waiting, (gpus, bound, (), index, survivor, None))
        yield from self._exact_rows(waiting, (inf, inf))

    def _exact_rows(
        self, waiting: list[_Waiting], end: tuple[float, float]
    ) -> Iterator[RankedLayout]:
        """Remove the layouts from the heap ``waiting`` whose bounds are below ``end``; yield them.

        ``end`` and the bounds are (GPUs, seconds) as in ``_sort_key``.
        """
        while waiting and waiting[0][:2] < end:
            gpus, _, simplicity, index, survivor, row = heappop(waiting)
            if row is not None and simplicity:
                yield row
                continue
            if row is None:
                row = self._evaluate_exactly(survivor)
                least = self._sources[survivor.variant].least_placement_seconds(survivor.point)
                heappush(waiting, (gpus, row.seconds + least, (), index, survivor, row))
                continue
            row = self._place(row)
            heappush(waiting, (*self._sort_key(row), index, survivor, row))

    def gpus_to_minimize(self, point: LayoutPoint) -> int:
        """Return the number of GPUs of layout ``point``, or 0 if the goal is not fewest-gpus."""
        return point.world if self._minimizes_gpus else 0

    def _sort_key(self, row: RankedLayout) -> tuple[int, float, tuple[int, ...]]:
        """Return the sort key (GPUs, seconds with placement, simplicity) of a layout.

        The layout with the smallest key is the best. GPUs is 0 unless the goal is fewest-gpus.
        """
        return (self.gpus_to_minimize(row.key[1]), row.score, self._simplicity(*row.key))

    def _evaluate_exactly(self, survivor: Survivor) -> RankedLayout:
        """Return the layout of ``survivor`` with its exact step time, but without placement."""
        key = (survivor.variant, survivor.point)
        found = self._rows.get(key)
        if found is None:
            layout = self._sources[survivor.variant].build_layout(survivor.point)
            time = step_time(self.cost_model, layout)
            found = self._rows[key] = RankedLayout(time.total_seconds, layout, key, time)
        return found

    def _place(self, row: RankedLayout) -> RankedLayout:
        """Return ``row`` with the seconds that its placement adds."""
        variant, point = row.key
        added = self._sources[variant].placement_seconds(row.layout, point, row.time)
        return row._replace(exposed_seconds=added)

    def _simplest_tie(self, survivors: list[Survivor], best: RankedLayout) -> RankedLayout:
        """Return the simplest of those ``survivors`` that tie with ``best``, with its placement."""
        most, gpus = best.score * self._slack, self.gpus_to_minimize(best.key[1])
        ties = [
            row
            for row in survivors_within(self._sources, survivors, most * (1 + ROUNDING))
            if self.gpus_to_minimize(row.point) == gpus
        ]
        for tie in sorted(ties, key=lambda row: self._simplicity(row.variant, row.point)):
            least = self._sources[tie.variant].least_placement_seconds(tie.point)
            if tie.seconds + least <= most * (1 + ROUNDING):
                row = self._evaluate_exactly(tie)
                if row.seconds + least <= most and (row := self._place(row)).score <= most:
                    return row
        return best

    def _simplicity(self, variant: int, point: LayoutPoint) -> tuple[int, ...]:
        return simplicity_key(variant, point, self._effort[point.level])
