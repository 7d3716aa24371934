"""Peak bytes of many layouts at once: ``memory.peak_bytes``, with what they share computed once.

Parameters and their state depend on the mesh and the stages; activations of one micro-batch on
tp, cp, etp, the micro-batch, the recompute level and the stages; only the number of micro-batches
in flight is a matter of all of them. A layout costs a multiplication and two additions a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parc.compiler.cost.activations import LayerActivations, kept_bytes, working_bytes
from parc.compiler.cost.memory import (
    cast_bytes,
    communicator_and_context_bytes,
    gathered_bytes,
    layer_terms,
    logits_bytes,
    runtime_of,
    stream_bytes,
)
from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.stage_shapes import StageShape
from parc.compiler.ir import Layout

Point = tuple[int, ...]
"""(tp, cp, pp, dp, ep, etp, vpp, micro-batch, index of the recompute level)."""
Build = Callable[[Point], Layout]
Key = tuple[StageShape, int, int, int, int, int]
"""(shape, tp, cp, etp, micro-batch, vpp where recompute counts layers of a chunk, else 0)."""
Parameters = tuple[tuple[float, float, float], ...]
"""(dense, expert, quantised bytes) of each class that can hold the peak."""


@dataclass(slots=True)
class ActivationCell:
    """One micro-batch of one size on the stages of one shape, fragmentation included."""

    levels: tuple[tuple[tuple[float, float], ...], ...]
    """Recompute level -> class -> (bytes a micro-batch in flight, bytes once)."""
    stream: float
    """Bytes of one stage input."""


class MemoryBatch:
    """Memo of one search."""

    def __init__(self, pricing: Pricing, build: Build) -> None:
        """``build`` makes the layout of a point where a price needs one."""
        self._pricing, self._build = pricing, build
        self.cells: dict[Key, ActivationCell] = {}
        self._runtime = runtime_of(pricing)
        self._parameters: dict[tuple[StageShape, int, int, int], Parameters] = {}
        self._state: dict[tuple[int, int], float] = {}
        self._units: dict[tuple[int, ...], tuple[LayerActivations, bool, float, float]] = {}
        self._streams: dict[tuple[int, int, int], tuple[float, dict[int, float]]] = {}

    def held(self, layout: Layout, shape: StageShape) -> tuple[float, ...]:
        """Bytes of each class that no micro-batch changes, all but activations and handovers."""
        key = (shape, layout.tp, layout.ep, layout.etp)
        parameters = self._parameters.get(key)
        if parameters is None:
            parameters = self._parameters[key] = self._count(layout, shape)
        dense_state = self._state_bytes(layout.zero_stage, layout.dp_shard * layout.cp)
        shards = max(layout.edp // layout.dp_replicate, 1)
        expert_state = self._state_bytes(layout.zero_stage, shards)
        fixed = self._runtime.workspace_bytes
        fixed += sum(communicator_and_context_bytes(self._pricing, layout))
        held = [
            fixed + dense * dense_state + expert * expert_state + casts
            for dense, expert, casts in parameters
        ]
        if layout.zero_stage >= 3:
            for index, kind in enumerate(shape.full):
                held[index] += gathered_bytes(self._pricing, layout, kind.load, self._runtime)
        return tuple(held)

    def _count(self, layout: Layout, shape: StageShape) -> Parameters:
        pricing, runtime = self._pricing, self._runtime
        return tuple(
            (
                *pricing.stage_parameters(layout, kind.load),
                cast_bytes(pricing, layout, kind.load, runtime),
            )
            for kind in shape.full
        )

    def _state_bytes(self, zero_stage: int, shards: int) -> float:
        """Bytes a parameter."""
        key = (zero_stage, shards)
        state = self._state.get(key)
        if state is None:
            state = self._state[key] = sum(self._runtime.state.on_rank(zero_stage, shards))
        return state

    def price(self, key: Key, points: list[Point]) -> ActivationCell:
        """The cell of ``key``, kept in ``cells``; ``points`` has its recompute levels."""
        shape, point = key[0], points[0]
        size = (point[0], point[1], point[7])
        once = self._streams.get(size)
        if once is None:
            stream = stream_bytes(self._pricing, self._build(point))
            once = self._streams[size] = (stream, {})
        stream, logits = once
        for kind in shape.full:
            heads = kind.load.mtp_layers if kind.load.loss else -1
            if heads not in logits:
                nbytes = logits_bytes(self._pricing, self._build(point), kind.load, self._runtime)
                logits[heads] = nbytes
        levels = tuple(self._level(shape, point, stream, logits) for point in points)
        cell = self.cells[key] = ActivationCell(levels, stream)
        return cell

    def _level(
        self, shape: StageShape, point: Point, stream: float, logits: dict[int, float]
    ) -> tuple[tuple[float, float], ...]:
        """(bytes a micro-batch in flight, bytes once) of each class; ``logits`` by heads."""
        lost = 1 + self._runtime.fragmentation
        rows = []
        for kind, counts in zip(shape.full, shape.counts, strict=True):
            kept = working = 0.0
            for routed, count in zip((False, True), counts, strict=True):
                if count:
                    layers, one = self._layers(point, routed, count)
                    kept += layers
                    working = max(working, one)
            if kind.load.embedding and self._runtime.hidden_dropout:
                kept += stream / 2
            head = logits[kind.load.mtp_layers if kind.load.loss else -1]
            rows.append((lost * kept, lost * max(working, head)))
        return tuple(rows)

    def _layers(self, point: Point, routed: bool, count: int) -> tuple[float, float]:
        """(kept by ``count`` layers, working set of one)."""
        key = (point[0], point[1], point[5], point[7], point[8], routed)
        unit = self._units.get(key)
        if unit is None:
            layout = self._build(point)
            layer = layer_terms(self._pricing, layout, routed, self._runtime)
            block = layout.recompute.method == "block"
            unit = (layer, block, kept_bytes(layer, layout, 1), working_bytes(layer, layout))
            self._units[key] = unit
        layer, block, kept, working = unit
        if block:
            return kept_bytes(layer, self._build(point), count), working
        return count * kept, working
