"""Order of the layouts that passed the filter: fastest first, ties broken by simplicity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from typing import NamedTuple

from parc.compiler.cost.memory.peak import peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Layout, Recompute
from parc.compiler.search.enumerate_layouts import LayoutPoint, ParallelSizes
from parc.compiler.search.survivors import (
    ROUNDING,
    Sources,
    Survivor,
    fastest_first,
    survivors_within,
)

KEPT = 20
"""Number of candidates that the plan stores."""
RESCORED = 10
"""Number of candidates that are placed on hosts before the final ranking."""
MORE_RESCORED = 20
"""Largest number of further candidates, with other parallel sizes, that are placed on hosts."""


class RankedLayout(NamedTuple):
    """Layout with its exact estimate, and the seconds per step that its placement on hosts adds."""

    seconds: float
    peak_bytes: float
    layout: Layout
    key: tuple[int, LayoutPoint]
    """(index of the framework variant, point)."""
    exposed_seconds: float

    @property
    def score(self) -> float:
        """Seconds per step, including those that the placement adds."""
        return self.seconds + self.exposed_seconds


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

    If hosts share uplinks, the first ``RESCORED`` candidates are placed on hosts and sorted by the
    step time that includes the placement. Candidates with other parallel sizes are then placed too,
    as long as their step time without placement is below the best time with placement.
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
        self._cost_model, self._sources = cost_model, sources
        self._minimizes_gpus = cost_model.problem.goals.maximize == "fewest-gpus"
        self._slack = 1 + cost_model.problem.goals.tie
        names = ("none", "selective", "full")
        # A number of layers is harder to explain and to change than one word for all layers.
        self._effort = tuple(
            3 if level.method == "block" else names.index(level.granularity) for level in levels
        )

    def best_layouts(
        self, survivors: list[Survivor], exposed: Callable[[Layout], float] | None
    ) -> list[RankedLayout]:
        """Return the ``KEPT`` best layouts, best first.

        ``exposed`` is a function: layout -> seconds that its placement adds to a step. If
        ``exposed`` is None, the placement has no effect on the result.
        """
        rough = fastest_first(self._sources, survivors, self._gpus_to_minimize)
        exact = self._exact_order(rough)
        ordered = list(islice(exact, KEPT))
        # All survivors can come first, because the simplest tie may not be among the KEPT fastest.
        first = self._simplest_survivor(
            self._tied_survivors(survivors, ordered[0]), ordered[0].seconds * self._slack
        )
        if exposed is not None:
            placed = self._place_candidates([*ordered[:RESCORED], first], exposed)
            rest = chain(ordered[RESCORED:], exact)
            placed = self._place_remaining_meshes(placed, rest, exposed)
            first = self._simplest_placed(placed)
            ordered = self._add_without_placement(placed, ordered[RESCORED:])
        return [first, *(row for row in ordered if row.key != first.key)][:KEPT]

    def _gpus_to_minimize(self, point: LayoutPoint) -> int:
        """Return the number of GPUs of layout ``point``, or 0 if the goal is not fewest-gpus."""
        return point.world if self._minimizes_gpus else 0

    def _sort_key(self, row: RankedLayout) -> tuple[int, float, tuple[int, ...]]:
        """Return the sort key (GPUs, seconds with placement, simplicity) of a layout.

        The layout with the smallest key is the best. GPUs is 0 unless the goal is fewest-gpus.
        """
        return (self._gpus_to_minimize(row.key[1]), row.score, self._simplicity(*row.key))

    def _evaluate_exactly(self, survivor: Survivor) -> RankedLayout:
        """Return the layout of ``survivor`` with its exact step time and peak memory."""
        layout = self._sources[survivor.variant].build_layout(survivor.point)
        seconds = step_time(self._cost_model, layout).total_seconds
        key = (survivor.variant, survivor.point)
        return RankedLayout(seconds, peak_bytes(self._cost_model, layout), layout, key, 0.0)

    def _exact_order(self, rough: Iterable[Survivor]) -> Iterator[RankedLayout]:
        """Yield the layouts of ``rough`` with their exact step times, best first.

        ``rough`` is sorted by lower bounds of the step times. A layout is evaluated exactly only
        if its bound is below the exact time of the next layout to yield.
        """
        waiting: list[tuple[tuple[int, float, tuple[int, ...]], int, RankedLayout]] = []
        for index, survivor in enumerate(rough):
            # The last digits of the bounds differ from the exact times.
            bound = survivor.seconds * (1 - ROUNDING)
            least = (self._gpus_to_minimize(survivor.point), bound)
            while waiting and waiting[0][0][:2] < least:
                yield heappop(waiting)[2]
            row = self._evaluate_exactly(survivor)
            heappush(waiting, (self._sort_key(row), index, row))
        while waiting:
            yield heappop(waiting)[2]

    def _tied_survivors(self, survivors: list[Survivor], best: RankedLayout) -> list[Survivor]:
        """Return those of ``survivors`` that tie with ``best``, fastest first."""
        most, world = (
            best.seconds * self._slack * (1 + ROUNDING),
            self._gpus_to_minimize(best.key[1]),
        )
        ties = survivors_within(self._sources, survivors, most)
        ties = [row for row in ties if self._gpus_to_minimize(row.point) == world]
        return sorted(ties, key=lambda row: row.seconds)

    def _simplest_survivor(self, ties: list[Survivor], most_seconds: float) -> RankedLayout:
        """Return the simplest layout of ``ties`` with a step time of at most ``most_seconds``.

        The step time is calculated exactly.
        """
        simple = sorted(ties, key=lambda row: self._simplicity(row.variant, row.point))
        rows = map(self._evaluate_exactly, simple)
        return next(row for row in rows if row.seconds <= most_seconds)

    def _simplest_placed(self, placed: list[RankedLayout]) -> RankedLayout:
        """Return the simplest layout of ``placed`` among those that tie with the best one."""
        most, world = placed[0].score * self._slack, self._gpus_to_minimize(placed[0].key[1])
        ties = [
            row
            for row in placed
            if row.score <= most and self._gpus_to_minimize(row.key[1]) == world
        ]
        return min(ties, key=lambda row: self._simplicity(*row.key))

    def _place_candidates(
        self, rows: list[RankedLayout], exposed: Callable[[Layout], float]
    ) -> list[RankedLayout]:
        """Return the layouts ``rows`` with the seconds that their placements add, best first.

        Duplicate layouts are removed.
        """
        # The simplest tie may also be among the first candidates.
        once = {row.key: row for row in rows}.values()
        placed = [row._replace(exposed_seconds=exposed(row.layout)) for row in once]
        return sorted(placed, key=self._sort_key)

    def _place_remaining_meshes(
        self,
        placed: list[RankedLayout],
        others: Iterable[RankedLayout],
        exposed: Callable[[Layout], float],
    ) -> list[RankedLayout]:
        """Return ``placed`` and further layouts with their placements, best first.

        The further layouts are those of ``others``, which are sorted by time without placement,
        that have other parallel sizes. They are slower without placement but might be faster with
        placement, because the layouts in ``placed`` often share one drawback, such as expert groups
        larger than an NVLink domain.
        """
        best, most = placed[0], len(placed) + MORE_RESCORED
        seen: set[ParallelSizes] = {row.key[1].degrees for row in placed}
        for row in others:
            # Placement only adds time, so no later layout can beat the best placed layout.
            rank = (self._gpus_to_minimize(row.key[1]), row.seconds)
            if rank >= (self._gpus_to_minimize(best.key[1]), best.score) or len(placed) == most:
                break
            if row.key[1].degrees not in seen:
                seen.add(row.key[1].degrees)
                placed.append(row._replace(exposed_seconds=exposed(row.layout)))
                best = min(best, placed[-1], key=self._sort_key)
        return sorted(placed, key=self._sort_key)

    def _add_without_placement(
        self, placed: list[RankedLayout], others: list[RankedLayout]
    ) -> list[RankedLayout]:
        """Return ``placed`` and those of ``others`` that were not placed, best first.

        A layout that was not placed gets the seconds of the best placed layout with its parallel
        sizes, because the same groups then communicate. Without them, it would seem faster.
        """
        keys = {row.key for row in placed}
        added: dict[ParallelSizes, float] = {}
        for row in placed:
            added.setdefault(row.key[1].degrees, row.exposed_seconds)
        rest = [
            row._replace(exposed_seconds=added.get(row.key[1].degrees, 0.0))
            for row in others
            if row.key not in keys
        ]
        return sorted([*placed, *rest], key=self._sort_key)

    def _simplicity(self, variant: int, point: LayoutPoint) -> tuple[int, ...]:
        return simplicity_key(variant, point, self._effort[point.level])
