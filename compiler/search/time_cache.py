"""Cache for the step time of many layouts, which is the result of ``cost.step.step_time``.

Terms that several layouts share are computed once. The time of one layer depends on the micro-batch
size, on tp, cp, ep and etp, and on the links that their process groups span; the time of a stage
depends in addition on the stage shape and the recompute level. The gradient traffic depends on the
mesh and the stage shape. Only the last lines of ``MeshTimes.step_seconds`` run per layout.
``step_time`` adds its terms in a different order, so the last digits differ. Therefore the
search evaluates its best layouts again with ``step_time``.
"""

from __future__ import annotations

from collections.abc import Hashable
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
from parc.compiler.cost.step.layer_time import output_head_seconds
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
from parc.compiler.search.work_counts import WorkCounts

BLOCK = -1
"""Key of ``MicroBatchTimes.repeats`` for block recompute, whose levels differ only in how many
layers are recomputed."""


LayerSeconds = tuple[tuple[float, ...], tuple[float, ...]]
"""(computation, total with recompute) of one layer of each kind. With block recompute, the totals
are without recompute, and those of the recompute of each kind follow."""
CriticalPath = tuple[float, float, int]
"""(seconds per micro-batch, seconds per step, hops) of ``unequal_chunks.CriticalPath``; a plain
tuple, because a search computes many."""


@dataclass(slots=True)
class MicroBatchTimes:
    """Times in seconds that layouts share if their layers take equally long.

    Such layouts have the same micro-batch size, tp, cp, ep and etp, and their process groups span
    equal links.
    """

    head: float
    repeats: dict[int, LayerSeconds] = field(default_factory=dict)
    """Recompute level or ``BLOCK`` -> times of the layers."""
    whole: dict[tuple[tuple[tuple[int, ...], int], int], float] = field(default_factory=dict)
    """(``StageShape.whole``, recompute level) -> least time of all stages together."""
    paces: dict[tuple[StageShape, int, int], tuple[float, float, float]] = field(
        default_factory=dict
    )
    """(shape, recompute level, vpp) -> (time of the slowest stage, computation in that stage, total
    time of all stages)."""
    hops: dict[int, float] = field(default_factory=dict)
    """Distance between neighboring pipeline stages, in ranks -> exposed seconds of one hop."""
    paths: dict[tuple[StageShape, int, int], list[CriticalPath]] = field(default_factory=dict)
    """(shape, recompute level, vpp) -> lower bounds of the step time with interleaving."""
    idle: dict[tuple[int, int], float] = field(default_factory=dict)
    """(pp, recompute level) -> fraction of the 1F1B bubble that remains with the schedule."""


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
        self.is_block = self.work.is_block
        self._times_by_layer: dict[Hashable, dict[int, MicroBatchTimes]] = {}

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
        """Return a new entry of the cache for the micro-batch size of ``point``.

        The entry contains the time of the output head. The times of layers are added later.
        """
        return MicroBatchTimes(output_head_seconds(self.cost_model, self.build(point)))

    def layer_seconds(self, row: MicroBatchTimes, point: LayoutPoint) -> LayerSeconds:
        """Return the times of one layer of each kind, with the recompute of layout ``point``."""
        is_block = self.is_block[point.level]
        key = BLOCK if is_block else point.level
        timed = row.repeats.get(key)
        if timed is None:
            layout, kinds = self.build(point), self.cost_model.problem.model.kinds
            layers = [cached_layer_time(self.cost_model, layout, kind) for kind in kinds]
            again = tuple(
                recompute_seconds(self.cost_model, layout, layer, kind)
                for layer, kind in zip(layers, kinds, strict=True)
            )
            computing = tuple(one.compute for one in layers)
            totals = tuple(one.total for one in layers)
            totals = totals + again if is_block else tuple(map(add, totals, again))
            timed = row.repeats[key] = computing, totals
        return timed


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

    def step_seconds(self, point: LayoutPoint, shape: StageShape, micro_batches: int) -> float:
        """Return the seconds per step of layout ``point`` with the pipeline stages ``shape``."""
        row = self._times_of_micro_batch(point)
        slowest, compute, whole = self.pace(point, shape)
        fold = self._folds.get(shape)
        if fold is None:
            fold = self._folds[shape] = self._gradient_and_optimizer_times(point)
        traffic, optimizer = fold
        # Some frameworks exchange gradients after every micro-batch, others once per step.
        rounds = micro_batches if self._sharded else 1
        interleaved = shape.schedule in (None, "interleaved")
        vpp = point.vpp
        chunks = (shape.pp, vpp if interleaved else 1, micro_batches)
        exposed = exposed_seconds_of_step(traffic, self._hidden * slowest, rounds, chunks)
        seconds = micro_batches * (slowest + self._wait * compute) + exposed + optimizer
        seconds += self._copy_seconds(point, shape, micro_batches)
        if shape.pp == 1:
            return seconds
        hop = row.hops.get(self._stride)
        if hop is None:
            layout = self._batch.build(point)
            hop = row.hops[self._stride] = stage_boundary_seconds(self._batch.cost_model, layout)
        if interleaved and is_in_groups_of_ranks(shape.pp, vpp, micro_batches):
            key = (shape, point.level, vpp)
            paths = row.paths.get(key)
            if paths is None:
                paths = row.paths[key] = self._critical_paths(row, point, shape)
            pipeline = max([micro_batches * each + once + hops * hop for each, once, hops in paths])
            return seconds + pipeline - micro_batches * slowest
        idle = row.idle.get((shape.pp, point.level))
        if idle is None:
            idle = row.idle[shape.pp, point.level] = bubble_fraction_of_1f1b(
                self._batch.build(point)
            )
        # The 1F1B bubble is one micro-batch on each of the other stages, and vpp virtual stages
        # divide this time by vpp (Narayanan et al. 2021, arXiv:2104.04473, section 2.2).
        bubble = idle * (whole - slowest) / vpp
        hops = waited_hops(self._batch.cost_model, shape.pp, vpp, micro_batches)
        return seconds + bubble + hop * hops

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
        row = self._times_of_micro_batch(point)
        key = (shape.whole, point.level)
        whole = row.whole.get(key)
        if whole is None:
            whole = row.whole[key] = self._least_whole_seconds(row, point, shape)
        return micro_batches * whole / shape.pp * (1 - ROUNDING)

    def _times_of_micro_batch(self, point: LayoutPoint) -> MicroBatchTimes:
        """Return the times that layouts with the micro-batch size of ``point`` share."""
        row = self._rows.get(point.micro_batch)
        if row is None:
            row = self._rows[point.micro_batch] = self._batch.new_micro_batch_times(point)
        return row

    def _least_whole_seconds(
        self, row: MicroBatchTimes, point: LayoutPoint, shape: StageShape
    ) -> float:
        """Return the seconds per micro-batch of all stages together, at least.

        Block recompute, which repeats a part of the layers, is left out.
        """
        counts, heads = shape.whole
        _, totals = self._batch.layer_seconds(row, point)
        seconds: float = heads * row.head + sum(map(mul, counts, totals))
        return seconds

    def pace(self, point: LayoutPoint, shape: StageShape) -> tuple[float, float, float]:
        """Return (time of the slowest stage, computation in that stage, total time of all stages).

        All three are in seconds per micro-batch, for layout ``point`` with the stages ``shape``.
        """
        row, is_block = self._rows[point.micro_batch], self._batch.is_block[point.level]
        key = (shape, point.level, point.vpp if is_block else 1)
        pace = row.paces.get(key)
        if pace is None:
            pace = row.paces[key] = self._stage_seconds(row, point, shape)
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
        slowest, _, _ = self.pace(point, shape)
        least, balanced = self._least_slowest_seconds(point, shape, layers)
        paths = self._rows[point.micro_batch].paths.get((shape, point.level, point.vpp))
        if paths is None:
            return seconds - micro_batches * (slowest - balanced)
        # With interleaving, chunks of other lengths may shorten the bubble too.
        pipeline = max([micro_batches * each + once for each, once, _ in paths])
        without_bubble = seconds - pipeline + micro_batches * balanced
        return max(seconds - micro_batches * (slowest - least), without_bubble)

    def _least_slowest_seconds(
        self, point: LayoutPoint, shape: StageShape, layers: int
    ) -> tuple[float, float]:
        """Return the least seconds per micro-batch of the slowest stage for any division of layers.

        The first value is the least if layers and output heads could be on any stage, the second if
        the heads stay on their ranks. The longest stage has at least ``layers`` layers.
        """
        _, _, whole = self.pace(point, shape)
        least, row = whole / shape.pp, self._rows[point.micro_batch]
        if self._batch.is_block[point.level]:
            return least, least
        counts, _ = shape.whole
        _, each = self._batch.layer_seconds(row, point)
        for count, seconds in zip(counts, each, strict=True):
            # Some stage has at least the mean number of layers, rounded up.
            least = max(least, ceil(count / shape.pp) * seconds)
        least = max(least, layers * min(each))
        heads = [(count * row.head, ranks) for _, count, ranks in shape.work]
        return least, seconds_to_hold(sum(counts), min(each), heads, least)

    def _gradient_and_optimizer_times(
        self, point: LayoutPoint
    ) -> tuple[tuple[float, float, float], float]:
        """Return the times of one gradient exchange, and the seconds that are spent once per step.

        The times of the exchange are the result of ``data_parallel_round_seconds``. Spent once per
        step are the optimizer step and the final reduction of gradients.
        """
        cost_model, layout = self._batch.cost_model, self._batch.build(point)
        once = optimizer_seconds(cost_model, layout) + final_reduce_seconds(cost_model, layout)
        return data_parallel_round_seconds(cost_model, layout), once

    def _stage_seconds(
        self, row: MicroBatchTimes, point: LayoutPoint, shape: StageShape
    ) -> tuple[float, float, float]:
        """Return (time of the slowest stage, computation in that stage, total time of all stages).

        All three are in seconds per micro-batch.
        """
        computing, totals = self._batch.layer_seconds(row, point)
        slowest, busy, whole = -1.0, 0.0, 0.0
        for counts, heads, ranks in self._batch.work.of_stages(point, shape):
            # A sum over a map, because a loop over the kinds takes twice as long.
            seconds = heads * row.head
            total = seconds + sum(map(mul, counts, totals))
            whole += ranks * total
            if total > slowest:
                slowest, busy = total, seconds + sum(map(mul, counts, computing))
        return slowest, busy, whole

    def _critical_paths(
        self, row: MicroBatchTimes, point: LayoutPoint, shape: StageShape
    ) -> list[CriticalPath]:
        """Return the lower bounds of the step time of layout ``point``, which is interleaved.

        They are those of ``critical_paths``.
        """
        each = (*self._batch.layer_seconds(row, point)[1], row.head)
        slowest, paths = -1.0, list[CriticalPath]()
        for own, before, without, hops, more_hops in self._batch.work.of_paths(point, shape):
            whole = sum(map(mul, own, each))
            if whole > slowest:
                slowest = whole
                paths.append((whole, sum(map(mul, before, each)), hops))
                paths.append((whole, sum(map(mul, without, each)), more_hops))
        return paths


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
