"""Step seconds of many layouts at once: ``step_time``, with what they share computed once.

One layer depends on tp, cp, ep, etp, the reach of their groups and the micro-batch (a lane); a
stage on its lane, its shape and the recompute level; traffic of gradients on the mesh and the
shape. What is left for a layout are the last lines of ``MeshTimes.seconds``. Sums are taken in
another order than in ``step_time``, so that last digits differ: the search prices its best again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
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
from parc.compiler.search.stage_shapes import StageShape

Point = tuple[int, ...]
"""(tp, cp, pp, dp, ep, etp, vpp, micro-batch, index of the recompute level)."""
Build = Callable[[Point], Layout]
NONE = (0.0, 0.0)


@dataclass(slots=True)
class TimeRow:
    """One micro-batch size on one lane."""

    head: float
    layers: dict[LayerKind, LayerTime] = field(default_factory=dict)
    repeats: dict[tuple[LayerKind, int, int], tuple[float, float]] = field(default_factory=dict)
    """(kind, recompute level, chunks) -> compute of one layer, all of it with recompute."""
    paces: dict[tuple[StageShape, int, int], tuple[float, float, float]] = field(
        default_factory=dict
    )
    """(shape, recompute level, vpp) -> slowest stage, its compute, all stages."""
    hops: dict[int, float] = field(default_factory=dict)
    """Stride of the pipeline -> exposed seconds of one hop."""
    idle: dict[tuple[int, int], float] = field(default_factory=dict)
    """(pp, recompute level) -> share of the bubble that the schedule leaves."""


class TimeBatch:
    """Memo of one search; ``build`` makes the layout of a point where a price needs one."""

    def __init__(self, pricing: Pricing, build: Build) -> None:
        """Nothing is priced before it is asked for."""
        self.pricing, self.build = pricing, build
        self.kinds = pricing.problem.model.kinds
        self._lanes: dict[Hashable, dict[int, TimeRow]] = {}
        self._heads: dict[tuple[int, int, int], float] = {}

    def mesh(self, point: Point) -> MeshTimes:
        """The mesh of ``point``."""
        layout = self.build(point)
        groups = self.pricing.groups(layout)
        lane = (layout.tp, layout.cp, layout.ep, layout.etp)
        reach = (groups.tp, groups.cp_stride, groups.ep, groups.etp)
        rows = self._lanes.setdefault((lane, reach), {})
        return MeshTimes(self, layout, rows, groups.pp_stride)

    def row(self, point: Point) -> TimeRow:
        """The row of ``point``, its layers not priced yet."""
        key = (point[0], point[1], point[7])
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = head_seconds(self.pricing, self.build(point))
        return TimeRow(head)


class MeshTimes:
    """All that the layouts of one mesh share."""

    def __init__(
        self, batch: TimeBatch, layout: Layout, rows: dict[int, TimeRow], stride: int
    ) -> None:
        """``rows`` are those of its lane; ``stride`` is that of the pipeline."""
        self._batch, self._rows, self._stride = batch, rows, stride
        self._wait = straggling(batch.pricing, layout) - 1.0
        self._hidden = gradient_window(batch.pricing)
        # What block recompute runs again depends on the layers of a chunk, so on pp and vpp.
        pinned = batch.pricing.problem.pins.recompute
        self._block = pinned is not None and pinned.method == "block"
        self._sharded = exchanges_per_micro_batch(batch.pricing, layout)
        self._folds: dict[StageShape, tuple[tuple[float, float, float], float]] = {}

    def seconds(self, point: Point, shape: StageShape, micro_batches: int) -> float:
        """Step seconds of ``point``, whose stages have ``shape``."""
        row = self._rows.get(point[7])
        if row is None:
            row = self._rows[point[7]] = self._batch.row(point)
        key = (shape, point[8], point[6] if self._block else 1)
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
        vpp = point[6]
        idle = row.idle.get((shape.pp, point[8]))
        if idle is None:
            idle = row.idle[shape.pp, point[8]] = bubble_share(self._batch.build(point))
        bubble = idle * (whole - slowest) / vpp
        return seconds + bubble + hop * exposed_hops(shape.pp, vpp, micro_batches)

    def _fold(self, point: Point) -> tuple[tuple[float, float, float], float]:
        """(traffic of gradients as ``dp_traffic`` has it, what happens once a step)."""
        pricing, layout = self._batch.pricing, self._batch.build(point)
        once = optimizer_seconds(pricing, layout) + final_reduce_seconds(pricing, layout)
        return dp_traffic(pricing, layout), once

    def _pace(self, row: TimeRow, point: Point, shape: StageShape) -> tuple[float, float, float]:
        """One micro-batch: (slowest stage, its compute, all stages together)."""
        layers = [
            self._layer(row, point, kind) if any(pace[0][index] for pace in shape.paces) else NONE
            for index, kind in enumerate(self._batch.kinds)
        ]
        slowest, compute, whole = -1.0, 0.0, 0.0
        for counts, heads, ranks in shape.paces:
            busy = total = 0.0
            for count, (computing, all_of_it) in zip(counts, layers, strict=True):
                busy += count * computing
                total += count * all_of_it
            total += heads * row.head
            whole += ranks * total
            if total > slowest:
                slowest, compute = total, busy + heads * row.head
        return slowest, compute, whole

    def _layer(self, row: TimeRow, point: Point, kind: LayerKind) -> tuple[float, float]:
        """One layer: (compute, all with what its recompute adds)."""
        key = (kind, point[8], point[2] * point[6] if self._block else 1)
        priced = row.repeats.get(key)
        if priced is None:
            layout = self._batch.build(point)
            layer = row.layers.get(kind)
            if layer is None:
                layer = shared_layer_time(self._batch.pricing, layout, kind)
                row.layers[kind] = layer
            again = recompute_seconds(self._batch.pricing, layout, layer, kind)
            priced = row.repeats[key] = (layer.compute, layer.total + again)
        return priced
