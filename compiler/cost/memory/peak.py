"""Peak memory of one rank of each pipeline stage, by term."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

from parc.compiler.cost.memory.activations import (
    LayerActivations,
    backward_working_bytes,
    layer_activations,
    saved_activation_bytes,
)
from parc.compiler.cost.memory.states import (
    gathered_weight_bytes,
    largest_layer_parameters,
    low_precision_copy_bytes,
    optimizer_step_bytes,
    table_gradients,
    table_parameters,
    unreduced_gradient_bytes,
    weight_gradient_optimizer_bytes,
)
from parc.compiler.cost.memory.workspaces import (
    communicator_bytes,
    constant_workspace_bytes,
    gathered_key_value_bytes,
    graph_buffer_bytes,
    graph_bytes,
    output_projection_buffer_bytes,
    placeholder_gradient_bytes,
    residual_stream_bytes,
    shared_weight_buffer_bytes,
)
from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents, recomputed_layers
from parc.compiler.ir import LayerKind, Layout, ProgramMemory, StageMemory
from parc.compiler.ir.estimate import DYNAMIC_SPREAD, FRAGMENTATION_SPREAD
from parc.compiler.ir.frozen import frozen

StaticBytes = tuple[float, float, float, float, float, float]
"""Bytes of (weights, gradients, optimizer state, low-precision copies, gathered weights,
placeholder gradients) on one rank."""
LayerCounts = tuple[LayerKind, int, int]
"""(layer type, number of layers, number of recomputed layers)."""


@frozen
class MemoryEnd:
    """Point of the interval of the memory estimate, as factors of the terms."""

    others: float
    """Factor of all bytes except weights, gradients, optimizer state, activations and logits."""
    fragmentation: float
    """Factor of the expected fragmentation."""

    def activations(self, program: ProgramMemory) -> float:
        """Return the factor of activations and logits, fragmentation included."""
        return self.others + self.fragmentation * program.fragmentation


LOGIT_GRADIENT = 2.0
"""Bytes per logit of the gradient that the loss passes to the output projection."""
EXPECTED = MemoryEnd(1.0, 1.0)
HIGH = MemoryEnd(1 + DYNAMIC_SPREAD, FRAGMENTATION_SPREAD)
"""High end of the interval, equal to ``StageMemory.high_bytes``."""


def memory_model_at_zero_stage(cost_model: CostModel, zero_stage: int) -> ProgramMemory:
    """Return the memory model of the framework's program at ZeRO stage ``zero_stage``."""

    def build_program_memory() -> ProgramMemory:
        """Build the memory model of the framework's program; the caller caches the result."""
        program = cost_model.framework.training_memory_model(cost_model.problem)
        return program.for_zero_stage(zero_stage)

    return cost_model.cached(("program", zero_stage), build_program_memory)


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
        busiest = program if load == 1.0 else replace(program, routed_load=load)
        layer = layer_activations(cost_model.problem.model, layout, kind, batch, busiest)
        keys = gathered_key_value_bytes(cost_model, layout) if kind.attends else 0.0
        layer = replace(layer, core_attn=layer.core_attn + keys) if keys else layer
        buffers = graph_buffer_bytes(cost_model, layout, kind)
        return replace(layer, residual=layer.residual + buffers) if buffers else layer

    parallel = (layout.tp, layout.cp, layout.cp_comm, layout.etp, layout.cuda_graphs)
    load = cost_model.problem.job.busiest_rank_load(layout.ep)
    mesh = (*parallel, layout.sequence_parallel, layout.micro_batch, load)
    return cost_model.cached(("layer", kind, mesh, program.name), compute_layer_activations)


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

    parallel = (layout.tp, layout.cp, layout.cp_comm, layout.etp, layout.cuda_graphs)
    mesh = (*parallel, layout.sequence_parallel, layout.micro_batch)
    kept = layout.recompute, layout.offload.activations
    key = ("layers", layers, mesh, kept, program.name)
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


def _cached_static_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> StaticBytes:
    """Return the bytes on one rank of a stage that do not depend on the micro-batch size.

    The order is the same as in ``StaticBytes``. The result is computed once for all layouts with
    equal inputs.
    """
    mesh = (layout.tp, layout.cp, layout.ep, layout.etp, layout.pp)
    kept = (layout.zero_stage, layout.offload, layout.zero_plus.hpz)
    shards = (layout.dp_replicate, layout.dp_shard, layout.gtp, layout.egtp, *kept)

    def compute_static_bytes() -> StaticBytes:
        """Compute the bytes that do not depend on the micro-batch size.

        The caller caches the result.
        """
        return (
            *weight_gradient_optimizer_bytes(cost_model, layout, load, program),
            low_precision_copy_bytes(cost_model, layout, load, program),
            gathered_weight_bytes(cost_model, layout, load, program)
            + shared_weight_buffer_bytes(cost_model, layout, load),
            placeholder_gradient_bytes(cost_model, layout, load, program),
        )

    return cost_model.cached(("static", mesh, shards, load, program.name), compute_static_bytes)


def _activation_and_logits_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes of activations, bytes of logits) at the memory peak of the step.

    If the optimizer step needs more memory than activations and logits together, the difference is
    added to the activations.
    """
    # Logits and the working set of a layer peak at different times, because the backward pass of
    # the loss precedes that of all layers. The optimizer step runs after activations and logits are
    # freed.
    kept, working = activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program) if load.loss else 0.0
    step = optimizer_step_bytes(cost_model, layout, load, program)
    return max(kept + max(working - logits, 0.0), step - logits), logits


def waiting_gradient_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> float:
    """Return the bytes by which whole gradients that wait for their reduction increase the peak.

    The result is 0 for programs that free whole gradients at once.
    """
    queue = unreduced_gradient_bytes(cost_model, layout, load, program)
    if not queue:
        return 0.0
    # The queue is empty before a backward pass and after it (Megatron-FSDP, megatron_fsdp.py,
    # _root_post_backward), and fills while the pass frees logits and the activations of layers. In
    # the backward pass of the k-th layer, the gradients of k layers wait at most, and k - 1 layers
    # are freed. The sum is largest at the first layer, at the last one, or when the queue is full.
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program)
    each = program.state.gradient * largest_layer_parameters(cost_model, layout, load)
    tables = program.state.gradient * table_gradients(cost_model, layout, load, program)
    layers = ceil(load.layers / layout.vpp)
    if layers == 0 or each == 0.0:
        return queue
    full = (queue - tables) / each
    counts = {min(max(count, 1), layers) for count in (1, floor(full), ceil(full), layers)}
    freed = kept / load.layers
    layer_peak = max(min(queue, tables + n * each) - (n - 1) * freed for n in counts)
    # Gradients of the output projection are computed from the 16-bit gradients of the logits, when
    # the loss has freed everything else (tensor_parallel/cross_entropy.py).
    head = load.loss * program.state.gradient * table_parameters(cost_model, layout, load)
    if load.embedding and not cost_model.problem.model.tied_embeddings:
        head /= 2
    head_peak = min(queue, max(head, tables)) - logits * (1 - LOGIT_GRADIENT / program.loss_bytes)
    return max(0.0, layer_peak - max(logits - working, 0.0), head_peak - max(working - logits, 0.0))


def communicator_and_context_bytes(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (bytes of communicators, bytes of the driver context).

    Neither is allocated by torch's allocator.
    """
    context = cost_model.problem.cluster.generation.driver_context_mb * 1e6
    return communicator_bytes(cost_model.problem, layout), context


def stage_memory(
    cost_model: CostModel,
    layout: Layout,
    load: StageContents,
    stage: int,
    program: ProgramMemory | None = None,
) -> StageMemory:
    """Return the memory of one rank of a pipeline stage, by term.

    ``program`` is the memory model of the training program. If it is None, the memory model of the
    framework's own program is used.
    """
    program = program or memory_model_at_zero_stage(cost_model, layout.zero_stage)
    weights, gradients, optimizer, casts, gathered, kept = _cached_static_bytes(
        cost_model, layout, load, program
    )
    gradients += waiting_gradient_bytes(cost_model, layout, load, stage, program)
    workspace = constant_workspace_bytes(cost_model, layout, program)
    workspace += kept + load.loss * output_projection_buffer_bytes(cost_model, layout, program)
    workspace += graph_bytes(cost_model, layout, load)
    activations, logits = _activation_and_logits_bytes(cost_model, layout, load, stage, program)
    communicators, context = communicator_and_context_bytes(cost_model, layout)
    return StageMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=communicators,
        framework_bytes=context,
        fragmentation_bytes=program.fragmentation * (activations + logits),
        casts_bytes=casts,
        gathered_bytes=gathered,
        workspace_bytes=workspace,
    )


def peak_stage(cost_model: CostModel, layout: Layout) -> StageMemory:
    """Return the memory of the pipeline stage with the highest peak.

    If several stages have the same peak, the result is the first of these stages.
    """
    stages = [
        stage_memory(cost_model, layout, each.load, each.first)
        for each in cost_model.equal_stage_groups(layout.split)
    ]
    return max(stages, key=lambda stage: stage.total_bytes)


def peak_bytes(cost_model: CostModel, layout: Layout, end: MemoryEnd = EXPECTED) -> float:
    """Return the memory peak in bytes of the pipeline stage with the highest peak.

    ``end`` selects the expected value or the high end of its interval. The search calls this
    function instead of ``peak_stage`` because it is faster.
    """
    program = memory_model_at_zero_stage(cost_model, layout.zero_stage)
    factor, most = end.activations(program), 0.0
    for each in cost_model.equal_stage_groups(layout.split):
        dynamic = sum(
            _activation_and_logits_bytes(cost_model, layout, each.load, each.first, program)
        )
        weights, gradients, optimizer, *others = _cached_static_bytes(
            cost_model, layout, each.load, program
        )
        uncertain = sum(others)
        uncertain += each.load.loss * output_projection_buffer_bytes(cost_model, layout, program)
        uncertain += graph_bytes(cost_model, layout, each.load)
        static = weights + gradients + optimizer + end.others * uncertain
        static += waiting_gradient_bytes(cost_model, layout, each.load, each.first, program)
        most = max(most, static + factor * dynamic)
    # Terms that are equal on all stages are added after the maximum, once per layout.
    equal = constant_workspace_bytes(cost_model, layout, program)
    return most + end.others * (equal + sum(communicator_and_context_bytes(cost_model, layout)))


def memory_of_all_stages(cost_model: CostModel, layout: Layout) -> tuple[StageMemory, ...]:
    """Return the memory of one rank of each pipeline stage, by term."""
    loads = cost_model.all_stage_contents(layout.split)
    return tuple(stage_memory(cost_model, layout, load, stage) for stage, load in enumerate(loads))
