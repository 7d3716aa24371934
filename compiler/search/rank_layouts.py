"""Order of the layouts that passed the filter: fastest first, the simplest of those that tie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from parc.compiler.cost.memory.peak import peak_bytes, peak_stage
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Layout, Recompute
from parc.compiler.search.enumerate_layouts import Degrees, Point

TIE = 0.03
"""Relative difference below which predictions tie (run-to-run noise of published sweeps)."""
KEEP = 20
"""Candidates kept in the plan."""
RESCORED = 10
"""Candidates that are placed on hosts before the final ranking."""
MORE = 20
"""Further candidates, with other parallel sizes, that are placed while one may still be faster."""
ROUNDING = 1e-9
"""Relative rounding error of the sums in ``MemoryBatch`` and ``TimeBatch``."""


class Survivor(NamedTuple):
    """A valid layout that fits, with its step seconds to about twelve digits."""

    seconds: float
    point: Point
    variant: int = 0
    """Index of the framework variant, 0 for the simplest."""


class Ranked(NamedTuple):
    """A layout with its exact estimate, and the seconds that its placement adds."""

    seconds: float
    peak_bytes: float
    layout: Layout
    key: tuple[int, Point]
    """Variant and point."""
    exposed_seconds: float

    @property
    def score(self) -> float:
        """Step seconds on the hosts where it is placed."""
        return self.seconds + self.exposed_seconds


def simplicity(variant: int, point: Point, effort: int) -> tuple[int, ...]:
    """Return the sort key among ties; a smaller key is simpler.

    Fewer axes, an earlier variant, less recompute (``effort``: 0 none, 1 selective, 2 full), then
    smaller vpp, cp, pp, tp and ep. The last entries make the order total.
    """
    tp, cp, pp, _, ep, etp, vpp, micro_batch, _ = point
    axes = (tp > 1) + (cp > 1) + (pp > 1) + (ep > 1)
    return (axes, variant, effort, vpp, cp, pp, tp, ep, etp, -micro_batch)


class Ranking:
    """Order of the survivors of one search.

    Total order: GPUs (only for the goal fewest-gpus), step seconds, simplicity. Predictions within
    ``TIE`` of the best tie with it: the simplest one leads whose memory fits even at the high end
    of its band, or the simplest of all if none does. The other candidates keep their order.

    If hosts share uplinks, the first ``RESCORED`` candidates are placed and ordered by their step
    seconds including the placement. Candidates with other parallel sizes follow, in the order of
    their seconds, as long as these are below the best placed result.
    """

    def __init__(
        self,
        pricing: Pricing,
        builds: tuple[Callable[[Point], Layout], ...],
        levels: tuple[Recompute, ...],
        limit_bytes: float,
    ) -> None:
        """``builds``: builds the layout of a point, per variant; ``levels``: by ``Point.level``."""
        self._pricing, self._builds, self._limit = pricing, builds, limit_bytes
        self._few = pricing.problem.goals.maximize == "fewest-gpus"
        names = ("none", "selective", "full")
        self._effort = tuple(names.index(level.granularity) for level in levels)

    def best(
        self, survivors: list[Survivor], exposed: Callable[[Layout], float] | None
    ) -> list[Ranked]:
        """Return the ``KEEP`` best, best first.

        ``exposed`` returns the seconds that the placement of a layout adds to its step.
        """
        rough = sorted(survivors, key=lambda row: (self._world(row.point), row.seconds))
        ordered = sorted(map(self._evaluate, self._head(rough)), key=self._order)
        first = self._simplest(self._ties(rough, ordered[0]), ordered[0].seconds * (1 + TIE))
        if exposed is not None:
            placed = self._placed([*ordered[:RESCORED], first], exposed)
            placed = self._wider(placed, rough, exposed)
            ordered = placed + ordered[RESCORED:]
            first = self._simplest_of(placed)
        return [first, *(row for row in ordered if row.key != first.key)][:KEEP]

    def _world(self, point: Point) -> int:
        """Return the number of GPUs if fewer GPUs are the goal, else 0."""
        return point.world if self._few else 0

    def _order(self, row: Ranked) -> tuple[object, ...]:
        return (self._world(row.key[1]), row.score, self._simplicity(*row.key))

    def _evaluate(self, survivor: Survivor) -> Ranked:
        """Return the layout with exact time and memory, as in its full estimate."""
        layout = self._builds[survivor.variant](survivor.point)
        seconds = step_time(self._pricing, layout).total_seconds
        key = (survivor.variant, survivor.point)
        return Ranked(seconds, peak_bytes(self._pricing, layout), layout, key, 0.0)

    def _head(self, rough: list[Survivor]) -> list[Survivor]:
        """Return the first ``KEEP``, and survivors equal to the last of them within rounding."""
        last = rough[:KEEP][-1]
        most, world = last.seconds * (1 + ROUNDING), self._world(last.point)
        more = (row for row in rough[KEEP:] if row.seconds <= most)
        return [*rough[:KEEP], *(row for row in more if self._world(row.point) == world)]

    def _ties(self, rough: list[Survivor], best: Ranked) -> list[Survivor]:
        """Return the survivors within ``TIE`` of the best."""
        most, world = best.seconds * (1 + TIE) * (1 + ROUNDING), self._world(best.key[1])
        return [row for row in rough if row.seconds <= most and self._world(row.point) == world]

    def _simplest(self, ties: list[Survivor], most_seconds: float) -> Ranked:
        """Return the simplest whose whole memory band fits; if none does, the simplest."""
        simple = sorted(ties, key=lambda row: self._simplicity(row.variant, row.point))
        rows = (row for row in map(self._evaluate, simple) if row.seconds <= most_seconds)
        return self._safe(rows)

    def _simplest_of(self, placed: list[Ranked]) -> Ranked:
        """Return the simplest of the placed layouts that tie, under the same memory condition."""
        most, world = placed[0].score * (1 + TIE), self._world(placed[0].key[1])
        ties = [row for row in placed if row.score <= most and self._world(row.key[1]) == world]
        return self._safe(sorted(ties, key=lambda row: self._simplicity(*row.key)))

    def _safe(self, rows: Iterable[Ranked]) -> Ranked:
        """Return the first that fits at the high end of its memory band, else the first."""
        first: Ranked | None = None
        for row in rows:
            if peak_stage(self._pricing, row.layout).high_bytes <= self._limit:
                return row
            first = first or row
        if first is None:
            raise ValueError("the best layout must be among its own ties")
        return first

    def _placed(self, rows: list[Ranked], exposed: Callable[[Layout], float]) -> list[Ranked]:
        """Return each row once, with the seconds that its placement adds, best first."""
        once = {row.key: row for row in rows}.values()
        placed = [row._replace(exposed_seconds=exposed(row.layout)) for row in once]
        return sorted(placed, key=self._order)

    def _wider(
        self, placed: list[Ranked], rough: list[Survivor], exposed: Callable[[Layout], float]
    ) -> list[Ranked]:
        """Add the fastest survivors with other parallel sizes, while they may still win.

        The first candidates often share one fault, such as expert groups larger than an NVLink
        domain, so another mesh may win although its estimate without a placement is slower.
        """
        best, most = placed[0], len(placed) + MORE
        seen: set[Degrees] = {row.key[1].degrees for row in placed}
        for survivor in rough:
            far = (self._world(survivor.point), survivor.seconds)
            if far >= (self._world(best.key[1]), best.score) or len(placed) == most:
                break
            if survivor.point.degrees not in seen:
                seen.add(survivor.point.degrees)
                row = self._evaluate(survivor)
                placed.append(row._replace(exposed_seconds=exposed(row.layout)))
                best = min(best, placed[-1], key=self._order)
        return sorted(placed, key=self._order)

    def _simplicity(self, variant: int, point: Point) -> tuple[int, ...]:
        return simplicity(variant, point, self._effort[point.level])
