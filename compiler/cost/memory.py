"""Peak bytes on one rank of one stage, term by term."""

from __future__ import annotations

from parc.compiler.cost.activations import layer_activations, stored_bytes
from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.schedules import chunks_in_flight
from parc.compiler.cost.stages import StageLoad, stage_load
from parc.compiler.ir import Layout, StageMemory

GRADIENT_BYTES = {"fp16": 2.0}
"""fp16 keeps 16-bit gradients; every other precision reduces in fp32 (4 bytes)."""
MASTER_BYTES = {"fp16": 16.0}
"""Optimizer bytes a parameter; fp32 master, momentum and variance: 12 (fp16: + fp32 gradient)."""

CONTEXT_BYTES = 0.6e9
"""CUDA context and cuBLAS workspaces, 0.4 to 0.8 GB in published breakdowns."""
COMMUNICATOR_BYTES = 0.15e9
"""NCCL buffers of one communicator that is in use; 0.3 to 0.5 GB for the usual two or three."""
FRAGMENTATION = 0.05
"""Share of dynamic memory lost in the caching allocator; 5 to 10 % without expandable segments."""


def static_bytes(pricing: Pricing, layout: Layout, load: StageLoad) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes of a stage.

    6 + 12/(dp cp) a dense parameter with the distributed optimizer, 6 + 12/edp an expert
    parameter, 18 without it (Megatron-LM docs, dist_optimizer.md; fp16: 4 + 16/d and 20).
    """
    precision = pricing.problem.job.precision
    dense, expert = pricing.stage_parameters(layout, load)
    shards = layout.dp_shard * layout.cp if layout.zero_stage else 1
    expert_shards = max(layout.edp, 1) if layout.zero_stage else 1
    master = MASTER_BYTES.get(precision, 12.0)
    return (
        2.0 * (dense + expert),
        GRADIENT_BYTES.get(precision, 4.0) * (dense + expert),
        master * (dense / shards + expert / expert_shards),
    )


def layer_bytes(pricing: Pricing, layout: Layout, routed: bool) -> tuple[float, float]:
    """(kept until backward, all) activation bytes of one layer and micro-batch."""

    def price() -> tuple[float, float]:
        job = pricing.problem.job
        tokens = job.sequence_length * layout.micro_batch / layout.cp
        layer = layer_activations(pricing.problem.model, layout, routed, tokens)
        return stored_bytes(layer, layout), layer.total

    mesh = (layout.tp, layout.cp, layout.etp, layout.sequence_parallel)
    return pricing.memo(("layer", routed, mesh, layout.micro_batch, layout.recompute), price)


def activation_bytes(pricing: Pricing, layout: Layout, load: StageLoad, stage: int) -> float:
    """Activations of all micro-batches in flight, plus the working set of one layer."""
    problem = pricing.problem
    tokens = problem.job.sequence_length * layout.micro_batch / layout.cp
    micro_batches = max(layout.micro_batches(problem.job.global_batch), 1)
    flight = chunks_in_flight(stage, layout.pp, layout.vpp, micro_batches) / layout.vpp
    kept = working = 0.0
    mtp_routed = load.mtp_layers and problem.model.is_moe(problem.model.layers - 1)
    routed = load.routed_layers + (load.mtp_layers if mtp_routed else 0)
    dense = load.layers + load.mtp_layers - routed
    for kind, count in ((False, dense), (True, routed)):
        if count:
            stored, whole = layer_bytes(pricing, layout, kind)
            kept += count * stored * flight
            working = max(working, whole - stored)
    if load.embedding:
        stream = 2 * tokens * problem.model.hidden
        kept += flight * stream / (layout.tp if layout.sequence_parallel else 1)
    return kept + working


def logits_bytes(pricing: Pricing, layout: Layout, load: StageLoad) -> float:
    """Logits in 16 and 32 bit and the inputs of the head, one micro-batch: 6TV/t + 4Th/t."""
    if not load.loss:
        return 0.0
    problem = pricing.problem
    tokens = problem.job.sequence_length * layout.micro_batch / layout.cp
    vocab = pricing.framework.padded_vocab(problem.model, layout.tp)
    heads = 1 + load.mtp_layers
    return heads * tokens * (6 * vocab + 4 * problem.model.hidden) / layout.tp


def stage_memory(pricing: Pricing, layout: Layout, load: StageLoad, stage: int) -> StageMemory:
    """All terms of one stage."""
    weights, gradients, optimizer = static_bytes(pricing, layout, load)
    activations = activation_bytes(pricing, layout, load, stage)
    logits = logits_bytes(pricing, layout, load)
    degrees = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep)
    communicators = sum(degree > 1 for degree in degrees)
    return StageMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=communicators * COMMUNICATOR_BYTES,
        framework_bytes=CONTEXT_BYTES,
        fragmentation_bytes=FRAGMENTATION * (activations + logits),
    )


def peak_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes of the fullest stage; distinct stages only."""
    return max(
        stage_memory(pricing, layout, kind.load, kind.first).total_bytes
        for kind in pricing.classes(layout.split)
    )


def all_stages(pricing: Pricing, layout: Layout) -> tuple[StageMemory, ...]:
    """Every pipeline rank."""
    model, split = pricing.problem.model, layout.split
    return tuple(
        stage_memory(pricing, layout, stage_load(model, split, stage), stage)
        for stage in range(layout.pp)
    )
