"""Cache for the peak memory of many layouts, which is the result of ``cost.memory.peak_bytes``.

A cache contains either expected values or high ends of the intervals (``MemoryEnd``).

Terms that several layouts share are computed once. Parameters and their state depend on the mesh
and the stages. The activations of one micro-batch depend on tp, cp, etp, the micro-batch size, the
recompute level and the stages. Only the number of micro-batches in flight depends on all of these.
So each further layout costs one multiplication and two additions per stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import mul

from parc.compiler.cost.memory.activations import backward_working_bytes, saved_activation_bytes
from parc.compiler.cost.memory.micro_batches import (
    cached_layer_activations,
    logits_bytes,
    routing_key,
)
from parc.compiler.cost.memory.peak import (
    EXPECTED,
    MemoryEnd,
    communicator_and_context_bytes,
    memory_model_at_zero_stage,
)
from parc.compiler.cost.memory.states import (
    frozen_weight_bytes,
    gathered_weight_bytes,
    low_precision_copy_bytes,
    optimizer_step_peak_bytes,
    table_excess_bytes,
)
from parc.compiler.cost.memory.waiting_gradients import (
    stream_pool_bytes,
    waiting_gradient_bytes,
)
from parc.compiler.cost.memory.workspaces import (
    bytes_of_graphs,
    library_workspace_bytes,
    output_projection_buffer_bytes,
    overlap_buffer_bytes,
    placeholder_gradient_bytes,
    residual_stream_bytes,
    shared_weight_buffer_bytes,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents, recomputed_layers
from parc.compiler.ir import Layout
from parc.compiler.ir.frozen import frozen
from parc.compiler.search.enumerate_layouts import BuildLayout, LayoutPoint
from parc.compiler.search.stage_shapes import StageShape

ActivationKey = tuple[StageShape, int, int, int, int, float, bool]
"""(shape, tp, cp, etp, vpp, ``routing_key`` of ep). vpp is 0 if the search does not try block
recompute, because vpp then has no effect."""
ParameterCounts = tuple[tuple[float, float, float], ...]
"""(dense parameters, expert parameters, bytes of quantized copies and placeholders) of each group
of equal stages that can have the memory peak."""
BytesPerLayer = tuple[tuple[float, ...], tuple[float, ...]]
"""(bytes that one layer keeps for the backward pass, bytes of its working set), each by kind."""
StageRows = tuple[tuple[tuple[int, ...], float, float, float], ...]
"""(layers by kind, bytes of logits and loss, bytes of the embedding's dropout mask, bytes of the
output projection's input and of buffers for overlap) of each group of equal stages."""

OversizedLayout = tuple[
    LayoutPoint,
    int,
    StageShape,
    tuple[float, ...],
    float,
    tuple[tuple[float, float], ...],
    float,
]
"""(point, recompute level, shape, bytes per group of equal stages without activations, number of
micro-batches in flight on the first rank, row of ``StageActivations.levels``, bytes that
activations can use) of a layout that does not fit. A plain tuple, because a search builds one per
layout."""
NEAR = 1.1
"""Mean memory of all ranks over the limit, up to which other stage splits are tried. Later ranks
have fewer micro-batches in flight, so moving layers to them lowers the mean. In 72 random searches
(``tests/search``), no layout above this limit ties with the fastest."""


def has_memory_elsewhere(oversized: OversizedLayout) -> bool:
    """Return True if a layout that does not fit might fit with another stage split.

    This is the case if the mean memory of all ranks is at most ``NEAR`` times the limit.
    """
    point, _, shape, static, flight, rows, left = oversized
    # With v chunks per rank, ranks have on average about v / (v + 1) of the micro-batches in flight
    # on the first one.
    flight *= point.vpp / (point.vpp + 1)
    needs = 0.0
    for ranks, fixed, (each, once) in zip(shape.ranks, static, rows, strict=True):
        needs += ranks * (fixed + flight * each + once)
    return needs <= NEAR * left * point.pp


@frozen
class MicroBatchBytes:
    """Bytes of one micro-batch that are allocated outside of the layers."""

    stream: float
    """Bytes of the input of one stage."""
    mask: float
    """Bytes of the embedding's dropout mask, fragmentation included."""
    buffer: float
    """Bytes of the gathered input of the output projection."""
    overlap: float
    """Bytes of buffers that overlap collectives with matrix multiplications, on every stage."""
    heads: dict[int, float]
    """MTP layers before the loss -> bytes of logits and loss of a stage with the loss."""


@dataclass(slots=True)
class StageActivations:
    """Bytes of activations of one micro-batch on each pipeline stage, fragmentation included."""

    levels: tuple[tuple[tuple[float, float], ...], ...]
    """For each recompute level and each group of equal stages: (bytes per micro-batch in flight,
    bytes that are allocated only once)."""
    stream: float
    """Bytes of the input of one stage."""


class PeakMemoryCache:
    """Cache of the memory terms of one layout search."""

    def __init__(
        self, cost_model: CostModel, build: BuildLayout, zero_stage: int, end: MemoryEnd = EXPECTED
    ) -> None:
        """Create an empty cache for values at ``end``.

        ``build`` returns the layout for a ``LayoutPoint``.
        """
        self._cost_model, self._build = cost_model, build
        self._kinds = cost_model.problem.model.kinds
        self.activations: dict[ActivationKey, dict[int, StageActivations]] = {}
        """Activation bytes by micro-batch size."""
        self._program = program = memory_model_at_zero_stage(cost_model, zero_stage)
        self.has_waiting_gradients = bool(program.waiting_gradients or program.reduced_bytes)
        """True if gradients can wait for their reduction at the memory peak."""
        self.gathers_ahead = bool(zero_stage >= 3 and self._program.prefetched_parameters)
        """True if ``static_bytes`` depends on the virtual pipeline size."""
        self._parameters: dict[tuple[StageShape, int, int, int], ParameterCounts] = {}
        self._state: dict[tuple[int, int, bool], float] = {}
        self._mesh: tuple[tuple[int, ...], tuple[float, float, float]] = ((), (0.0, 0.0, 0.0))
        """Last parallel sizes, and their result of ``_mesh_bytes``."""
        self._factor, self._others = end.activations(self._program), end.others
        self._states, self._fragmentation = end.states(self._program), end.fragmentation
        self._units: dict[tuple[float, ...], tuple[BytesPerLayer | None, ...]] = {}
        self._sizes: dict[tuple[int, int, int], MicroBatchBytes] = {}

    def static_bytes(self, layout: Layout, shape: StageShape) -> tuple[tuple[float, ...], float]:
        """Return the bytes per group of equal stages without activations, and the optimizer's peak.

        The first result is all memory except activations and the buffers between stages. Groups
        that cannot have the memory peak are left out. The second result is the peak of the fullest
        stage during the optimizer step, without the buffers between stages.
        """
        key = (shape, layout.tp, layout.ep, layout.etp)
        parameters = self._parameters.get(key)
        if parameters is None:
            parameters = self._parameters[key] = self._count_parameters(layout, shape)
        sizes = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.etp)
        if self._mesh[0] != sizes:
            self._mesh = sizes, self._mesh_bytes(layout)
        fixed, dense_state, expert_state = self._mesh[1]
        static = [
            fixed + self._states * (dense * dense_state + expert * expert_state) + copies
            for dense, expert, copies in parameters
        ]
        for index, kind in enumerate(shape.peak_candidates if self._program.frozen else ()):
            parts = self._cost_model, layout, kind.load, self._program
            static[index] += self._states * frozen_weight_bytes(*parts)
        # ZeRO-3, and ranks that share weights, gather those of a layer before it is computed.
        if layout.zero_stage >= 3 or layout.shares_weights:
            for index, kind in enumerate(shape.peak_candidates):
                gathered = gathered_weight_bytes(self._cost_model, layout, kind.load, self._program)
                gathered += shared_weight_buffer_bytes(self._cost_model, layout, kind.load)
                static[index] += self._others * gathered
        if not self._program.state.step:
            return tuple(static), max(static)
        temporary = (
            optimizer_step_peak_bytes(self._cost_model, layout, kind.load, self._program)
            for kind in shape.peak_candidates
        )
        in_step = (
            fixed + self._factor * step for fixed, step in zip(static, temporary, strict=True)
        )
        return tuple(static), max(in_step)

    def _mesh_bytes(self, layout: Layout) -> tuple[float, float, float]:
        """Return the bytes that layouts with equal parallel sizes share.

        They are (workspaces, communicators and driver context, bytes per dense parameter, bytes per
        expert parameter).
        """
        fixed = library_workspace_bytes(self._cost_model, layout, self._program)
        fixed += sum(communicator_and_context_bytes(self._cost_model, layout))
        dense, expert = (
            self._state_bytes_per_parameter(layout, shards) for shards in layout.optimizer_shards
        )
        return self._others * fixed, dense, expert

    def with_graphs(
        self, static: tuple[float, ...], layout: Layout, shape: StageShape
    ) -> tuple[float, ...]:
        """Return ``static``, a result of ``static_bytes``, and the bytes of all CUDA graphs."""
        graphs = self._cost_model.captured_graphs(layout)
        return tuple(
            fixed + self._others * bytes_of_graphs(self._cost_model, layout, kind.load, graphs)
            for fixed, kind in zip(static, shape.peak_candidates, strict=True)
        )

    def with_waiting_gradients(
        self,
        rows: tuple[tuple[float, float], ...],
        point: LayoutPoint,
        level: int,
        shape: StageShape,
    ) -> tuple[tuple[float, float], ...]:
        """Return ``rows``, plus the gradients that wait for their reduction at the memory peak.

        ``rows`` are those of ``level`` in ``StageActivations.levels``.
        """
        layout, program = self._build(point.with_recompute_level(level)), self._program
        return tuple(
            (
                each,
                once
                + self._states
                * waiting_gradient_bytes(self._cost_model, layout, kind.load, kind.first, program)
                + self._fragmentation
                * stream_pool_bytes(self._cost_model, layout, kind.load, kind.first, program),
            )
            for (each, once), kind in zip(rows, shape.peak_candidates, strict=True)
        )

    def _count_parameters(self, layout: Layout, shape: StageShape) -> ParameterCounts:
        """Return (dense parameters, expert parameters, extra bytes) per group of equal stages.

        Extra bytes are the memory of quantized copies of the weights, of placeholder gradients, and
        of vocabulary matrices that have more bytes per weight than all other weights.
        """
        cost_model, program = self._cost_model, self._program
        return tuple(
            (
                *cost_model.trained_stage_parameters(layout, kind.load),
                self._states * table_excess_bytes(cost_model, layout, kind.load, program)
                + self._others
                * (
                    low_precision_copy_bytes(cost_model, layout, kind.load, program)
                    + placeholder_gradient_bytes(cost_model, layout, kind.load, program)
                ),
            )
            for kind in shape.peak_candidates
        )

    def _state_bytes_per_parameter(self, layout: Layout, shards: int) -> float:
        """Return the bytes per parameter of weights, gradients and optimizer state on one rank.

        A sharded state is divided over ``shards`` ranks.
        """
        # Offload and hpZ are not part of the key, because they are constant within a space.
        key = (layout.zero_stage, shards, layout.pp > 1)
        state = self._state.get(key)
        if state is None:
            kept = layout.offload, layout.zero_plus.hpz
            state = self._state[key] = sum(self._program.state.bytes_on_rank(*key, *kept))
        return state

    def compute_activations(
        self, shape: StageShape, point: LayoutPoint, levels: int
    ) -> StageActivations:
        """Return the activation bytes of layout ``point`` with each of ``levels`` recompute levels.

        The layout has the stages ``shape``.
        """
        size = self._sizes.get((point.tp, point.cp, point.micro_batch))
        if size is None:
            size = self._micro_batch_bytes(point)
        routing = routing_key(self._cost_model, point.ep)
        mesh = (point.tp, point.cp, point.etp, point.micro_batch, *routing)
        units = self._units.get(mesh)
        if units is None:
            units = self._units[mesh] = tuple(
                self._bytes_per_layer(point.with_recompute_level(level)) for level in range(levels)
            )
        rows = tuple(
            [
                (
                    counts,
                    self._logits_and_loss_bytes(size, point, kind.load) if kind.load.loss else 0.0,
                    kind.load.embedding * size.mask,
                    kind.load.loss * size.buffer + size.overlap,
                )
                for counts, kind in zip(shape.counts, shape.peak_candidates, strict=True)
            ]
        )
        by_level = tuple(
            [
                _sum_layers(unit, rows)
                if unit is not None
                else self._bytes_with_block_recompute(
                    point.with_recompute_level(level), shape, rows
                )
                for level, unit in enumerate(units)
            ]
        )
        return StageActivations(by_level, size.stream)

    def _micro_batch_bytes(self, point: LayoutPoint) -> MicroBatchBytes:
        """Return the bytes that one micro-batch needs outside of the layers, in layout ``point``.

        The result is cached.
        """
        layout = self._build(point)
        stream = residual_stream_bytes(self._cost_model, layout)
        # The mask has one byte per element, the stream two.
        mask = self._factor * stream / 2 if self._program.hidden_dropout else 0.0
        buffer = output_projection_buffer_bytes(self._cost_model, layout, self._program)
        overlap = overlap_buffer_bytes(self._cost_model, layout, self._program)
        stream, buffer, overlap = (self._others * one for one in (stream, buffer, overlap))
        size = MicroBatchBytes(stream, mask, buffer, overlap, {})
        self._sizes[point.tp, point.cp, point.micro_batch] = size
        return size

    def _logits_and_loss_bytes(
        self, size: MicroBatchBytes, point: LayoutPoint, load: StageContents
    ) -> float:
        """Return the bytes of logits and loss on a pipeline stage with the loss and ``load``."""
        # Stages with the same number of MTP layers before the loss share one cache entry.
        nbytes = size.heads.get(load.mtp_layers)
        if nbytes is None:
            nbytes = logits_bytes(self._cost_model, self._build(point), load, self._program)
            nbytes = size.heads[load.mtp_layers] = self._factor * nbytes
        return nbytes

    def _bytes_per_layer(self, point: LayoutPoint) -> BytesPerLayer | None:
        """Return (bytes kept for the backward pass, working set) of one layer of each kind.

        Returns None for block recompute: some layers of each model chunk are then recomputed and
        others are not, so the layers of a kind differ.
        """
        layout, factor = self._build(point), self._factor
        if layout.recompute.method == "block":
            return None
        layers = [
            cached_layer_activations(self._cost_model, layout, kind, self._program)
            for kind in self._kinds
        ]
        return (
            tuple([factor * saved_activation_bytes(layer, layout, 1, 1) for layer in layers]),
            tuple([factor * backward_working_bytes(layer, layout) for layer in layers]),
        )

    def _bytes_with_block_recompute(
        self, point: LayoutPoint, shape: StageShape, rows: StageRows
    ) -> tuple[tuple[float, float], ...]:
        """Return the activation bytes with block recompute, per group of equal pipeline stages.

        Each item is (bytes per micro-batch in flight, bytes that are allocated only once).
        """
        layout, factor, model = self._build(point), self._factor, self._cost_model.problem.model
        pairs = []
        for one, (counts, head, extra, buffer) in zip(shape.peak_candidates, rows, strict=True):
            chunks = layout.split.chunks[one.first]
            again = recomputed_layers(model, layout.recompute, one.load, chunks)
            kept, working = extra, head
            for kind, count in zip(self._kinds, counts, strict=True):
                if count:
                    layer = cached_layer_activations(self._cost_model, layout, kind, self._program)
                    saved = saved_activation_bytes(layer, layout, count, again[kind])
                    kept += factor * saved
                    working = max(working, factor * backward_working_bytes(layer, layout))
            pairs.append((kept, working + buffer))
        return tuple(pairs)


def _sum_layers(unit: BytesPerLayer, rows: StageRows) -> tuple[tuple[float, float], ...]:
    """Return the activation bytes per group of equal pipeline stages.

    Each item is (bytes per micro-batch in flight, bytes that are allocated only once). The second
    number contains the largest working set of any layer, because only one layer runs at a time.
    """
    saved, working = unit
    return tuple(
        [
            (
                sum(map(mul, counts, saved)) + extra,
                max((head, *compress(working, counts))) + buffer,
            )
            for counts, head, extra, buffer in rows
        ]
    )
