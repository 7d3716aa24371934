"""Put the layouts that survived a search in order; predicted ties go to the simplest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from parc.compiler.cost.memory.peak import peak_bytes, peak_stage
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Layout, Recompute
from parc.compiler.search.search_space import Point

TIE = 0.03
"""Predictions closer than this are ties (run-to-run noise of published sweeps)."""
KEEP = 20
"""Candidates kept in the plan."""
RESCORED = 10
"""Candidates that are placed before they are ranked."""
MORE = 20
"""Further ones, of other degrees, that are placed while one might still be faster."""
DEGREES = 6
"""Entries of a point that say which ranks talk to which: tp, cp, pp, dp, ep, etp."""
DIGITS = 1e-9
"""Relative error that the sieve's sums may have."""


class Survivor(NamedTuple):
    """A layout that is legal and fits, with its step seconds to about twelve digits."""

    seconds: float
    point: Point
    variant: int = 0
    """Its place among the variants of the framework, the simplest first."""


class Ranked(NamedTuple):
    """A layout with what the plan says about it, and what its placement adds."""

    seconds: float
    peak_bytes: float
    layout: Layout
    key: tuple[int, Point]
    """Variant and point."""
    exposed_seconds: float

    @property
    def score(self) -> float:
        """What a step takes where it is placed."""
        return self.seconds + self.exposed_seconds


def simplicity(variant: int, point: Point, effort: int) -> tuple[int, ...]:
    """Order among ties, smaller is simpler; ``effort`` is how much ``point`` recomputes.

    Fewer axes, an earlier variant, less recompute, less of vpp, cp, pp, tp and ep. The last
    entries make the order total.
    """
    tp, cp, pp, _, ep, etp, vpp, micro_batch, _ = point
    axes = (tp > 1) + (cp > 1) + (pp > 1) + (ep > 1)
    return (axes, variant, effort, vpp, cp, pp, tp, ep, etp, -micro_batch)


class Ranking:
    """Order of the survivors of one search.

    Total order: (GPUs where fewer are the goal), seconds, simplicity. Of predictions within 3 %
    of the best the simplest leads whose memory fits at the high end of its band, or the simplest
    where none does; the others keep their order. Where hosts share uplinks the first ten are
    ordered by their seconds where they are placed, and with them the fastest of other degrees, as
    long as their seconds without a placement are fewer than the best has with its own.
    """

    def __init__(
        self,
        pricing: Pricing,
        builds: tuple[Callable[[Point], Layout], ...],
        levels: tuple[Recompute, ...],
        limit_bytes: float,
    ) -> None:
        """``builds``: layout of a point, by variant; ``levels``: what its last entry counts."""
        self._pricing, self._builds, self._limit = pricing, builds, limit_bytes
        self._few = pricing.problem.goals.maximize == "fewest-gpus"
        names = ("none", "selective", "full")
        self._effort = tuple(names.index(level.granularity) for level in levels)

    def best(
        self, survivors: list[Survivor], exposed: Callable[[Layout], float] | None
    ) -> list[Ranked]:
        """The ``KEEP`` best, best first; ``exposed`` gives the seconds that a placement adds."""
        rough = sorted(survivors, key=lambda row: (self._world(row.point), row.seconds))
        ordered = sorted(map(self._price, self._head(rough)), key=self._order)
        first = self._simplest(self._ties(rough, ordered[0]), ordered[0].seconds * (1 + TIE))
        if exposed is not None:
            placed = self._placed([*ordered[:RESCORED], first], exposed)
            placed = self._wider(placed, rough, exposed)
            ordered = placed + ordered[RESCORED:]
            first = self._simplest_of(placed)
        return [first, *(row for row in ordered if row.key != first.key)][:KEEP]

    def _world(self, point: Point) -> int:
        """GPUs where fewer of them are the goal, else nothing."""
        return point[0] * point[1] * point[2] * point[3] if self._few else 0

    def _order(self, row: Ranked) -> tuple[object, ...]:
        return (self._world(row.key[1]), row.score, self._simplicity(*row.key))

    def _price(self, survivor: Survivor) -> Ranked:
        """Time and memory to the last digit, as the estimate has them."""
        layout = self._builds[survivor.variant](survivor.point)
        seconds = step_time(self._pricing, layout).total_seconds
        key = (survivor.variant, survivor.point)
        return Ranked(seconds, peak_bytes(self._pricing, layout), layout, key, 0.0)

    def _head(self, rough: list[Survivor]) -> list[Survivor]:
        """The first ``KEEP``, and what cannot be told from the last of them."""
        last = rough[:KEEP][-1]
        most, world = last.seconds * (1 + DIGITS), self._world(last.point)
        more = (row for row in rough[KEEP:] if row.seconds <= most)
        return [*rough[:KEEP], *(row for row in more if self._world(row.point) == world)]

    def _ties(self, rough: list[Survivor], best: Ranked) -> list[Survivor]:
        """What is predicted within 3 % of the best."""
        most, world = best.seconds * (1 + TIE) * (1 + DIGITS), self._world(best.key[1])
        return [row for row in rough if row.seconds <= most and self._world(row.point) == world]

    def _simplest(self, ties: list[Survivor], most_seconds: float) -> Ranked:
        """The simplest whose whole memory band fits; where none does, the simplest."""
        simple = sorted(ties, key=lambda row: self._simplicity(row.variant, row.point))
        rows = (row for row in map(self._price, simple) if row.seconds <= most_seconds)
        return self._safe(rows)

    def _simplest_of(self, placed: list[Ranked]) -> Ranked:
        """The same among layouts that are placed."""
        most, world = placed[0].score * (1 + TIE), self._world(placed[0].key[1])
        ties = [row for row in placed if row.score <= most and self._world(row.key[1]) == world]
        return self._safe(sorted(ties, key=lambda row: self._simplicity(*row.key)))

    def _safe(self, rows: Iterable[Ranked]) -> Ranked:
        """The first whose memory fits at the high end of its band; where none does, the first."""
        first: Ranked | None = None
        for row in rows:
            if peak_stage(self._pricing, row.layout).high_bytes <= self._limit:
                return row
            first = first or row
        if first is None:
            raise ValueError("the best layout is always among its own ties")
        return first

    def _placed(self, rows: list[Ranked], exposed: Callable[[Layout], float]) -> list[Ranked]:
        """Each once, with what its placement adds, best first."""
        once = {row.key: row for row in rows}.values()
        placed = [row._replace(exposed_seconds=exposed(row.layout)) for row in once]
        return sorted(placed, key=self._order)

    def _wider(
        self, placed: list[Ranked], rough: list[Survivor], exposed: Callable[[Layout], float]
    ) -> list[Ranked]:
        """``placed``, and the fastest of other degrees that might still be faster.

        The first ten may have the same fault: expert groups that NVLink domains cannot hold.
        """
        best, most = placed[0], len(placed) + MORE
        seen = {row.key[1][:DEGREES] for row in placed}
        for survivor in rough:
            far = (self._world(survivor.point), survivor.seconds)
            if far >= (self._world(best.key[1]), best.score) or len(placed) == most:
                break
            if survivor.point[:DEGREES] not in seen:
                seen.add(survivor.point[:DEGREES])
                row = self._price(survivor)
                placed.append(row._replace(exposed_seconds=exposed(row.layout)))
                best = min(best, placed[-1], key=self._order)
        return sorted(placed, key=self._order)

    def _simplicity(self, variant: int, point: Point) -> tuple[int, ...]:
        return simplicity(variant, point, self._effort[point[-1]])
