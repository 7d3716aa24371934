"""Step seconds of many layouts: equal to ``step_time``, with shared parts computed once.

The time of one layer depends on tp, cp, ep, etp, the span of their groups (together: a lane) and
the micro-batch. The time of a stage depends on its lane, its shape and the recompute level.
Gradient traffic depends on the mesh and the shape. Only the last lines of ``MeshTimes.seconds``
run per layout. Sums are added in another order than in ``step_time``, so the last digits differ;
therefore the search evaluates its best layouts again with ``step_time``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.gradients import (
    dp_traffic,
    exchanges_per_micro_batch,
    exposed_rounds,
    final_reduce_seconds,
    gradient_window,
)
from parc.compiler.cost.step.layer_time import (
    LayerTime,
    head_seconds,
    recompute_seconds,
)
from parc.compiler.cost.step.step_time import (
    bubble_share,
    exposed_hops,
    hop_seconds,
    optimizer_seconds,
    shared_layer_time,
    straggling,
)
from parc.compiler.ir import LayerKind, Layout
from parc.compiler.search.enumerate_layouts import BuildLayout, Point
from parc.compiler.search.stage_shapes import StageShape

NONE = (0.0, 0.0)


@dataclass(slots=True)
class LaneTimes:
    """Times of one micro-batch size on one lane, in seconds."""

    head: float
    layers: dict[LayerKind, LayerTime] = field(default_factory=dict)
    repeats: dict[tuple[LayerKind, int, int], tuple[float, float]] = field(default_factory=dict)
    """(kind, recompute level, chunks) -> (compute, total with recompute) of one layer."""
    paces: dict[tuple[StageShape, int, int], tuple[float, float, float]] = field(
        default_factory=dict
    )
    """(shape, recompute level, vpp) -> (slowest stage, its compute, sum of all stages)."""
    hops: dict[int, float] = field(default_factory=dict)
    """Rank stride between pipeline stages -> exposed seconds of one hop."""
    idle: dict[tuple[int, int], float] = field(default_factory=dict)
    """(pp, recompute level) -> share of the 1F1B bubble that the schedule leaves."""


class TimeBatch:
    """Cache of the time terms of one search."""

    def __init__(self, pricing: Pricing, build: BuildLayout) -> None:
        """``build`` returns the layout of a point, for formulas that read a whole layout."""
        self.pricing, self.build = pricing, build
        self.kinds = pricing.problem.model.kinds
        self._lanes: dict[Hashable, dict[int, LaneTimes]] = {}
        self._heads: dict[tuple[int, int, int], float] = {}

    def mesh(self, point: Point) -> MeshTimes:
        """Return the times of the mesh of ``point``."""
        layout = self.build(point)
        groups = self.pricing.groups(layout)
        lane = (layout.tp, layout.cp, layout.ep, layout.etp)
        reach = (groups.tp, groups.cp_stride, groups.ep, groups.etp)
        rows = self._lanes.setdefault((lane, reach), {})
        return MeshTimes(self, layout, rows, groups.pp_stride)

    def row(self, point: Point) -> LaneTimes:
        """Return a row for the micro-batch of ``point``, without layer times yet."""
        key = (point.tp, point.cp, point.micro_batch)
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = head_seconds(self.pricing, self.build(point))
        return LaneTimes(head)


class MeshTimes:
    """Times that the layouts of one mesh share."""

    def __init__(
        self, batch: TimeBatch, layout: Layout, rows: dict[int, LaneTimes], stride: int
    ) -> None:
        """``rows``: times of its lane by micro-batch; ``stride``: ranks between pipeline stages."""
        self._batch, self._rows, self._stride = batch, rows, stride
        self._wait = straggling(batch.pricing, layout) - 1.0
        self._hidden = gradient_window(batch.pricing)
        # Block recompute repeats layers per chunk, so its time depends on pp and vpp.
        pinned = batch.pricing.problem.pins.recompute
        self._block = pinned is not None and pinned.method == "block"
        self._sharded = exchanges_per_micro_batch(batch.pricing, layout)
        self._folds: dict[StageShape, tuple[tuple[float, float, float], float]] = {}

    def seconds(self, point: Point, shape: StageShape, micro_batches: int) -> float:
        """Return the step seconds of ``point``, whose stages have ``shape``."""
        row = self._rows.get(point.micro_batch)
        if row is None:
            row = self._rows[point.micro_batch] = self._batch.row(point)
        key = (shape, point.level, point.vpp if self._block else 1)
        pace = row.paces.get(key)
        if pace is None:
            pace = row.paces[key] = self._pace(row, point, shape)
        fold = self._folds.get(shape)
        if fold is None:
            fold = self._folds[shape] = self._fold(point)
        slowest, compute, whole = pace
        traffic, optimizer = fold
        rounds = micro_batches if self._sharded else 1
        exposed = exposed_rounds(traffic, self._hidden * slowest, rounds)
        seconds = micro_batches * (slowest + self._wait * compute) + exposed + optimizer
        if shape.pp == 1:
            return seconds
        hop = row.hops.get(self._stride)
        if hop is None:
            layout = self._batch.build(point)
            hop = row.hops[self._stride] = hop_seconds(self._batch.pricing, layout)
        vpp = point.vpp
        idle = row.idle.get((shape.pp, point.level))
        if idle is None:
            idle = row.idle[shape.pp, point.level] = bubble_share(self._batch.build(point))
        bubble = idle * (whole - slowest) / vpp
        return seconds + bubble + hop * exposed_hops(shape.pp, vpp, micro_batches)

    def _fold(self, point: Point) -> tuple[tuple[float, float, float], float]:
        """Return (gradient traffic as ``dp_traffic`` returns it, seconds once per step)."""
        pricing, layout = self._batch.pricing, self._batch.build(point)
        once = optimizer_seconds(pricing, layout) + final_reduce_seconds(pricing, layout)
        return dp_traffic(pricing, layout), once

    def _pace(self, row: LaneTimes, point: Point, shape: StageShape) -> tuple[float, float, float]:
        """Return seconds per micro-batch: (slowest stage, its compute, sum of all stages)."""
        layers = [
            self._layer(row, point, kind) if any(pace[0][index] for pace in shape.paces) else NONE
            for index, kind in enumerate(self._batch.kinds)
        ]
        slowest, compute, whole = -1.0, 0.0, 0.0
        for counts, heads, ranks in shape.paces:
            busy = total = 0.0
            for count, (computing, everything) in zip(counts, layers, strict=True):
                busy += count * computing
                total += count * everything
            total += heads * row.head
            whole += ranks * total
            if total > slowest:
                slowest, compute = total, busy + heads * row.head
        return slowest, compute, whole

    def _layer(self, row: LaneTimes, point: Point, kind: LayerKind) -> tuple[float, float]:
        """Return (compute, total with recompute) of one layer, in seconds."""
        key = (kind, point.level, point.pp * point.vpp if self._block else 1)
        timed = row.repeats.get(key)
        if timed is None:
            layout = self._batch.build(point)
            layer = row.layers.get(kind)
            if layer is None:
                layer = shared_layer_time(self._batch.pricing, layout, kind)
                row.layers[kind] = layer
            again = recompute_seconds(self._batch.pricing, layout, layer, kind)
            timed = row.repeats[key] = (layer.compute, layer.total + again)
        return timed
