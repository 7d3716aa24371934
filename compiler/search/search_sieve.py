"""What becomes of every layout of a search: dropped by a rule, too large, or priced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from parc.compiler.cost.memory.workspaces import stage_buffers
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageClass
from parc.compiler.ir import Layout, Split
from parc.compiler.ir.rule import Rule
from parc.compiler.search.drop_oversized import OVERSIZED
from parc.compiler.search.enumerate_layouts import (
    Degrees,
    micro_batch_choices,
    stage_choices,
)
from parc.compiler.search.memory_batch import ActivationCell, MemoryBatch
from parc.compiler.search.rank_layouts import DIGITS, Survivor
from parc.compiler.search.search_screen import Screen
from parc.compiler.search.search_space import Point, Space
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.time_batch import MeshTimes, TimeBatch

RECOMPUTED = "recompute"
"""Key under which layouts are counted that lost to a sibling with less recompute."""


@dataclass(slots=True, eq=False)
class Stages:
    """One way to cut the model, and what its rules said."""

    vpp: int
    split: Split
    shape: StageShape
    first: int
    """Position of the first rule that all its layouts break."""
    levels: tuple[int, ...]
    """The same by recompute level."""
    legal: bool
    """No level is broken."""


@dataclass(slots=True, eq=False)
class Mesh:
    """One choice of degrees on its way through the sieve."""

    degrees: Degrees
    batches: list[tuple[int, int, int]]
    """(micro-batch, micro-batches of a step, position of the first broken rule)."""
    held: dict[StageShape, tuple[float, ...]]
    """Bytes of each class that no micro-batch changes; empty where they alone are too many."""
    times: MeshTimes | None = None


class Sieve:
    """Every layout of a space, family by family; a family differs in recompute alone."""

    def __init__(
        self,
        pricing: Pricing,
        rules: tuple[Rule, ...],
        limit_bytes: float,
        space: Space,
    ) -> None:
        """``limit_bytes`` is what the device leaves to the job."""
        self.space = space
        self.enumerated = 0
        self.survivors: list[Survivor] = []
        self._pricing, self._rules, self._limit = pricing, rules, limit_bytes
        self._screen = Screen(pricing.problem, rules, self.layout)
        self._kept = self._screen.kept
        self._lost = [0] * (self._kept + 2)
        """By position of the rule; then those that are too large, then those by recompute."""
        self._memory = MemoryBatch(pricing, self.layout, space.constants["zero_stage"])
        self._time = TimeBatch(pricing, self.layout)
        self._stages: dict[int, tuple[Stages, ...]] = {}
        self._splits: dict[tuple[int, int], Split] = {}
        self._shapes: dict[tuple[int, tuple[StageClass, ...]], StageShape] = {}
        self._blocks = any(level.method == "block" for level in self.space.levels)
        self._whole = bool(self._screen.depths["layout"])

    @property
    def dropped(self) -> Counter[str]:
        """Rule code -> layouts that it was the first to drop, with R17 and ``recompute``."""
        dropped: Counter[str] = Counter()
        names = (*(rule.code for rule in self._rules), OVERSIZED, RECOMPUTED)
        for name, count in zip(names, self._lost, strict=True):
            dropped[name] += count
        return dropped

    def layout(self, point: Point) -> Layout:
        """The layout of a point of this space."""
        return self.space.layout(point, self._splits[point[2], point[6]])

    def run(self) -> None:
        """Sift the whole space."""
        for degrees in self.space.degrees():
            self._sift_mesh(degrees)

    def _sift_mesh(self, degrees: Degrees) -> None:
        cuts = self._cuts(degrees.pp)
        if not cuts:
            return
        mesh = self._mesh(degrees, cuts[0].vpp)
        self.enumerated += len(cuts) * len(mesh.batches) * len(self.space.levels)
        for cut in cuts:
            self._sift_cut(mesh, cut)

    def _mesh(self, degrees: Degrees, vpp: int) -> Mesh:
        """Its micro-batches, and what the rules say that read no more than that."""
        batch, screen = self.space.problem.job.global_batch, self._screen
        sizes = micro_batch_choices(self.space.problem, degrees.dp)
        first = screen.first("mesh", (*degrees, vpp, 1, 0))
        batches = [
            (
                size,
                batch // (size * degrees.dp),
                min(first, screen.first("batch", (*degrees, vpp, size, 0))),
            )
            for size in sizes
        ]
        return Mesh(degrees, batches, {})

    def smallest(self) -> Point | None:
        """The legal layout that needs the fewest bytes; the first of those that are equal."""
        least, found = float("inf"), None
        choices = self.space.degrees()
        for degrees, cut in ((one, cut) for one in choices for cut in self._cuts(one.pp)):
            for peak, point in self._peaks(self._mesh(degrees, cut.vpp), cut):
                if peak < least * (1 - DIGITS):
                    least, found = peak, point
        return found

    def _peaks(self, mesh: Mesh, cut: Stages) -> Iterator[tuple[float, Point]]:
        """(bytes of the fullest stage, point) of every legal layout of one cut."""
        held: tuple[float, ...] = ()
        step = 0.0
        for size, count, first in mesh.batches:
            family = (*mesh.degrees, cut.vpp, size)
            first = min(first, cut.first, self._screen.first("family", (*family, 0)))
            broken = self._broken(family, cut, first)
            if max(broken) < self._kept:
                continue
            if not held:
                layout = self.layout((*family, 0))
                held = self._memory.held(layout, cut.shape)
                step = self._memory.held_at_step(layout, cut.shape)
            cell, room = self._room(cut, family)
            flights = cut.shape.in_flight(cut.vpp, count)
            for level, rows in enumerate(cell.levels):
                if broken[level] == self._kept:
                    stages = zip(held, flights, rows, strict=True)
                    peak = max(
                        fixed + flight * each + once for fixed, flight, (each, once) in stages
                    )
                    yield max(peak, step) + self._limit - room, (*family, level)

    def _cuts(self, pp: int) -> tuple[Stages, ...]:
        """The ways to cut the model into ``pp`` ranks, made once."""
        found = self._stages.get(pp)
        if found is None:
            choices = stage_choices(self.space.problem, self._pricing.framework, pp)
            found = self._stages[pp] = tuple(self._cut(pp, vpp, split) for vpp, split in choices)
        return found

    def _cut(self, pp: int, vpp: int, split: Split) -> Stages:
        self._splits[pp, vpp] = split
        classes = self._pricing.classes(split)
        shape = self._shapes.get((pp, classes))
        if shape is None:
            model, schedule = self.space.problem.model, self.space.schedule
            shape = StageShape.of(model, pp, classes, schedule)
            self._shapes[pp, classes] = shape
        screen, point = self._screen, (1, 1, pp, 1, 1, 1, vpp, 1)
        levels = tuple(
            screen.first("level", (*point, level)) for level in range(len(self.space.levels))
        )
        first = screen.first("stages", (*point, 0))
        legal = not self._whole and min(levels) == self._kept
        return Stages(vpp, split, shape, first, levels, legal)

    def _sift_cut(self, mesh: Mesh, cut: Stages) -> None:
        """All micro-batches on one mesh and one cut."""
        first_of, lost, kept = self._screen.first, self._lost, self._kept
        for size, count, first in mesh.batches:
            family = (*mesh.degrees, cut.vpp, size)
            first = min(first, cut.first, first_of("family", (*family, 0)))
            if not cut.legal:
                self._sift_family(mesh, cut, (family, count), self._broken(family, cut, first))
            elif first < kept:
                lost[first] += len(cut.levels)
            else:
                self._sift_family(mesh, cut, (family, count), cut.levels)

    def _broken(self, family: Point, cut: Stages, first: int) -> tuple[int, ...]:
        """Position of the first broken rule, by recompute level."""
        whole = [
            self._screen.first("layout", (*family, level)) if self._whole else self._kept
            for level in range(len(cut.levels))
        ]
        return tuple(min(first, one, two) for one, two in zip(cut.levels, whole, strict=True))

    def _sift_family(
        self, mesh: Mesh, cut: Stages, family: tuple[Point, int], broken: tuple[int, ...]
    ) -> None:
        """Price the first that is legal and fits: its siblings are only slower."""
        (point, count), lost, kept = family, self._lost, self._kept
        held = mesh.held.get(cut.shape)
        if held is None:
            held = self._hold(mesh, cut, point)
        if not held:
            for position in broken:
                lost[position] += 1
            return
        cell, room = self._room(cut, point)
        flights = cut.shape.in_flight(cut.vpp, count)
        for level, rows in enumerate(cell.levels):
            if broken[level] < kept:
                lost[broken[level]] += 1
                continue
            for fixed, flight, (each, once) in zip(held, flights, rows, strict=True):
                if fixed + flight * each + once > room:
                    lost[kept] += 1
                    break
            else:
                lost[-1] += len(broken) - level - 1
                self._price(mesh, cut, (*point, level), count)
                return

    def _hold(self, mesh: Mesh, cut: Stages, point: Point) -> tuple[float, ...]:
        layout = self.layout((*point, 0))
        held = self._memory.held(layout, cut.shape)
        if self._memory.held_at_step(layout, cut.shape) > self._limit:
            held = ()
        mesh.held[cut.shape] = held
        return held

    def _room(self, cut: Stages, point: Point) -> tuple[ActivationCell, float]:
        """(activations of one micro-batch, bytes that remain besides stage buffers)."""
        tp, cp, _, _, _, etp, vpp, size = point
        key = (cut.shape, tp, cp, etp, size, vpp if self._blocks else 0)
        cell = self._memory.cells.get(key)
        if cell is None:
            cell = self._memory.price(key, [(*point, n) for n in range(len(cut.levels))])
        return cell, self._limit - stage_buffers(cut.shape.pp, vpp) * cell.stream

    def _price(self, mesh: Mesh, cut: Stages, point: Point, count: int) -> None:
        times = mesh.times
        if times is None:
            times = mesh.times = self._time.mesh(point)
        self.survivors.append(Survivor(times.seconds(point, cut.shape, count), point))
