"""Activations, logits and loss of the micro-batches on one rank."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from parc.compiler.cost.memory.activations import (
    LayerActivations,
    backward_working_bytes,
    layer_activations,
    saved_activation_bytes,
)
from parc.compiler.cost.memory.workspaces import (
    gathered_key_value_bytes,
    graph_buffer_bytes,
    residual_stream_bytes,
)
from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents, recomputed_layers
from parc.compiler.ir import LayerKind, Layout, ProgramMemory

LayerCounts = tuple[LayerKind, int, int]
"""(layer type, number of layers, number of recomputed layers)."""


def cached_layer_activations(
    cost_model: CostModel, layout: Layout, kind: LayerKind, program: ProgramMemory
) -> LayerActivations:
    """Return the activation bytes of one layer of type ``kind`` on one rank, by module.

    The result is computed once for all layouts with equal inputs.
    """

    def compute_layer_activations() -> LayerActivations:
        """Compute the activation bytes of one layer by module; the caller caches the result."""
        length = cost_model.problem.job.sequence_length
        batch = (length * layout.micro_batch / layout.cp, length // layout.cp)
        load = cost_model.problem.job.busiest_rank_load(layout.ep)
        busiest = program if load == 1.0 else replace(program, routed_load=load)
        layer = layer_activations(cost_model.problem.model, layout, kind, batch, busiest)
        keys = gathered_key_value_bytes(cost_model, layout) if kind.attends else 0.0
        layer = replace(layer, core_attn=layer.core_attn + keys) if keys else layer
        buffers = graph_buffer_bytes(cost_model, layout, kind)
        return replace(layer, residual=layer.residual + buffers) if buffers else layer

    key = ("layer", kind, _layer_key(cost_model, layout), program.name)
    return cost_model.cached(key, compute_layer_activations)


def _layer_key(cost_model: CostModel, layout: Layout) -> tuple[Hashable, ...]:
    """Return all that the activations of a layer depend on in ``layout``."""
    parallel = (layout.tp, layout.cp, layout.cp_comm, layout.etp, layout.cuda_graphs)
    routing = routing_key(cost_model, layout.ep)
    return (*parallel, *routing, layout.sequence_parallel, layout.micro_batch)


def routing_key(cost_model: CostModel, ep: int) -> tuple[float, bool]:
    """Return all that the activations of a layer depend on in the expert-parallel size ``ep``.

    It is the load of the busiest rank, and whether tokens are exchanged between ranks.
    """
    return cost_model.problem.job.busiest_rank_load(ep), ep > 1


def _layers_bytes(
    cost_model: CostModel, layout: Layout, layers: LayerCounts, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes saved per micro-batch, bytes of the working set) of layers of one type.

    The working set is the temporary memory that the backward pass of one layer needs.
    """

    def compute_layers_bytes() -> tuple[float, float]:
        """Compute the bytes saved per micro-batch and the working set; the caller caches them."""
        layer = cached_layer_activations(cost_model, layout, layers[0], program)
        saved = saved_activation_bytes(layer, layout, layers[1], layers[2])
        return saved, backward_working_bytes(layer, layout)

    kept = layout.recompute, layout.offload.activations
    key = ("layers", layers, _layer_key(cost_model, layout), kept, program.name)
    return cost_model.cached(key, compute_layers_bytes)


def activation_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes saved by all micro-batches in flight, bytes of the working set) on one rank.

    The working set is the temporary memory that the backward pass of the largest layer needs.
    """
    problem = cost_model.problem
    micro_batches = max(layout.micro_batches(problem.job.global_batch), 1)
    shape = PipelineShape(layout.pp, micro_batches, layout.vpp)
    # With 1F1B, earlier stages have more micro-batches in flight.
    flight = micro_batches_in_flight(layout.schedule, stage, shape, load.chunks)
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    return flight * kept, working


def micro_batch_activation_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes that one micro-batch saves on a stage, bytes of the working set).

    The working set is the temporary memory that the backward pass of the largest layer needs.
    """
    kept = working = 0.0
    model = cost_model.problem.model
    again = recomputed_layers(model, layout.recompute, load, layout.split.chunks[stage])
    for kind, count in load.layers_by_kind(model).items():
        own, one = _layers_bytes(cost_model, layout, (kind, count, again[kind]), program)
        kept += own
        working = max(working, one)
    if load.embedding and program.hidden_dropout:
        # The embedding's output is the input of the first layer, so that only its mask is extra.
        kept += residual_stream_bytes(cost_model, layout) / 2
    return kept, working


def logits_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of logits, loss and inputs of the output projection for one micro-batch.

    For Megatron the result is 6TV/t + 4Th/t with T tokens, vocabulary V, hidden size h and
    tensor-parallel size t. Each multi-token-prediction layer adds 4TV/t + 4Th/t for its softmax and
    its inputs. The result is 0 on stages without the loss.
    """
    # If every rank gathers the logits of the whole vocabulary, the loss needs memory for all of
    # them.
    if not load.loss:
        return 0.0
    problem = cost_model.problem
    tokens = layout.tokens(problem.job.sequence_length)
    vocab = cost_model.framework.padded_vocab(problem, layout.tp)
    split = program.split_loss_bytes if layout.tp > 1 else 0.0
    logit = (split or program.loss_bytes) + load.mtp_layers * program.loss_kept_bytes
    if program.whole_logits and layout.tp > 1:
        logit *= layout.tp
    inputs = program.head_input_bytes * (1 + load.mtp_layers) * problem.model.hidden
    shared = layout.tp if program.gathers_again else 1
    return tokens * (logit / program.loss_parts * vocab / layout.tp + inputs / shared)
