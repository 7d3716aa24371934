"""Peak bytes on one rank of one stage, term by term."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.collectives.context_exchange import gathered_key_bytes
from parc.compiler.cost.memory.activations import (
    LayerActivations,
    kept_bytes,
    layer_activations,
    working_bytes,
)
from parc.compiler.cost.memory.programs import training_runtime
from parc.compiler.cost.memory.runtime import Runtime
from parc.compiler.cost.memory.workspaces import (
    handover_bytes,
    head_buffer_bytes,
    library_bytes,
    placeholder_bytes,
    stream_bytes,
)
from parc.compiler.cost.schedules.table import Shape
from parc.compiler.cost.schedules.uneven_flight import held_batches
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageLoad, stage_load
from parc.compiler.ir import LayerKind, Layout, StageMemory

Held = tuple[float, float, float, float, float, float]
COMMUNICATOR_BYTES = 0.2e9
"""NCCL buffers of one communicator that is in use; 0.3 to 0.5 GB for the usual two or three."""


def runtime_of(pricing: Pricing, zero_stage: int) -> Runtime:
    """The training program that PARC starts for this problem."""
    problem = pricing.problem
    name = pricing.framework.runtime
    if name == "deepspeed" and "accelerate" in problem.emit:
        name = "accelerate deepspeed"

    def build() -> Runtime:
        job = problem.job
        found = training_runtime(
            name, job.precision, problem.cluster.generation, job.gradient_bytes
        )
        return found.at(zero_stage)

    return pricing.memo(("runtime", not zero_stage), build)


def static_bytes(
    pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime
) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes of a stage.

    Megatron, bf16: 6 + 12/(dp cp) a dense parameter with the distributed optimizer, 6 + 12/edp an
    expert parameter, 18 without it (Megatron-LM docs, dist_optimizer.md). Only ranks that share
    one copy of the optimizer count: dp_shard of dp (hybrid sharding, optimizer instances).
    """
    dense, expert = pricing.stage_parameters(layout, load)
    shards = layout.dp_shard * layout.cp
    expert_shards = max(layout.edp // layout.dp_replicate, 1)
    stage, kept = layout.zero_stage, (layout.pp > 1, layout.offload, layout.zero_plus.hpz)
    first = runtime.state.on_rank(stage, shards, *kept)
    second = runtime.state.on_rank(stage, expert_shards, *kept) if expert else first
    weights, gradients, optimizer = (
        dense * ours + expert * theirs for ours, theirs in zip(first, second, strict=True)
    )
    return weights, gradients, optimizer


def layer_terms(
    pricing: Pricing, layout: Layout, kind: LayerKind, runtime: Runtime
) -> LayerActivations:
    """Activations of one layer and micro-batch, computed once a mesh and micro-batch."""

    def price() -> LayerActivations:
        length = pricing.problem.job.sequence_length
        batch = (length * layout.micro_batch / layout.cp, length // layout.cp)
        layer = layer_activations(pricing.problem.model, layout, kind, batch, runtime)
        keys = gathered_key_bytes(pricing, layout) if kind.mixer == "attention" else 0.0
        return replace(layer, core_attn=layer.core_attn + keys) if keys else layer

    lane = (layout.tp, layout.cp, layout.cp_comm, layout.etp)
    mesh = (*lane, layout.sequence_parallel, layout.micro_batch)
    return pricing.memo(("layer", kind, mesh, runtime.name), price)


def _priced_layers(
    pricing: Pricing, layout: Layout, layers: tuple[LayerKind, int], runtime: Runtime
) -> tuple[float, float]:
    """(kept a micro-batch, working set) of ``layers``: (kind, how many)."""

    def price() -> tuple[float, float]:
        layer = layer_terms(pricing, layout, layers[0], runtime)
        return kept_bytes(layer, layout, layers[1]), working_bytes(layer, layout)

    lane = (layout.tp, layout.cp, layout.cp_comm, layout.etp)
    mesh = (*lane, layout.sequence_parallel, layout.micro_batch)
    key = ("layers", layers, mesh, layout.vpp, layout.recompute, runtime.name)
    return pricing.memo(key, price)


def activation_bytes(
    pricing: Pricing, layout: Layout, load: StageLoad, stage: int, runtime: Runtime
) -> tuple[float, float]:
    """(kept by all micro-batches in flight, working set of one layer)."""
    problem = pricing.problem
    micro_batches = max(layout.micro_batches(problem.job.global_batch), 1)
    shape = Shape(layout.pp, micro_batches, layout.vpp)
    flight = held_batches(layout.schedule, stage, shape, load.chunks)
    kept, working = micro_batch_bytes(pricing, layout, load, runtime)
    return flight * kept, working


def micro_batch_bytes(
    pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime
) -> tuple[float, float]:
    """(kept by one micro-batch on all layers of a stage, working set of one layer)."""
    kept = working = 0.0
    for layers in load.by_kind(pricing.problem.model).items():
        own, one = _priced_layers(pricing, layout, layers, runtime)
        kept += own
        working = max(working, one)
    if load.embedding and runtime.hidden_dropout:
        # The embedding's output is the input of the first layer; its mask alone is extra.
        kept += stream_bytes(pricing, layout) / 2
    return kept, working


def logits_bytes(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> float:
    """Logits, loss and the inputs of the head, one micro-batch: 6TV/t + 4Th/t.

    Every prediction head adds its softmax and inputs: 4TV/t + 4Th/t. Where ranks gather the
    logits, the loss is over all of them, beside the rank's own in 16 bit.
    """
    if not load.loss:
        return 0.0
    problem = pricing.problem
    tokens = layout.tokens(problem.job.sequence_length)
    vocab = pricing.framework.padded_vocab(problem.model, layout.tp)
    split = runtime.split_loss_bytes if layout.tp > 1 else 0.0
    logit = (split or runtime.loss_bytes) + load.mtp_layers * runtime.loss_kept_bytes
    if runtime.whole_logits and layout.tp > 1:
        logit = 2 + logit * layout.tp
    inputs = runtime.head_input_bytes * (1 + load.mtp_layers) * problem.model.hidden
    shared = layout.tp if runtime.gathers_again else 1
    return tokens * (logit / runtime.loss_parts * vocab / layout.tp + inputs / shared)


def gathered_bytes(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> float:
    """Layers that ZeRO-3 holds whole: the current, the prefetched, and those kept for reuse."""
    split = layout.dp_shard * layout.cp > 1 or layout.offload.parameters != "none"
    if layout.zero_stage < 3 or not split:
        return 0.0
    if layout.pp > 1 and runtime.state.gathered:  # then all of them are, and counted as weights
        return 0.0
    kinds = load.by_kind(pricing.problem.model)
    largest = max((sum(pricing.layer_parameters(kind, layout)) for kind in kinds), default=0.0)
    table = pricing.framework.padded_vocab(pricing.problem.model, layout.tp)
    model, unit = pricing.problem.model, runtime.unit_bytes
    ends = table * model.hidden / layout.tp if load.loss or load.embedding else 0.0
    live = min(runtime.live_parameters, sum(pricing.stage_parameters(layout, load)))
    head = (runtime.head_unit_bytes or unit) * ends
    if load.loss and load.embedding and not model.tied_embeddings:
        head += runtime.root_bytes * ends
    return max(unit * runtime.gathered_units * largest, unit * largest + head, unit * live)


def cast_bytes(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> float:
    """Copies in fewer bits of the linear weights of a stage; embedding, mostly head: none.

    Under ZeRO-3 a layer is quantised when it is gathered, so that nothing stays.
    """
    if not runtime.state.cast or layout.zero_stage >= 3:
        return 0.0
    dense, expert = pricing.stage_parameters(layout, load)
    model = pricing.problem.model
    table = pricing.framework.padded_vocab(model, layout.tp) * model.hidden / layout.tp
    tables = load.embedding + (load.loss and (not model.tied_embeddings or layout.pp > 1))
    tables -= load.loss and runtime.state.casts_head
    return runtime.state.cast * max(dense + expert - tables * table, 0.0)


def _held(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> Held:
    """(weights, gradients, optimizer, casts, gathered, placeholders): for any micro-batch."""
    mesh = (layout.tp, layout.cp, layout.ep, layout.etp, layout.pp)
    kept = (layout.zero_stage, layout.offload, layout.zero_plus.hpz)
    shards = (layout.dp_replicate, layout.dp_shard, *kept)

    def price() -> Held:
        return (
            *static_bytes(pricing, layout, load, runtime),
            cast_bytes(pricing, layout, load, runtime),
            gathered_bytes(pricing, layout, load, runtime),
            placeholder_bytes(pricing, layout, load, runtime),
        )

    return pricing.memo(("held", mesh, shards, load, runtime.name), price)


def _passing(
    pricing: Pricing, layout: Layout, load: StageLoad, stage: int, runtime: Runtime
) -> tuple[float, float]:
    """(activations, logits). The loss runs backward before any layer: one of the two peaks.

    Another is the optimizer's, when all of that is gone.
    """
    kept, working = activation_bytes(pricing, layout, load, stage, runtime)
    logits = logits_bytes(pricing, layout, load, runtime) if load.loss else 0.0
    step = step_bytes(pricing, layout, load, runtime)
    return max(kept + max(working - logits, 0.0), step - logits), logits


def step_bytes(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> float:
    """What the optimizer makes of 16-bit gradients for its step."""
    if not runtime.state.step or layout.offload.optimizer != "none":
        return 0.0
    dense, expert = pricing.stage_parameters(layout, load)
    shards = expert_shards = 1
    if layout.zero_stage:
        shards = layout.dp_shard * layout.cp
        expert_shards = max(layout.edp // layout.dp_replicate, 1)
    return runtime.state.step * (dense / shards + expert / expert_shards)


def communicator_and_context_bytes(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(communicators, context): what no allocator holds."""
    degrees = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep)
    communicators = sum(degree > 1 for degree in degrees) * COMMUNICATOR_BYTES
    return communicators, pricing.problem.cluster.generation.driver_context_mb * 1e6


def stage_memory(
    pricing: Pricing, layout: Layout, load: StageLoad, stage: int, runtime: Runtime | None = None
) -> StageMemory:
    """All terms of one stage; ``runtime`` None: the program that PARC starts."""
    runtime = runtime or runtime_of(pricing, layout.zero_stage)
    weights, gradients, optimizer, casts, gathered, kept = _held(pricing, layout, load, runtime)
    workspace = library_bytes(pricing, runtime) + handover_bytes(pricing, layout)
    workspace += kept + load.loss * head_buffer_bytes(pricing, layout, runtime)
    activations, logits = _passing(pricing, layout, load, stage, runtime)
    communicators, context = communicator_and_context_bytes(pricing, layout)
    return StageMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=communicators,
        framework_bytes=context,
        fragmentation_bytes=runtime.fragmentation * (activations + logits),
        casts_bytes=casts,
        gathered_bytes=gathered,
        workspace_bytes=workspace,
    )


def peak_stage(pricing: Pricing, layout: Layout) -> StageMemory:
    """The fullest stage; distinct stages only, the first of equals."""
    stages = [
        stage_memory(pricing, layout, kind.load, kind.first)
        for kind in pricing.classes(layout.split)
    ]
    return max(stages, key=lambda stage: stage.total_bytes)


def peak_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes of the fullest stage, without its terms: the search asks for every candidate."""
    runtime = runtime_of(pricing, layout.zero_stage)
    most = 0.0
    for kind in pricing.classes(layout.split):
        passing = sum(_passing(pricing, layout, kind.load, kind.first, runtime))
        held = sum(_held(pricing, layout, kind.load, runtime))
        held += kind.load.loss * head_buffer_bytes(pricing, layout, runtime)
        most = max(most, held + (1 + runtime.fragmentation) * passing)
    handover = handover_bytes(pricing, layout)
    return (
        most
        + library_bytes(pricing, runtime)
        + handover
        + sum(communicator_and_context_bytes(pricing, layout))
    )


def all_stages(pricing: Pricing, layout: Layout) -> tuple[StageMemory, ...]:
    """Every pipeline rank."""
    model, split = pricing.problem.model, layout.split
    return tuple(
        stage_memory(pricing, layout, stage_load(model, split, stage), stage)
        for stage in range(layout.pp)
    )
