"""Filter of the layout search: drop invalid and oversized layouts, bound the time of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from parc.compiler.cost.memory.micro_batches import routing_key
from parc.compiler.cost.memory.peak import EXPECTED, MemoryEnd
from parc.compiler.cost.memory.workspaces import count_stage_buffers
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.ir import PipelineSplit
from parc.compiler.ir.rule import Rule
from parc.compiler.search.enumerate_layouts import (
    LayoutPoint,
    ParallelSizes,
    make_point,
    micro_batch_choices,
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
from parc.compiler.search.timed_layouts import TimedLayouts

COVERED_BY_SIBLING = "recompute"
"""Key for the number of layouts that are left out because a sibling with less recompute fits."""


class LayoutFilter(TimedLayouts):
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
        super().__init__(cost_model, space)
        self.enumerated = 0
        self.survivors: list[Survivor] = []
        self._oversized: list[OversizedLayout] = []
        self._limit, self.end = limit_bytes, end
        self.rules = rules
        self._rules = RuleCache(cost_model.problem, rules, self.build_layout)
        self._valid = self._rules.valid
        self._lost = [0] * (self._valid + 2)
        """Layouts dropped by each rule, by the memory limit, and because of a sibling."""
        self._memory = PeakMemoryCache(
            cost_model, self.build_layout, space.constants["zero_stage"], end
        )
        self._checked: dict[int, tuple[CheckedSplit, ...]] = {}
        self._has_block_recompute = any(
            level.method == "block" for level in space.levels[: space.sibling_levels]
        )

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

    def survivors_of_variant(self, variant: int) -> list[Survivor]:
        """Return ``survivors`` as layouts of the framework variant with index ``variant``."""
        return [
            Survivor(seconds, point, variant, is_lower_bound)
            for seconds, point, _, is_lower_bound in self.survivors
        ]

    @property
    def near_misses(self) -> list[LayoutPoint]:
        """Valid layouts that do not fit, but might fit with another stage split."""
        rows = [one for one in self._oversized if one[0].pp > 1]
        return [one[0].with_recompute_level(one[1]) for one in rows if has_memory_elsewhere(one)]

    def filter_all_layouts(self) -> None:
        """Filter all layouts of the search space, and store those that pass in ``survivors``."""
        for degrees in self.space.parallel_sizes():
            splits = self._checked_splits(degrees.pp)
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
        used: set[ParallelSizes] = set()

        def may_be_smallest(peak: float) -> bool:
            # Rounding errors must not decide between layouts that need equal memory.
            return peak < least * (1 - ROUNDING)

        for point, peaks in self.valid_peaks(may_be_smallest):
            used.add(point.degrees)
            for level, peak in peaks.items():
                if may_be_smallest(peak):
                    least, found = peak, point.with_recompute_level(level)
        sizes = (size for one in used for size in one._asdict().items())
        return None if found is None else (found, frozenset(name for name, n in sizes if n > 1))

    def valid_peaks(
        self, is_needed: Callable[[float], bool] = lambda _: True
    ) -> Iterator[tuple[LayoutPoint, dict[int, float]]]:
        """Yield (point, {recompute level: peak bytes on the fullest stage}) of the valid layouts.

        Layouts that differ only in recompute are in one item. If ``is_needed`` is False for a lower
        bound of the peak, the bound takes its place.
        """
        for degrees in self.space.parallel_sizes():
            splits = self._checked_splits(degrees.pp)
            if splits:
                mesh = self._check_mesh(degrees, splits[0].vpp)
                for split in splits:
                    yield from self._valid_peaks_of_split(mesh, split, is_needed)

    def _valid_peaks_of_split(
        self, mesh: CheckedMesh, split: CheckedSplit, is_needed: Callable[[float], bool]
    ) -> Iterator[tuple[LayoutPoint, dict[int, float]]]:
        """Yield ``valid_peaks`` of the parallel sizes of ``mesh`` and the stages of ``split``."""
        cells, shape, valid = self._cells(mesh, split), split.shape, self._valid
        waits = self._memory.has_waiting_gradients
        for point, count, violated in self._siblings(mesh, split):
            if max(violated) < valid:
                continue
            static, step = self._static_bytes(mesh, shape, point)
            held = self._with_graphs(static, point, shape)
            cell, left = self._activations(cells, split, point)
            flights = shape.in_flight_at_peak(split.vpp, count)
            peaks = {}
            for level, rows in enumerate(cell.levels):
                if violated[level] < valid:
                    continue
                # limit - left is the size of the buffers between stages.
                peak = _peak_bytes(held, flights, rows, step) + self._limit - left
                # The search computes most peaks only without these gradients.
                if waits and is_needed(peak):
                    rows = self._memory.with_waiting_gradients(rows, point, level, shape)
                    peak = _peak_bytes(held, flights, rows, step) + self._limit - left
                peaks[level] = peak
            yield point, peaks

    def _checked_splits(self, pp: int) -> tuple[CheckedSplit, ...]:
        """Return all splits of the layers into ``pp`` stages, checked; the result is cached."""
        found = self._checked.get(pp)
        if found is None:
            found = tuple(self._check_split(pp, *one) for one in self.stage_splits(pp))
            self._checked[pp] = found
        return found

    def _check_split(
        self, pp: int, vpp: int, split: PipelineSplit, shape: StageShape
    ) -> CheckedSplit:
        """Return ``split`` with the results of the rules that read nothing but the stages.

        Rules that read the stages and the recompute level are included, with one result per level.
        """
        # Rules of the loops "level" and "stages" read only pp, vpp and the level of this point.
        rules, point = self._rules, LayoutPoint(1, 1, pp, 1, 1, 1, vpp, 1)
        first = rules.first_violated("stages", point)
        by_level = rules.first_violated_by_level("level", point, self.space.sibling_levels)
        buffers = count_stage_buffers(pp, vpp)
        return CheckedSplit(vpp, split, shape, tuple(min(first, one) for one in by_level), buffers)

    def _siblings(
        self, mesh: CheckedMesh, split: CheckedSplit
    ) -> Iterator[tuple[LayoutPoint, int, tuple[int, ...]]]:
        """Yield groups of layouts that differ only in recompute.

        Each item is (layout with the least recompute, micro-batches per step, index of the first
        rule that the layout with each recompute level violates).
        """
        rules, number = self._rules, len(split.levels)
        least = LayoutPoint(*mesh.degrees, split.vpp, 1)
        first = rules.first_violated("split", least)
        by_level = rules.first_violated_by_level("split and level", least, number)
        shared = [min(first, *pair) for pair in zip(split.levels, by_level, strict=True)]
        has_layout_rules = bool(rules.loops["layout"])
        for size, count, first in mesh.batches:
            point = make_point((*mesh.degrees, split.vpp, size, 0, 0))
            first = min(first, rules.first_violated("siblings", point))
            violated = tuple([first if first < one else one for one in shared])
            if has_layout_rules:
                own = rules.first_violated_by_level("layout", point, number)
                violated = tuple(map(min, violated, own))
            yield point, count, violated

    def _filter_split(self, mesh: CheckedMesh, split: CheckedSplit) -> None:
        """Filter the layouts with the parallel sizes of ``mesh`` and the stages of ``split``."""
        lost, valid, cells = self._lost, self._valid, None
        for point, count, violated in self._siblings(mesh, split):
            if max(violated) == valid:
                static, step = self._static_bytes(mesh, split.shape, point)
                if step <= self._limit:
                    cells = self._cells(mesh, split) if cells is None else cells
                    cell, left = self._activations(cells, split, point)
                    held = self._with_graphs(static, point, split.shape)
                    self._filter_siblings(
                        mesh, split, (point, count), violated, (cell.levels, held, left)
                    )
                    continue
            # No level is valid and fits, so that the activations do not matter.
            for position in violated:
                lost[position] += 1

    def _filter_siblings(
        self,
        mesh: CheckedMesh,
        split: CheckedSplit,
        first: tuple[LayoutPoint, int],
        violated: tuple[int, ...],
        memory: tuple[tuple[tuple[tuple[float, float], ...], ...], tuple[float, ...], float],
    ) -> None:
        """Keep the layout with the least recompute that is valid and fits into memory.

        Siblings are layouts that differ only in recompute. More recompute only makes a step slower,
        so all siblings after the kept one are skipped.

        Args:
            mesh: parallel sizes of the siblings.
            split: pipeline stages of the siblings.
            first: (point of the sibling with the least recompute, micro-batches per step).
            violated: index of the first violated rule of each sibling.
            memory: (``StageActivations.levels``, bytes per group of equal stages without
                activations, bytes that activations can use).
        """
        (point, count), (levels, static, left) = first, memory
        lost, valid, shape = self._lost, self._valid, split.shape
        flights = shape.in_flight_at_peak(split.vpp, count)
        for level, rows in enumerate(levels):
            if violated[level] < valid:
                lost[violated[level]] += 1
                continue
            if self._memory.has_waiting_gradients:
                rows = self._memory.with_waiting_gradients(rows, point, level, shape)
            for fixed, flight, (each, once) in zip(static, flights, rows, strict=True):
                if fixed + flight * each + once > left:
                    lost[valid] += 1
                    miss = (point, level, shape, static, flights[0], rows, left)
                    self._oversized.append(miss)
                    break
            else:
                # No stage exceeds the memory: this sibling is kept, and the later ones are skipped.
                lost[-1] += len(violated) - level - 1
                kept = point.with_recompute_level(level)
                mesh.times = times = mesh.times or self.mesh_times(kept)
                seconds = times.least_seconds(kept, shape, count)
                self.survivors.append(Survivor(seconds, kept, 0, True))
                return

    def _static_bytes(
        self, mesh: CheckedMesh, shape: StageShape, point: LayoutPoint
    ) -> tuple[tuple[float, ...], float]:
        """Return ``PeakMemoryCache.static_bytes`` of layout ``point``; cached.

        The layout has the parallel sizes of ``mesh`` and the stages ``shape``.
        """
        key = (shape, point.vpp if self._memory.gathers_ahead else 0)
        found = mesh.static.get(key)
        if found is None:
            found = self._memory.static_bytes(self.build_layout(point), shape)
            mesh.static[key] = found
        return found

    def _with_graphs(
        self, static: tuple[float, ...], point: LayoutPoint, shape: StageShape
    ) -> tuple[float, ...]:
        """Return ``static``, the bytes without activations, and those of all CUDA graphs."""
        if not self.space.constants["cuda_graphs"]:
            return static
        return self._memory.with_graphs(static, self.build_layout(point), shape)

    def _cells(self, mesh: CheckedMesh, split: CheckedSplit) -> dict[int, StageActivations]:
        """Return {micro-batch size: activation bytes} of the layouts with these sizes and stages.

        Bytes of other micro-batch sizes are added later. vpp has an effect with block recompute
        only.
        """
        tp, cp, _, _, ep, etp = mesh.degrees
        vpp = split.vpp if self._has_block_recompute else 0
        key = (split.shape, tp, cp, etp, vpp, *routing_key(self._cost_model, ep))
        return self._memory.activations.setdefault(key, {})

    def _activations(
        self, cells: dict[int, StageActivations], split: CheckedSplit, point: LayoutPoint
    ) -> tuple[StageActivations, float]:
        """Return (activation bytes of one micro-batch, bytes that activations can use).

        ``cells`` is the result of ``_cells``, to which the activation bytes are added.
        """
        cell = cells.get(point.micro_batch)
        if cell is None:
            cell = self._memory.compute_activations(split.shape, point, len(split.levels))
            cells[point.micro_batch] = cell
        # The buffers between stages stay allocated during the whole step.
        return cell, self._limit - split.buffers * cell.stream


def _peak_bytes(
    static: tuple[float, ...],
    flights: Sequence[float],
    rows: tuple[tuple[float, float], ...],
    step: float,
) -> float:
    """Return the peak bytes of the fullest stage without the buffers between stages.

    ``step`` is the memory of the optimizer step, which can be the peak.
    """
    stages = zip(static, flights, rows, strict=True)
    return max(step, *[fixed + flight * each + once for fixed, flight, (each, once) in stages])
