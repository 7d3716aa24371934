"""Cache for the step time of many layouts, which is the result of ``cost.step.step_time``.

Terms that several layouts share are computed once. The time of one layer depends on the micro-batch
size, on tp, cp, ep and etp, and on the links that their process groups span; the time of a stage
depends in addition on the stage shape and the recompute level. The gradient traffic depends on the
mesh and the stage shape. Only the loop of ``MeshTimes.step_seconds`` runs per layout.
``step_time`` adds its terms in a different order, so the last digits differ. Therefore the
search evaluates its best layouts again with ``step_time``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from operator import add, mul

from parc.compiler.cost.schedules.unequal_chunks import is_in_groups_of_ranks
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import (
    data_parallel_round_seconds,
    exchanges_per_micro_batch,
    exposed_seconds_of_step,
    final_reduce_seconds,
    gradient_overlap_fraction,
)
from parc.compiler.cost.step.layer_time import LayerTime, output_head_seconds
from parc.compiler.cost.step.stage_time import cached_layer_time, recompute_seconds
from parc.compiler.cost.step.step_time import (
    bubble_fraction_of_1f1b,
    optimizer_seconds,
    stage_boundary_seconds,
    straggler_factor,
    waited_hops,
)
from parc.compiler.cost.step.weight_copies import weight_copy_seconds
from parc.compiler.ir import Layout, Recompute
from parc.compiler.search.enumerate_layouts import BuildLayout, LayoutPoint
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.survivors import ROUNDING
from parc.compiler.search.work_counts import RankPaths, WorkCounts


@dataclass(slots=True)
class LevelTimes:
    """Times in seconds of the components of ``Work`` with one recompute level."""

    computing: tuple[float, ...]
    totals: tuple[float, ...]
    """Times with communication and recompute. With block recompute, they are without recompute, and
    those of the recompute of each layer kind follow."""
    paces: dict[tuple[StageShape, int], tuple[float, float, float]] = field(default_factory=dict)
    """(shape, vpp) -> (time of the slowest stage, computation in that stage, total time of all
    stages). vpp is 1 without block recompute, because it then has no effect."""


@dataclass(slots=True)
class MicroBatchTimes:
    """Times in seconds that layouts share if their layers take equally long.

    Such layouts have the same micro-batch size, tp, cp, ep and etp, and their process groups span
    equal links.
    """

    head: float
    layers: tuple[LayerTime, ...]
    """Times of one layer of each kind, without recompute."""
    levels: dict[int, LevelTimes] = field(default_factory=dict)
    """Recompute level -> times with it."""
    hops: dict[int, float] = field(default_factory=dict)
    """Distance between neighboring pipeline stages, in ranks -> exposed seconds of one hop."""


class StepTimeCache:
    """Cache of the time terms of one layout search."""

    def __init__(
        self, cost_model: CostModel, build: BuildLayout, levels: tuple[Recompute, ...]
    ) -> None:
        """Create an empty cache.

        ``build`` returns the layout for a ``LayoutPoint``, whose level is an index of ``levels``.
        """
        self.cost_model, self.build = cost_model, build
        self.work = WorkCounts(cost_model, build, levels)
        self._times_by_layer: dict[Hashable, dict[int, MicroBatchTimes]] = {}
        # (pp, recompute level) -> fraction of the 1F1B bubble that remains with the schedule
        self._idle: dict[tuple[int, int], float] = {}

    def times_of_mesh(self, point: LayoutPoint) -> MeshTimes:
        """Return the times that all layouts with the parallel sizes of ``point`` share."""
        layout = self.build(point)
        groups = self.cost_model.group_spans(layout)
        # Meshes that differ only in pp and dp share layer times if their groups span equal links.
        sizes = (layout.tp, layout.cp, layout.ep, layout.etp)
        spans = (groups.tp, groups.cp_stride, groups.ep, groups.etp, groups.gtp, groups.egtp)
        # With shared weights, a single stage also gathers the embedding.
        alone = layout.gtp > 1 and layout.pp == 1
        rows = self._times_by_layer.setdefault((sizes, spans, alone), {})
        return MeshTimes(self, layout, rows, groups.pp_stride)

    def new_micro_batch_times(self, point: LayoutPoint) -> MicroBatchTimes:
        """Return a new entry of the cache for the micro-batch size of ``point``."""
        cost_model, layout = self.cost_model, self.build(point)
        kinds = cost_model.problem.model.kinds
        layers = tuple([cached_layer_time(cost_model, layout, kind) for kind in kinds])
        return MicroBatchTimes(output_head_seconds(cost_model, layout), layers)

    def times_of_level(self, row: MicroBatchTimes, point: LayoutPoint) -> LevelTimes:
        """Return the times of ``row`` with the recompute level of layout ``point``."""
        timed = row.levels.get(point.level)
        if timed is None:
            layout, kinds = self.build(point), self.cost_model.problem.model.kinds
            again = [
                recompute_seconds(self.cost_model, layout, layer, kind)
                for layer, kind in zip(row.layers, kinds, strict=True)
            ]
            computing = [layer.compute for layer in row.layers]
            totals = [layer.total for layer in row.layers]
            is_block = self.work.is_block[point.level]
            totals = totals + again if is_block else list(map(add, totals, again))
            timed = LevelTimes((row.head, *computing), (row.head, *totals))
            row.levels[point.level] = timed
        return timed

    def idle_fraction(self, point: LayoutPoint) -> float:
        """Return the fraction of the 1F1B bubble that remains with the schedule of ``point``."""
        key = (point.pp, point.level)
        idle = self._idle.get(key)
        if idle is None:
            idle = self._idle[key] = bubble_fraction_of_1f1b(self.build(point))
        return idle


class MeshTimes:
    """Times that all layouts with the same parallel sizes share."""

    def __init__(
        self, batch: StepTimeCache, layout: Layout, rows: dict[int, MicroBatchTimes], stride: int
    ) -> None:
        """Create a cache of the times that all layouts with the parallel sizes of ``layout`` share.

        Args:
            batch: cache of the whole search.
            layout: any layout with these parallel sizes.
            rows: times by micro-batch size. Parallel sizes whose process groups span equal links
                use the same dictionary.
            stride: distance between neighboring pipeline stages, in ranks.
        """
        self._batch, self._rows, self._stride = batch, rows, stride
        # Extra time per second of computation, because all ranks wait for the slowest host.
        self._wait = straggler_factor(batch.cost_model, layout) - 1.0
        self._hidden = gradient_overlap_fraction(batch.cost_model)
        self._sharded = exchanges_per_micro_batch(batch.cost_model, layout)
        # (stages, whether there are several micro-batches) -> seconds per micro-batch
        self._copies: dict[tuple[StageShape, bool], float] = {}
        self._folds: dict[StageShape, tuple[tuple[float, float, float], float]] = {}

    def step_seconds(
        self, point: LayoutPoint, shape: StageShape, micro_batches: int, levels: Iterable[int]
    ) -> list[float]:
        """Return the seconds per step of layout ``point`` with each of the recompute ``levels``.

        The layout has the pipeline stages ``shape``.
        """
        batch, row, vpp = self._batch, self._times_of_micro_batch(point), point.vpp
        interleaved = shape.schedule in (None, "interleaved")
        is_by_chunk = interleaved and is_in_groups_of_ranks(shape.pp, vpp, micro_batches)
        traffic, once = self._gradient_and_optimizer_times(point, shape)
        once += self._copy_seconds(point, shape, micro_batches)
        hop = self._hop_seconds(row, point)
        hops = waited_hops(batch.cost_model, shape.pp, vpp, micro_batches)
        # Some frameworks exchange gradients after every micro-batch, others once per step.
        rounds = micro_batches if self._sharded else 1
        chunks = (shape.pp, vpp if interleaved else 1, micro_batches)
        found = []
        for level in levels:
            point = point.with_recompute_level(level)
            timed = batch.times_of_level(row, point)
            slowest, compute, whole = self._pace(timed, point, shape)
            if is_by_chunk:
                paths = batch.work.of_paths(point, shape)
                seconds = longest_path_seconds(paths, timed.totals, micro_batches, hop)
            else:
                # The 1F1B bubble is one micro-batch on each of the other stages, and vpp virtual
                # stages divide this time by vpp (Narayanan et al. 2021, arXiv:2104.04473, section
                # 2.2).
                bubble = batch.idle_fraction(point) * (whole - slowest) / vpp
                seconds = micro_batches * slowest + bubble + hop * hops
            exposed = exposed_seconds_of_step(traffic, self._hidden * slowest, rounds, chunks)
            found.append(seconds + micro_batches * self._wait * compute + exposed + once)
        return found

    def _hop_seconds(self, row: MicroBatchTimes, point: LayoutPoint) -> float:
        """Return the exposed seconds of one hop between neighboring pipeline stages."""
        if point.pp == 1:
            return 0.0
        hop = row.hops.get(self._stride)
        if hop is None:
            layout = self._batch.build(point)
            hop = row.hops[self._stride] = stage_boundary_seconds(self._batch.cost_model, layout)
        return hop

    def _copy_seconds(self, point: LayoutPoint, shape: StageShape, micro_batches: int) -> float:
        """Return the seconds per step of a rank's copies of weights and gradients."""
        key = (shape, micro_batches > 1)
        each = self._copies.get(key)
        if each is None:
            layout = self._batch.build(point)
            whole = weight_copy_seconds(self._batch.cost_model, layout, micro_batches)
            each = self._copies[key] = whole / micro_batches
        return micro_batches * each

    def least_seconds(self, point: LayoutPoint, shape: StageShape, micro_batches: int) -> float:
        """Return a lower bound of ``step_seconds`` and ``best_split_seconds``.

        The bound is the time of all micro-batches if the ranks divided the work equally.
        """
        timed = self._batch.times_of_level(self._times_of_micro_batch(point), point)
        # Block recompute, which repeats a part of the layers, is left out.
        whole: float = sum(map(mul, shape.whole, timed.totals))
        return micro_batches * whole / shape.pp * (1 - ROUNDING)

    def _times_of_micro_batch(self, point: LayoutPoint) -> MicroBatchTimes:
        """Return the times that layouts with the micro-batch size of ``point`` share."""
        row = self._rows.get(point.micro_batch)
        if row is None:
            row = self._rows[point.micro_batch] = self._batch.new_micro_batch_times(point)
        return row

    def _pace(
        self, timed: LevelTimes, point: LayoutPoint, shape: StageShape
    ) -> tuple[float, float, float]:
        """Return (time of the slowest stage, computation in that stage, total time of all stages).

        All three are in seconds per micro-batch, for layout ``point`` with the stages ``shape``.
        """
        work = self._batch.work
        key = (shape, point.vpp if work.is_block[point.level] else 1)
        pace = timed.paces.get(key)
        if pace is None:
            slowest, most, whole = -1.0, shape.whole, 0.0
            for one, ranks in work.of_stages(point, shape):
                # A sum over a map, because a loop over the kinds takes twice as long.
                seconds = sum(map(mul, one, timed.totals))
                whole += ranks * seconds
                if seconds > slowest:
                    slowest, most = seconds, one
            pace = timed.paces[key] = slowest, sum(map(mul, most, timed.computing)), whole
        return pace

    def best_split_seconds(
        self, point: LayoutPoint, shape: StageShape, micro_batches: int, seconds: float, layers: int
    ) -> float:
        """Return about the seconds per step of layout ``point`` with the best of all stage splits.

        Args:
            point: layout whose step takes ``seconds`` with its own stages ``shape``.
            shape: stages of one split. Output heads stay on their ranks.
            micro_batches: number of micro-batches per step.
            seconds: step time of ``point``.
            layers: the longest stage has at least this number of layers.
        """
        interleaved = shape.schedule in (None, "interleaved")
        timed = self._batch.times_of_level(self._times_of_micro_batch(point), point)
        slowest, _, _ = self._pace(timed, point, shape)
        least, balanced = self._least_slowest_seconds(point, shape, layers)
        if not (interleaved and is_in_groups_of_ranks(shape.pp, point.vpp, micro_batches)):
            return seconds - micro_batches * (slowest - balanced)
        # With interleaving, chunks of other lengths may shorten the bubble too.
        paths = self._batch.work.of_paths(point, shape)
        pipeline = longest_path_seconds(paths, timed.totals, micro_batches, 0.0)
        without_bubble = seconds - pipeline + micro_batches * balanced
        return max(seconds - micro_batches * (slowest - least), without_bubble)

    def _least_slowest_seconds(
        self, point: LayoutPoint, shape: StageShape, layers: int
    ) -> tuple[float, float]:
        """Return the least seconds per micro-batch of the slowest stage for any division of layers.

        The first value is the least if layers and output heads could be on any stage, the second if
        the heads stay on their ranks. The longest stage has at least ``layers`` layers.
        """
        timed = self._batch.times_of_level(self._times_of_micro_batch(point), point)
        _, _, whole = self._pace(timed, point, shape)
        least = whole / shape.pp
        if self._batch.work.is_block[point.level]:
            return least, least
        head, *each = timed.totals
        counts = shape.whole[1:]
        for count, seconds in zip(counts, each, strict=True):
            # Some stage has at least the mean number of layers, rounded up.
            least = max(least, ceil(count / shape.pp) * seconds)
        least = max(least, layers * min(each))
        heads = [(work[0] * head, ranks) for work, ranks in shape.work]
        return least, seconds_to_hold(sum(counts), min(each), heads, least)

    def _gradient_and_optimizer_times(
        self, point: LayoutPoint, shape: StageShape
    ) -> tuple[tuple[float, float, float], float]:
        """Return the times of one gradient exchange, and the seconds that are spent once per step.

        The times of the exchange are the result of ``data_parallel_round_seconds``. Spent once per
        step are the optimizer step and the final reduction of gradients.
        """
        found = self._folds.get(shape)
        if found is None:
            cost_model, layout = self._batch.cost_model, self._batch.build(point)
            once = optimizer_seconds(cost_model, layout) + final_reduce_seconds(cost_model, layout)
            found = self._folds[shape] = data_parallel_round_seconds(cost_model, layout), once
        return found


def longest_path_seconds(
    paths: Iterable[RankPaths], seconds: Sequence[float], micro_batches: int, hop: float
) -> float:
    """Return the time in seconds of the longest of the ``critical_paths`` of a step.

    Args:
        paths: work of the paths, last rank first.
        seconds: time of each component of the work.
        micro_batches: number of micro-batches per step.
        hop: seconds of a hop between stages.
    """
    slowest, longest = -1.0, 0.0
    for own, before, without, hops, more_hops in paths:
        whole = sum(map(mul, own, seconds))
        if whole > slowest:
            slowest = whole
            first = sum(map(mul, before, seconds)) + hops * hop
            second = sum(map(mul, without, seconds)) + more_hops * hop
            longest = max(longest, micro_batches * whole + max(first, second))
    return longest


def seconds_to_hold(
    layers: int, each: float, heads: list[tuple[float, int]], least: float
) -> float:
    """Return the least seconds, from ``least`` on, in which the ranks compute ``layers`` layers.

    A layer takes ``each`` seconds. ``heads`` contains (seconds of output heads, number of ranks).
    """
    while True:
        # Rounding errors must not cost a layer.
        fitting = [floor((least - head) / each + ROUNDING) for head, _ in heads]
        if sum(max(0, n) * ranks for n, (_, ranks) in zip(fitting, heads, strict=True)) >= layers:
            return least
        # With any more seconds, one rank more has one more layer.
        least = min(head + (n + 1) * each for n, (head, _) in zip(fitting, heads, strict=True))
