"""The filter of a search: drops each layout by a rule or by memory, or estimates its step time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from parc.compiler.cost.memory.workspaces import stage_buffers
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageClass
from parc.compiler.ir import Layout, Split
from parc.compiler.ir.rule import Rule
from parc.compiler.search.enumerate_layouts import (
    Degrees,
    Point,
    micro_batch_choices,
    stage_choices,
)
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.memory_batch import ActivationCell, MemoryBatch
from parc.compiler.search.rank_layouts import ROUNDING, Survivor
from parc.compiler.search.rule_cache import RuleCache
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.time_batch import MeshTimes, TimeBatch

RECOMPUTED = "recompute"
"""Key that counts layouts which lost to a sibling with less recompute."""


@dataclass(slots=True, eq=False)
class StageCut:
    """A stage split of the model, with the results of the rules that read only the split."""

    vpp: int
    split: Split
    shape: StageShape
    first: int
    """Position of the first rule that all layouts with this split violate."""
    levels: tuple[int, ...]
    """Position of the first violated rule per recompute level."""
    valid: bool
    """True if no recompute level violates a rule, and no rule reads the whole layout."""


@dataclass(slots=True, eq=False)
class MeshChoice:
    """Parallel sizes with the micro-batches that they allow."""

    degrees: Degrees
    batches: list[tuple[int, int, int]]
    """(micro-batch, micro-batches per step, position of the first violated rule)."""
    static: dict[StageShape, tuple[float, ...]]
    """Bytes per stage class that do not depend on the micro-batch; empty if these do not fit."""
    times: MeshTimes | None = None


class LayoutFilter:
    """The filter for one space. Groups of siblings (layouts that differ only in recompute) pass it.

    ``run`` fills ``survivors`` with at most one layout per group: its first valid one that fits.
    """

    def __init__(
        self,
        pricing: Pricing,
        rules: tuple[Rule, ...],
        limit_bytes: float,
        space: LayoutSpace,
    ) -> None:
        """``limit_bytes``: device memory that the job may use."""
        self.space = space
        self.enumerated = 0
        self.survivors: list[Survivor] = []
        self._pricing, self._limit = pricing, limit_bytes
        self._rules = RuleCache(pricing.problem, rules, self.layout)
        self._valid = self._rules.valid
        self._lost = [0] * (self._valid + 2)
        """Dropped layouts per position of a rule; then oversized ones, then those by recompute."""
        self._memory = MemoryBatch(pricing, self.layout, space.constants["zero_stage"])
        self._time = TimeBatch(pricing, self.layout)
        self._cuts_by_pp: dict[int, tuple[StageCut, ...]] = {}
        self._splits: dict[tuple[int, int], Split] = {}
        self._shapes: dict[tuple[int, tuple[StageClass, ...]], StageShape] = {}
        self._blocks = any(level.method == "block" for level in self.space.levels)
        self._reads_whole = bool(self._rules.loops["layout"])

    @property
    def dropped(self) -> Counter[str]:
        """Layouts per code of the rule that dropped them first, with R17 and ``recompute``."""
        dropped: Counter[str] = Counter()
        names = (*(rule.code for rule in self._rules.rules), OVERSIZED, RECOMPUTED)
        for name, count in zip(names, self._lost, strict=True):
            dropped[name] += count
        return dropped

    def layout(self, point: Point) -> Layout:
        """Return the layout of a point of this space."""
        return self.space.layout(point, self._splits[point.pp, point.vpp])

    def run(self) -> None:
        """Filter the whole space."""
        for degrees in self.space.degrees():
            cuts = self._cuts(degrees.pp)
            if not cuts:
                continue
            mesh = self._mesh(degrees, cuts[0].vpp)
            self.enumerated += len(cuts) * len(mesh.batches) * len(self.space.levels)
            for cut in cuts:
                self._filter_cut(mesh, cut)

    def _mesh(self, degrees: Degrees, vpp: int) -> MeshChoice:
        """Return the micro-batches of ``degrees``, with the rules that depend on nothing else."""
        batch, rules = self.space.problem.job.global_batch, self._rules
        sizes = micro_batch_choices(self.space.problem, degrees.dp)
        first = rules.first_violated("mesh", Point(*degrees, vpp, 1))
        batches = [
            (
                size,
                batch // (size * degrees.dp),
                min(first, rules.first_violated("batch", Point(*degrees, vpp, size))),
            )
            for size in sizes
        ]
        return MeshChoice(degrees, batches, {})

    def smallest(self) -> Point | None:
        """Return the valid layout that needs the least memory; on a tie, the first one."""
        least, found = float("inf"), None
        choices = self.space.degrees()
        for degrees, cut in ((one, cut) for one in choices for cut in self._cuts(one.pp)):
            for peak, point in self._peaks(self._mesh(degrees, cut.vpp), cut):
                if peak < least * (1 - ROUNDING):
                    least, found = peak, point
        return found

    def _peaks(self, mesh: MeshChoice, cut: StageCut) -> Iterator[tuple[float, Point]]:
        """Yield (peak bytes of the fullest stage, point) of each valid layout of one cut."""
        static: tuple[float, ...] = ()
        step = 0.0
        for size, count, first in mesh.batches:
            point = Point(*mesh.degrees, cut.vpp, size)
            first = min(first, cut.first, self._rules.first_violated("siblings", point))
            violated = self._violated(point, cut, first)
            if max(violated) < self._valid:
                continue
            if not static:
                layout = self.layout(point)
                static = self._memory.static_bytes(layout, cut.shape)
                step = self._memory.static_bytes_in_step(layout, cut.shape)
            cell, left = self._activations(cut, point)
            flights = cut.shape.in_flight(cut.vpp, count)
            for level, rows in enumerate(cell.levels):
                if violated[level] == self._valid:
                    stages = zip(static, flights, rows, strict=True)
                    peak = max(
                        fixed + flight * each + once for fixed, flight, (each, once) in stages
                    )
                    yield max(peak, step) + self._limit - left, point.at_level(level)

    def _cuts(self, pp: int) -> tuple[StageCut, ...]:
        """Return the possible splits of the layers into ``pp`` pipeline ranks; cached per pp."""
        found = self._cuts_by_pp.get(pp)
        if found is None:
            choices = stage_choices(self.space.problem, self._pricing.framework, pp)
            found = tuple(self._cut(pp, vpp, split) for vpp, split in choices)
            self._cuts_by_pp[pp] = found
        return found

    def _cut(self, pp: int, vpp: int, split: Split) -> StageCut:
        self._splits[pp, vpp] = split
        classes = self._pricing.classes(split)
        shape = self._shapes.get((pp, classes))
        if shape is None:
            model, schedule = self.space.problem.model, self.space.schedule
            shape = StageShape.of(model, pp, classes, schedule)
            self._shapes[pp, classes] = shape
        rules, point = self._rules, Point(1, 1, pp, 1, 1, 1, vpp, 1)
        levels = tuple(
            rules.first_violated("level", point.at_level(level))
            for level in range(len(self.space.levels))
        )
        first = rules.first_violated("stages", point)
        valid = not self._reads_whole and min(levels) == self._valid
        return StageCut(vpp, split, shape, first, levels, valid)

    def _filter_cut(self, mesh: MeshChoice, cut: StageCut) -> None:
        """Filter all micro-batches of one mesh and one cut."""
        first_violated, lost, valid = self._rules.first_violated, self._lost, self._valid
        for size, count, first in mesh.batches:
            point = Point(*mesh.degrees, cut.vpp, size)
            first = min(first, cut.first, first_violated("siblings", point))
            if not cut.valid:
                violated = self._violated(point, cut, first)
                self._filter_siblings(mesh, cut, (point, count), violated)
            elif first < valid:
                lost[first] += len(cut.levels)
            else:
                self._filter_siblings(mesh, cut, (point, count), cut.levels)

    def _violated(self, point: Point, cut: StageCut, first: int) -> tuple[int, ...]:
        """Return the position of the first violated rule per recompute level."""
        whole = [
            self._rules.first_violated("layout", point.at_level(level))
            if self._reads_whole
            else self._valid
            for level in range(len(cut.levels))
        ]
        return tuple(min(first, one, two) for one, two in zip(cut.levels, whole, strict=True))

    def _filter_siblings(
        self, mesh: MeshChoice, cut: StageCut, first: tuple[Point, int], violated: tuple[int, ...]
    ) -> None:
        """Estimate the first sibling that is valid and fits; the later ones are only slower.

        ``first``: the sibling with the least recompute, and its micro-batches per step.
        """
        (point, count), lost, valid = first, self._lost, self._valid
        static = mesh.static.get(cut.shape)
        if static is None:
            static = self._static_bytes(mesh, cut, point)
        if not static:
            for position in violated:
                lost[position] += 1
            return
        cell, left = self._activations(cut, point)
        flights = cut.shape.in_flight(cut.vpp, count)
        for level, rows in enumerate(cell.levels):
            if violated[level] < valid:
                lost[violated[level]] += 1
                continue
            for fixed, flight, (each, once) in zip(static, flights, rows, strict=True):
                if fixed + flight * each + once > left:
                    lost[valid] += 1
                    break
            else:
                lost[-1] += len(violated) - level - 1
                self._estimate(mesh, cut, point.at_level(level), count)
                return

    def _static_bytes(self, mesh: MeshChoice, cut: StageCut, point: Point) -> tuple[float, ...]:
        layout = self.layout(point)
        static = self._memory.static_bytes(layout, cut.shape)
        if self._memory.static_bytes_in_step(layout, cut.shape) > self._limit:
            static = ()
        mesh.static[cut.shape] = static
        return static

    def _activations(self, cut: StageCut, point: Point) -> tuple[ActivationCell, float]:
        """Return (activations of one micro-batch, bytes left next to the stage buffers)."""
        tp, cp, _, _, _, etp, vpp, size, _ = point
        key = (cut.shape, tp, cp, etp, size, vpp if self._blocks else 0)
        cell = self._memory.cells.get(key)
        if cell is None:
            points = [point.at_level(level) for level in range(len(cut.levels))]
            cell = self._memory.activation_cell(key, points)
        return cell, self._limit - stage_buffers(cut.shape.pp, vpp) * cell.stream

    def _estimate(self, mesh: MeshChoice, cut: StageCut, point: Point, count: int) -> None:
        times = mesh.times
        if times is None:
            times = mesh.times = self._time.mesh(point)
        self.survivors.append(Survivor(times.seconds(point, cut.shape, count), point))
