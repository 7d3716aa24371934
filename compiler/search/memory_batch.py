"""Peak bytes of many layouts: equal to ``memory.peak_bytes``, with shared parts computed once.

Parameters and their state depend on the mesh and the stages. Activations of one micro-batch depend
on tp, cp, etp, the micro-batch, the recompute level and the stages. Only the number of
micro-batches in flight depends on all of these. So a layout costs one multiplication and two
additions per stage.
"""

from __future__ import annotations

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
from parc.compiler.search.enumerate_layouts import BuildLayout, Point
from parc.compiler.search.stage_shapes import StageShape

Key = tuple[StageShape, int, int, int, int, int]
"""(shape, tp, cp, etp, micro-batch, vpp if recompute counts layers per chunk, else 0)."""
Parameters = tuple[tuple[float, float, float], ...]
"""(dense, expert, bytes of quantised copies and placeholders) per class that can have the peak."""
Unit = tuple[tuple[float, float], ...]
"""(bytes that one layer keeps, its working set) per layer kind."""
Rows = tuple[tuple[tuple[int, ...], float, float, float], ...]
"""(layers by kind, logits and loss, embedding mask, input of the output projection) per class."""


@dataclass(frozen=True, slots=True)
class BatchBytes:
    """Bytes of one micro-batch outside of the layers."""

    stream: float
    """Bytes of one stage input."""
    mask: float
    """Dropout mask of the embedding, fragmentation included."""
    buffer: float
    """The gathered input of the output projection."""
    heads: dict[int, float]
    """MTP layers before the loss (-1 for a stage without loss) -> bytes of logits and loss."""


@dataclass(slots=True)
class ActivationCell:
    """Activations of one micro-batch on the stages of one shape, fragmentation included."""

    levels: tuple[tuple[tuple[float, float], ...], ...]
    """Recompute level -> stage class -> (bytes per micro-batch in flight, bytes once)."""
    stream: float
    """Bytes of one stage input."""


class MemoryBatch:
    """Cache of the memory terms of one search."""

    def __init__(self, pricing: Pricing, build: BuildLayout, zero_stage: int) -> None:
        """``build`` returns the layout of a point, for formulas that read a whole layout."""
        self._pricing, self._build = pricing, build
        self._kinds = pricing.problem.model.kinds
        self.cells: dict[Key, ActivationCell] = {}
        self._program = program_memory(pricing, zero_stage)
        self._parameters: dict[tuple[StageShape, int, int, int], Parameters] = {}
        self._state: dict[tuple[int, int, bool], float] = {}
        self._lost = 1 + self._program.fragmentation
        self._units: dict[tuple[int, ...], tuple[Unit | None, ...]] = {}
        self._sizes: dict[tuple[int, int, int], BatchBytes] = {}

    def static_bytes(self, layout: Layout, shape: StageShape) -> tuple[float, ...]:
        """Return the bytes per class that do not depend on the micro-batch.

        That is everything except activations and the buffers between stages.
        """
        key = (shape, layout.tp, layout.ep, layout.etp)
        parameters = self._parameters.get(key)
        if parameters is None:
            parameters = self._parameters[key] = self._count(layout, shape)
        dense_state = self._state_bytes(layout, layout.dp_shard * layout.cp)
        shards = max(layout.edp // layout.dp_replicate, 1)
        expert_state = self._state_bytes(layout, shards)
        fixed = library_bytes(self._pricing, self._program)
        fixed += sum(communicator_and_context_bytes(self._pricing, layout))
        static = [
            fixed + dense * dense_state + expert * expert_state + copies
            for dense, expert, copies in parameters
        ]
        if layout.zero_stage >= 3:
            for index, kind in enumerate(shape.full):
                static[index] += gathered_bytes(self._pricing, layout, kind.load, self._program)
        return tuple(static)

    def static_bytes_in_step(self, layout: Layout, shape: StageShape) -> float:
        """Return the peak of all classes in the optimizer step: static bytes and temporaries."""
        static = self.static_bytes(layout, shape)
        if not self._program.state.step:
            return max(static)
        temporary = (
            step_bytes(self._pricing, layout, kind.load, self._program) for kind in shape.full
        )
        return max(fixed + self._lost * step for fixed, step in zip(static, temporary, strict=True))

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
        """Return bytes per parameter. ZeRO stage, offload and hpZ are constant within a space."""
        key = (layout.zero_stage, shards, layout.pp > 1)
        state = self._state.get(key)
        if state is None:
            kept = layout.offload, layout.zero_plus.hpz
            state = self._state[key] = sum(self._program.state.on_rank(*key, *kept))
        return state

    def activation_cell(self, key: Key, points: list[Point]) -> ActivationCell:
        """Compute the cell of ``key`` and store it in ``cells``.

        ``points``: one point of the cell per recompute level.
        """
        shape, point = key[0], points[0]
        size = self._sizes.get((point.tp, point.cp, point.micro_batch))
        if size is None:
            size = self._size(point)
        heads = [self._head(size, point, kind.load) for kind in shape.full]
        extra = [kind.load.embedding * size.mask for kind in shape.full]
        buffers = [kind.load.loss * size.buffer for kind in shape.full]
        mesh = (point.tp, point.cp, point.etp, point.micro_batch)
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

    def _size(self, point: Point) -> BatchBytes:
        layout = self._build(point)
        stream = stream_bytes(self._pricing, layout)
        mask = self._lost * stream / 2 if self._program.hidden_dropout else 0.0
        buffer = head_buffer_bytes(self._pricing, layout, self._program)
        size = BatchBytes(stream, mask, buffer, {})
        self._sizes[point.tp, point.cp, point.micro_batch] = size
        return size

    def _head(self, size: BatchBytes, point: Point, load: StageLoad) -> float:
        """Return the bytes of logits and loss of a stage."""
        heads = load.mtp_layers if load.loss else -1
        nbytes = size.heads.get(heads)
        if nbytes is None:
            nbytes = logits_bytes(self._pricing, self._build(point), load, self._program)
            nbytes = size.heads[heads] = self._lost * nbytes
        return nbytes

    def _unit(self, point: Point) -> Unit | None:
        """Return the bytes of one layer per kind; None if recompute counts layers per chunk."""
        layout, lost = self._build(point), self._lost
        if layout.recompute.method == "block":
            return None
        layers = [layer_terms(self._pricing, layout, kind, self._program) for kind in self._kinds]
        return tuple(
            (lost * kept_bytes(layer, layout, 1), lost * working_bytes(layer, layout))
            for layer in layers
        )

    def _block(self, point: Point, rows: Rows) -> tuple[tuple[float, float], ...]:
        """Return (bytes per micro-batch, bytes once) per class, for block recompute."""
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
    """Return (bytes per micro-batch in flight, bytes once) per class."""
    pairs = []
    for counts, head, extra, buffer in rows:
        kept, once = 0.0, head
        for count, (each, working) in zip(counts, unit, strict=True):
            kept += count * each
            if count and working > once:
                once = working
        pairs.append((kept + extra, once + buffer))
    return tuple(pairs)
