"""Layouts that passed the filter, and their step times, which are computed as late as possible.

A search needs the step times of its fastest layouts only. The filter therefore gives each layout a
lower bound that one product yields, and a step time is computed when this bound does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, Protocol

from parc.compiler.ir import Layout, StepTime
from parc.compiler.search.enumerate_layouts import LayoutPoint

ROUNDING = 1e-9
"""Bound on the relative rounding error of ``PeakMemoryCache`` and ``StepTimeCache``."""


class Survivor(NamedTuple):
    """Valid layout that fits into memory, with its step time in seconds.

    The time is exact to about twelve digits, because ``step_time`` adds its terms in a different
    order. With interleaving it is a lower bound (``critical_paths``).
    """

    seconds: float
    point: LayoutPoint
    variant: int = 0
    """Index of the framework variant, 0 for the simplest."""
    is_lower_bound: bool = False
    """True if ``seconds`` is only the lower bound of ``LayoutFilter.least_seconds``."""


class LayoutSource(Protocol):
    """Layouts of one framework variant, and their step times."""

    def build_layout(self, point: LayoutPoint) -> Layout:
        """Return the layout that belongs to ``point``."""

    def step_seconds(self, point: LayoutPoint) -> float:
        """Return the seconds per step of ``point``, as ``Survivor`` defines them."""

    def least_placement_seconds(self, point: LayoutPoint) -> float:
        """Return about a lower bound of the seconds that the placement of ``point`` adds."""

    def placement_seconds(self, layout: Layout, point: LayoutPoint, time: StepTime) -> float:
        """Return the seconds that the placement of ``layout`` adds to its step time ``time``."""


Sources = Mapping[int, LayoutSource]
"""Index of a framework variant -> its layouts."""


def with_step_time(sources: Sources, row: Survivor) -> Survivor:
    """Return ``row`` with its step time in place of a lower bound."""
    if not row.is_lower_bound:
        return row
    return Survivor(sources[row.variant].step_seconds(row.point), row.point, row.variant)


def survivors_within(sources: Sources, rows: Iterable[Survivor], most: float) -> list[Survivor]:
    """Return those of ``rows`` whose step takes at most ``most`` seconds, with their step times."""
    timed = (with_step_time(sources, row) for row in rows if row.seconds <= most)
    return [row for row in timed if row.seconds <= most]


def fastest_first(
    sources: Sources, rows: Iterable[Survivor], gpus: Callable[[LayoutPoint], int]
) -> Iterator[Survivor]:
    """Yield ``rows`` with their step times, sorted by ``gpus`` and the step time.

    Step times are computed only as far as the order needs them. Rows with equal keys keep their
    order.
    """
    waiting = [(gpus(row.point), row.seconds, index, row) for index, row in enumerate(rows)]
    heapify(waiting)
    while waiting:
        world, _, index, row = waiting[0]
        if row.is_lower_bound:
            row = with_step_time(sources, row)
            heapreplace(waiting, (world, row.seconds, index, row))
        else:
            heappop(waiting)
            yield row
