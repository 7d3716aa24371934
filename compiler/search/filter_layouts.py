"""Filter of the layout search: drop invalid and oversized layouts, bound the time of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from parc.compiler.cost.memory.peak import EXPECTED, MemoryEnd
from parc.compiler.cost.memory.workspaces import count_stage_buffers
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import EqualStageGroup
from parc.compiler.ir import Layout, PipelineSplit
from parc.compiler.ir.rule import Rule
from parc.compiler.search.enumerate_layouts import (
    LayoutPoint,
    ParallelSizes,
    micro_batch_choices,
    stage_choices,
)
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.memory_cache import (
    OversizedLayout,
    PeakMemoryCache,
    StageActivations,
    has_memory_elsewhere,
)
from parc.compiler.search.rule_cache import CheckedMesh, CheckedSplit, RuleCache
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.survivors import ROUNDING, Survivor
from parc.compiler.search.time_cache import MeshTimes, StepTimeCache

COVERED_BY_SIBLING = "recompute"
"""Key for the number of layouts that are left out because a sibling with less recompute fits."""


class LayoutFilter:
    """Filter for the layouts of one search space.

    Siblings are layouts that differ only in recompute. ``filter_all_layouts`` keeps at most one of
    them in ``survivors``: the valid one with the least recompute that fits into memory.
    """

    def __init__(
        self,
        cost_model: CostModel,
        rules: tuple[Rule, ...],
        limit_bytes: float,
        space: LayoutSpace,
        end: MemoryEnd = EXPECTED,
    ) -> None:
        """Create a filter for the layouts of ``space``.

        ``limit_bytes`` is the device memory that the job can use. The memory estimates are compared
        with it at ``end`` of their intervals.
        """
        self.space = space
        self.enumerated = 0
        self.survivors: list[Survivor] = []
        self._oversized: list[OversizedLayout] = []
        self._cost_model, self._limit, self.end = cost_model, limit_bytes, end
        self.rules = rules
        self._rules = RuleCache(cost_model.problem, rules, self.build_layout)
        self._valid = self._rules.valid
        self._lost = [0] * (self._valid + 2)
        """Layouts dropped by each rule, by the memory limit, and because of a sibling."""
        self._memory = PeakMemoryCache(
            cost_model, self.build_layout, space.constants["zero_stage"], end
        )
        self._time = StepTimeCache(cost_model, self.build_layout, space.levels)
        self._times_by_sizes: dict[tuple[int, ...], MeshTimes] = {}
        self._seconds: dict[LayoutPoint, float] = {}
        self._splits_by_pp: dict[int, tuple[CheckedSplit, ...]] = {}
        self._splits: dict[tuple[int, int], list[tuple[PipelineSplit, StageShape]]] = {}
        """(pp, vpp) -> the splits that ``LayoutPoint.split`` numbers."""
        self._shapes: dict[tuple[int, tuple[EqualStageGroup, ...]], StageShape] = {}
        self._template: tuple[tuple[int, ...], dict[str, Any]] = ((), {})
        """Last (tp, cp, pp, dp, ep, etp, vpp) of ``build_layout``, and the fields of its layout."""
        self._has_block_recompute = any(
            level.method == "block" for level in space.levels[: space.sibling_levels]
        )
        self._has_layout_rules = bool(self._rules.loops["layout"])

    @property
    def dropped_counts(self) -> Counter[str]:
        """Number of dropped layouts, by diagnostic code of the first rule that a layout violates.

        Layouts that do not fit into memory are counted under ``R17``. Layouts with more recompute
        than necessary are counted under ``recompute``.
        """
        dropped: Counter[str] = Counter()
        # Several rules may share one code, so their counts are added.
        names = (*(rule.code for rule in self._rules.rules), OVERSIZED, COVERED_BY_SIBLING)
        for name, count in zip(names, self._lost, strict=True):
            dropped[name] += count
        return dropped

    def build_layout(self, point: LayoutPoint) -> Layout:
        """Return the layout that belongs to ``point``."""
        sizes, template = self._template
        if point[:7] != sizes or point.split:
            split, _ = self._splits[point.pp, point.vpp][point.split]
            layout = self.space.build_layout(point, split)
            # The exchange of context-parallel ranks may depend on the micro-batch.
            if point.cp == 1 and not point.split:
                self._template = point[:7], layout.__dict__.copy()
            return layout
        # Copying the fields of the previous layout takes a third of the time of building them.
        layout = object.__new__(Layout)
        fields = layout.__dict__
        fields.update(template)
        fields["micro_batch"] = point.micro_batch
        fields["recompute"] = self.space.levels[point.level]
        return layout

    @property
    def near_misses(self) -> list[LayoutPoint]:
        """Valid layouts that do not fit, but might fit with another stage split."""
        rows = [one for one in self._oversized if one[0].pp > 1]
        return [one[0].with_recompute_level(one[1]) for one in rows if has_memory_elsewhere(one)]

    def filter_all_layouts(self) -> None:
        """Filter all layouts of the search space, and store those that pass in ``survivors``."""
        for degrees in self.space.parallel_sizes():
            splits = self._stage_splits(degrees.pp)
            if not splits:
                continue
            # The rules of these loops do not read vpp, so the vpp of any split will do.
            mesh = self._check_mesh(degrees, splits[0].vpp)
            self.enumerated += len(splits) * len(mesh.batches) * self.space.sibling_levels
            for split in splits:
                self._filter_split(mesh, split)

    def _check_mesh(self, degrees: ParallelSizes, vpp: int) -> CheckedMesh:
        """Return the parallel sizes ``degrees`` with all micro-batch sizes to try.

        Each micro-batch size is listed with the index of the first rule that it violates. Rules
        that read the stages or the recompute level are not checked here.
        """
        batch, rules = self.space.problem.job.global_batch, self._rules
        sizes = micro_batch_choices(self.space.problem, degrees.dp)
        first = rules.first_violated("mesh", LayoutPoint(*degrees, vpp, 1))
        batches = [
            (
                size,
                batch // (size * degrees.dp),
                min(first, rules.first_violated("batch", LayoutPoint(*degrees, vpp, size))),
            )
            for size in sizes
        ]
        return CheckedMesh(degrees, batches, {})

    def smallest_layout(self) -> tuple[LayoutPoint, frozenset[str]] | None:
        """Return the valid layout that needs the least memory, and sizes that can exceed 1.

        The second value contains the parallel sizes above 1 of all valid layouts. On a tie, the
        first layout is returned. Returns None if no layout is valid.
        """
        least, found = float("inf"), None
        splits: set[str] = set()
        choices = self.space.parallel_sizes()
        for degrees, split in (
            (one, split) for one in choices for split in self._stage_splits(one.pp)
        ):
            for peak, point in self._valid_peaks(self._check_mesh(degrees, split.vpp), split):
                splits.update(name for name, size in degrees._asdict().items() if size > 1)
                # Rounding errors must not decide between layouts that need equal memory.
                if peak < least * (1 - ROUNDING):
                    least, found = peak, point
        return None if found is None else (found, frozenset(splits))

    def _valid_peaks(
        self, mesh: CheckedMesh, split: CheckedSplit
    ) -> Iterator[tuple[float, LayoutPoint]]:
        """Yield (peak bytes, point) for each valid layout; the peak is that of the fullest stage.

        Only layouts with the parallel sizes of ``mesh`` and the stages of ``split`` are considered.
        """
        static: tuple[float, ...] = ()
        step = 0.0
        for size, count, first in mesh.batches:
            point = LayoutPoint(*mesh.degrees, split.vpp, size)
            first = min(first, split.first, self._rules.first_violated("siblings", point))
            violated = self._first_violated_by_level(point, split, first)
            if max(violated) < self._valid:
                continue
            # The static bytes do not depend on the micro-batch, so they are computed once per mesh.
            if not static:
                layout = self.build_layout(point)
                static, step = self._memory.static_bytes(layout, split.shape)
            held = static
            if self.space.constants["cuda_graphs"]:
                held = self._memory.with_graphs(static, self.build_layout(point), split.shape)
            cell, left = self._activations(split, point)
            flights = split.shape.in_flight_at_peak(split.vpp, count)
            for level, rows in enumerate(cell.levels):
                if violated[level] == self._valid:
                    rows = self._memory.with_waiting_gradients(rows, point, level, split.shape)
                    stages = zip(held, flights, rows, strict=True)
                    peak = max(
                        fixed + flight * each + once for fixed, flight, (each, once) in stages
                    )
                    # limit - left is the size of the buffers between stages.
                    yield max(peak, step) + self._limit - left, point.with_recompute_level(level)

    def step_seconds(self, point: LayoutPoint) -> float:
        """Return the seconds per step of ``point``, as ``Survivor`` defines them."""
        seconds = self._seconds.get(point)
        if seconds is None:
            _, shape = self._splits[point.pp, point.vpp][point.split]
            count = self._micro_batches(point)
            seconds = self._mesh_times(point).step_seconds(point, shape, count)
            self._seconds[point] = seconds
        return seconds

    def least_seconds(self, point: LayoutPoint) -> float:
        """Return a lower bound of ``step_seconds`` and ``best_split_seconds``, computed quickly."""
        _, shape = self._splits[point.pp, point.vpp][point.split]
        return self._mesh_times(point).least_seconds(point, shape, self._micro_batches(point))

    def is_any_faster(self, survivors: list[Survivor], seconds: float) -> bool:
        """Return True if one of ``survivors`` takes at most ``seconds`` in this search space.

        The layouts are those of another variant of the framework. Their memory and the rules are
        not checked.
        """
        # The fastest layouts of the other variant come first, because they likely decide.
        for row in sorted(survivors):
            point = row.point._replace(split=0)
            self._stage_splits(point.pp)  # gives the splits their numbers
            if self.least_seconds(point) <= seconds and self.step_seconds(point) <= seconds:
                return True
        return False

    def best_split_seconds(self, point: LayoutPoint, seconds: float, layers: int = 0) -> float:
        """Return about the seconds per step of ``point`` with the best of all stage splits.

        ``seconds`` is the step time with its own split. In all splits, the longest stage has at
        least ``layers`` layers.
        """
        _, shape = self._splits[point.pp, point.vpp][point.split]
        times = self._mesh_times(point)
        return times.best_split_seconds(point, shape, self._micro_batches(point), seconds, layers)

    def with_split(self, point: LayoutPoint, split: PipelineSplit) -> LayoutPoint:
        """Return the layout ``point`` with ``split`` as its stage split."""
        known = [one for one, _ in self._splits[point.pp, point.vpp]]
        if split not in known:
            self._add_split(point.pp, point.vpp, split)
            known.append(split)
        return point._replace(split=known.index(split))

    def _add_split(self, pp: int, vpp: int, split: PipelineSplit) -> StageShape:
        """Give ``split`` the next number of ``LayoutPoint.split``, and return its shape."""
        classes = self._cost_model.equal_stage_groups(split)
        shape = self._shapes.get((pp, classes))
        if shape is None:
            model, schedule = self.space.problem.model, self.space.schedule
            shape = StageShape.from_classes(model, pp, classes, schedule)
            self._shapes[pp, classes] = shape
        self._splits.setdefault((pp, vpp), []).append((split, shape))
        return shape

    def _micro_batches(self, point: LayoutPoint) -> int:
        """Return the number of micro-batches per step."""
        return self.space.problem.job.global_batch // (point.micro_batch * point.dp)

    def _stage_splits(self, pp: int) -> tuple[CheckedSplit, ...]:
        """Return all splits of the layers into ``pp`` stages, checked; the result is cached."""
        found = self._splits_by_pp.get(pp)
        if found is None:
            choices = stage_choices(self.space.problem, self._cost_model.framework, pp)
            found = tuple(self._check_split(pp, vpp, split) for vpp, split in choices)
            self._splits_by_pp[pp] = found
        return found

    def _check_split(self, pp: int, vpp: int, split: PipelineSplit) -> CheckedSplit:
        """Return ``split`` with the results of the rules that read nothing but the stages.

        Rules that read the stages and the recompute level are included, with one result per level.
        """
        shape = self._add_split(pp, vpp, split)
        # Rules of the loops "level" and "stages" read only pp, vpp and the level of this point.
        rules, point = self._rules, LayoutPoint(1, 1, pp, 1, 1, 1, vpp, 1)
        levels = tuple(
            rules.first_violated("level", point.with_recompute_level(level))
            for level in range(self.space.sibling_levels)
        )
        first = rules.first_violated("stages", point)
        valid = not self._has_layout_rules and min(levels) == self._valid
        return CheckedSplit(vpp, split, shape, first, levels, valid)

    def _filter_split(self, mesh: CheckedMesh, split: CheckedSplit) -> None:
        """Filter the layouts with the parallel sizes of ``mesh`` and the stages of ``split``."""
        # Local names, because this loop runs for every combination of mesh, split and micro-batch.
        first_violated, lost, valid = self._rules.first_violated, self._lost, self._valid
        for size, count, first in mesh.batches:
            point = LayoutPoint(*mesh.degrees, split.vpp, size)
            first = min(first, split.first, first_violated("siblings", point))
            if split.valid and first < valid:
                # This rule does not read the recompute level, so it rejects all levels at once.
                lost[first] += len(split.levels)
                continue
            violated = split.levels
            if not split.valid:
                violated = self._first_violated_by_level(point, split, first)
            if max(violated) == valid:
                self._filter_siblings(mesh, split, (point, count), violated)
                continue
            # All levels violate a rule, so their memory does not matter.
            for position in violated:
                lost[position] += 1

    def _first_violated_by_level(
        self, point: LayoutPoint, split: CheckedSplit, first: int
    ) -> tuple[int, ...]:
        """Return, per recompute level, the index of the first rule that the layout violates.

        The layout is ``point`` with this recompute level. ``first`` is the index of the first
        violated rule among those that do not read the recompute level.
        """
        whole = self._rules.first_violated_by_level(point, len(split.levels))
        pairs = zip(split.levels, whole, strict=True)
        return tuple([min(first, one, two) for one, two in pairs])

    def _filter_siblings(
        self,
        mesh: CheckedMesh,
        split: CheckedSplit,
        first: tuple[LayoutPoint, int],
        violated: tuple[int, ...],
    ) -> None:
        """Keep the layout with the least recompute that is valid and fits into memory.

        Siblings are layouts that differ only in recompute. More recompute only makes a step slower,
        so all siblings after the kept one are skipped.

        Args:
            mesh: parallel sizes of the siblings.
            split: pipeline stages of the siblings.
            first: (point of the sibling with the least recompute, micro-batches per step).
            violated: index of the first violated rule of each sibling.
        """
        (point, count), lost, valid = first, self._lost, self._valid
        static = mesh.static.get(split.shape)
        if static is None:
            static = self._static_bytes(mesh, split, point)
        if not static:
            for position in violated:
                lost[position] += 1
            return
        if self.space.constants["cuda_graphs"]:
            static = self._memory.with_graphs(static, self.build_layout(point), split.shape)
        cell, left = self._activations(split, point)
        flights = split.shape.in_flight_at_peak(split.vpp, count)
        for level, rows in enumerate(cell.levels):
            if violated[level] < valid:
                lost[violated[level]] += 1
                continue
            rows = self._memory.with_waiting_gradients(rows, point, level, split.shape)
            for fixed, flight, (each, once) in zip(static, flights, rows, strict=True):
                if fixed + flight * each + once > left:
                    lost[valid] += 1
                    miss = (point, level, split.shape, static, flights[0], rows, left)
                    self._oversized.append(miss)
                    break
            else:
                # No stage exceeds the memory: this sibling is kept, and the later ones are skipped.
                lost[-1] += len(violated) - level - 1
                kept = point.with_recompute_level(level)
                seconds = self._mesh_times(kept).least_seconds(kept, split.shape, count)
                self.survivors.append(Survivor(seconds, kept, 0, True))
                return

    def _static_bytes(
        self, mesh: CheckedMesh, split: CheckedSplit, point: LayoutPoint
    ) -> tuple[float, ...]:
        """Return the memory without activations, in bytes, for each group of equal pipeline stages.

        The result is empty if these bytes already exceed the device memory.
        """
        static, step = self._memory.static_bytes(self.build_layout(point), split.shape)
        found = mesh.static[split.shape] = static if step <= self._limit else ()
        return found

    def _activations(
        self, split: CheckedSplit, point: LayoutPoint
    ) -> tuple[StageActivations, float]:
        """Return (activation bytes of one micro-batch, bytes that activations can use)."""
        tp, cp, _, _, ep, etp, vpp, size, _, _ = point
        load = self._cost_model.problem.job.busiest_rank_load(ep)
        key = (split.shape, tp, cp, etp, size, vpp if self._has_block_recompute else 0, load)
        cell = self._memory.activations.get(key)
        if cell is None:
            points = [point.with_recompute_level(level) for level in range(len(split.levels))]
            cell = self._memory.compute_activations(key, points)
        # The buffers between stages stay allocated during the whole step.
        return cell, self._limit - count_stage_buffers(split.shape.pp, vpp) * cell.stream

    def _mesh_times(self, point: LayoutPoint) -> MeshTimes:
        """Return the times that all layouts with the parallel sizes of ``point`` share."""
        sizes = point[:6]  # (tp, cp, pp, dp, ep, etp)
        times = self._times_by_sizes.get(sizes)
        if times is None:
            times = self._times_by_sizes[sizes] = self._time.times_of_mesh(point)
        return times
