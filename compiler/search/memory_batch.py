"""Peak bytes of many layouts at once: ``memory.peak_bytes``, with what they share computed once.

Parameters and their state depend on the mesh and the stages; activations of one micro-batch on
tp, cp, etp, the micro-batch, the recompute level and the stages; only the number of micro-batches
in flight is a matter of all of them. A layout costs a multiplication and two additions a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parc.compiler.cost.memory.activations import kept_bytes, working_bytes
from parc.compiler.cost.memory.peak import (
    cast_bytes,
    communicator_and_context_bytes,
    gathered_bytes,
    layer_terms,
    logits_bytes,
    program_memory,
    step_bytes,
)
from parc.compiler.cost.memory.workspaces import (
    head_buffer_bytes,
    library_bytes,
    placeholder_bytes,
    stream_bytes,
)
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageLoad
from parc.compiler.ir import Layout
from parc.compiler.search.stage_shapes import StageShape

Point = tuple[int, ...]
"""(tp, cp, pp, dp, ep, etp, vpp, micro-batch, index of the recompute level)."""
Build = Callable[[Point], Layout]
Key = tuple[StageShape, int, int, int, int, int]
"""(shape, tp, cp, etp, micro-batch, vpp where recompute counts layers of a chunk, else 0)."""
Parameters = tuple[tuple[float, float, float], ...]
"""(dense, expert, bytes of quantised copies and placeholders) of each class that can peak."""
Unit = tuple[tuple[float, float], ...]
"""(bytes that one layer keeps, its working set) of each kind."""
Rows = tuple[tuple[tuple[int, ...], float, float, float], ...]
"""(layers by kind, logits and loss, embedding's extra, head's input) of each class."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a micro-batch has beside its layers."""

    stream: float
    """Bytes of one stage input."""
    mask: float
    """Dropout mask of the embedding."""
    buffer: float
    """The gathered input of the output projection."""
    heads: dict[int, float]
    """Prediction layers before the loss, -1 without loss -> bytes of logits."""


@dataclass(slots=True)
class ActivationCell:
    """One micro-batch of one size on the stages of one shape, fragmentation included."""

    levels: tuple[tuple[tuple[float, float], ...], ...]
    """Recompute level -> class -> (bytes a micro-batch in flight, bytes once)."""
    stream: float
    """Bytes of one stage input."""


class MemoryBatch:
    """Memo of one search."""

    def __init__(self, pricing: Pricing, build: Build, zero_stage: int) -> None:
        """``build`` makes the layout of a point where a price needs one."""
        self._pricing, self._build = pricing, build
        self._kinds = pricing.problem.model.kinds
        self.cells: dict[Key, ActivationCell] = {}
        self._program = program_memory(pricing, zero_stage)
        self._parameters: dict[tuple[StageShape, int, int, int], Parameters] = {}
        self._state: dict[tuple[int, int, bool], float] = {}
        self._lost = 1 + self._program.fragmentation
        self._units: dict[tuple[int, ...], tuple[Unit | None, ...]] = {}
        self._sizes: dict[tuple[int, int, int], Size] = {}

    def held(self, layout: Layout, shape: StageShape) -> tuple[float, ...]:
        """Return the bytes of each class that do not depend on the micro-batch size."""
        key = (shape, layout.tp, layout.ep, layout.etp)
        parameters = self._parameters.get(key)
        if parameters is None:
            parameters = self._parameters[key] = self._count(layout, shape)
        dense_state = self._state_bytes(layout, layout.dp_shard * layout.cp)
        shards = max(layout.edp // layout.dp_replicate, 1)
        expert_state = self._state_bytes(layout, shards)
        fixed = library_bytes(self._pricing, self._program)
        fixed += sum(communicator_and_context_bytes(self._pricing, layout))
        held = [
            fixed + dense * dense_state + expert * expert_state + copies
            for dense, expert, copies in parameters
        ]
        if layout.zero_stage >= 3:
            for index, kind in enumerate(shape.full):
                held[index] += gathered_bytes(self._pricing, layout, kind.load, self._program)
        return tuple(held)

    def held_at_step(self, layout: Layout, shape: StageShape) -> float:
        """The most of any class while the optimizer runs: ``held``, and what it makes."""
        held = self.held(layout, shape)
        if not self._program.state.step:
            return max(held)
        made = (step_bytes(self._pricing, layout, kind.load, self._program) for kind in shape.full)
        return max(fixed + self._lost * step for fixed, step in zip(held, made, strict=True))

    def _count(self, layout: Layout, shape: StageShape) -> Parameters:
        pricing, program = self._pricing, self._program
        return tuple(
            (
                *pricing.stage_parameters(layout, kind.load),
                cast_bytes(pricing, layout, kind.load, program)
                + placeholder_bytes(pricing, layout, kind.load, program),
            )
            for kind in shape.full
        )

    def _state_bytes(self, layout: Layout, shards: int) -> float:
        """Bytes a parameter; one search looks at one stage, offload and secondary copy."""
        key = (layout.zero_stage, shards, layout.pp > 1)
        state = self._state.get(key)
        if state is None:
            kept = layout.offload, layout.zero_plus.hpz
            state = self._state[key] = sum(self._program.state.on_rank(*key, *kept))
        return state

    def price(self, key: Key, points: list[Point]) -> ActivationCell:
        """The cell of ``key``, kept in ``cells``; ``points`` has its recompute levels."""
        shape, point = key[0], points[0]
        size = self._sizes.get((point[0], point[1], point[7]))
        if size is None:
            size = self._size(point)
        heads = [self._head(size, point, kind.load) for kind in shape.full]
        extra = [kind.load.embedding * size.mask for kind in shape.full]
        buffers = [kind.load.loss * size.buffer for kind in shape.full]
        mesh = (point[0], point[1], point[5], point[7])
        units = self._units.get(mesh)
        if units is None:
            units = self._units[mesh] = tuple(self._unit(one) for one in points)
        rows = tuple(zip(shape.counts, heads, extra, buffers, strict=True))
        levels = tuple(
            _level(unit, rows) if unit is not None else self._block(point, rows)
            for unit, point in zip(units, points, strict=True)
        )
        cell = self.cells[key] = ActivationCell(levels, size.stream)
        return cell

    def _size(self, point: Point) -> Size:
        layout = self._build(point)
        stream = stream_bytes(self._pricing, layout)
        mask = self._lost * stream / 2 if self._program.hidden_dropout else 0.0
        buffer = head_buffer_bytes(self._pricing, layout, self._program)
        size = self._sizes[point[0], point[1], point[7]] = Size(stream, mask, buffer, {})
        return size

    def _head(self, size: Size, point: Point, load: StageLoad) -> float:
        """Logits and loss of a stage."""
        heads = load.mtp_layers if load.loss else -1
        nbytes = size.heads.get(heads)
        if nbytes is None:
            nbytes = logits_bytes(self._pricing, self._build(point), load, self._program)
            nbytes = size.heads[heads] = self._lost * nbytes
        return nbytes

    def _unit(self, point: Point) -> Unit | None:
        """One layer of each kind; None where recompute counts layers."""
        layout, lost = self._build(point), self._lost
        if layout.recompute.method == "block":
            return None
        layers = [layer_terms(self._pricing, layout, kind, self._program) for kind in self._kinds]
        return tuple(
            (lost * kept_bytes(layer, layout, 1), lost * working_bytes(layer, layout))
            for layer in layers
        )

    def _block(self, point: Point, rows: Rows) -> tuple[tuple[float, float], ...]:
        """Layers of which each chunk recomputes its first: (each, once) by class."""
        layout, lost = self._build(point), self._lost
        pairs = []
        for counts, head, extra, buffer in rows:
            kept, working = extra, head
            for kind, count in zip(self._kinds, counts, strict=True):
                if count:
                    layer = layer_terms(self._pricing, layout, kind, self._program)
                    kept += lost * kept_bytes(layer, layout, count)
                    working = max(working, lost * working_bytes(layer, layout))
            pairs.append((kept, working + buffer))
        return tuple(pairs)


def _level(unit: Unit, rows: Rows) -> tuple[tuple[float, float], ...]:
    """(bytes a micro-batch in flight, bytes once) of each class."""
    pairs = []
    for counts, head, extra, buffer in rows:
        kept, once = 0.0, head
        for count, (each, working) in zip(counts, unit, strict=True):
            kept += count * each
            if count and working > once:
                once = working
        pairs.append((kept + extra, once + buffer))
    return tuple(pairs)
