"""What context parallelism adds to a layer: ring, gather, Ulysses, or a ring over Ulysses."""

from __future__ import annotations

from parc.compiler.cost.kernels.attention import BACKWARD_FACTOR
from parc.compiler.cost.kernels.recurrence import recurrence
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.pricing import Groups, Pricing
from parc.compiler.ir import LayerKind, Layout

MERGE_BYTES = 10
"""An output element a ring step: its part read in 16 bit, the fp32 sum read and written."""
STEP_SECONDS = 2e-5
"""Launches of a ring step that the stream waits for; an assumption."""


def key_bytes(pricing: Pricing, layout: Layout) -> float:
    """Keys and values of one micro-batch that a rank has of its own tokens; 16 bit, K and V."""
    attention = pricing.problem.model.attention
    if attention.latent is None:
        width = max(attention.kv_heads, layout.tp) * attention.head_dim / layout.tp
    else:
        latent = attention.latent
        query = latent.qk_nope_dim + latent.qk_rope_dim
        width = attention.heads * (query + latent.v_dim) / 2 / layout.tp
    return 4 * layout.tokens(pricing.problem.job.sequence_length) * width


def query_bytes(pricing: Pricing, layout: Layout) -> float:
    """Queries and attention outputs of one micro-batch on a rank; 16 bit, Q and O."""
    attention = pricing.problem.model.attention
    width = 2 * attention.heads * attention.head_dim
    if attention.latent is not None:
        latent = attention.latent
        width = attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim)
    return 2 * layout.tokens(pricing.problem.job.sequence_length) * width / layout.tp


def gathered_key_bytes(pricing: Pricing, layout: Layout) -> float:
    """Keys and values of the other context ranks that a rank keeps for the backward pass."""
    if layout.cp == 1 or layout.cp_comm != "all_gather":
        return 0.0
    return (layout.cp - 1) * key_bytes(pricing, layout)


def gather_seconds(pricing: Pricing, layout: Layout, groups: Groups) -> float:
    """All keys and values gathered before the core, their gradients scattered after; exposed.

    Llama 3 (arXiv:2407.21783, section 3.3.2) gathers so; so does flex attention in torchtitan.
    """
    nbytes = layout.cp * key_bytes(pricing, layout)
    links = pricing.links
    gather = links.seconds("all_gather", nbytes, groups.cp)
    return gather + links.seconds("reduce_scatter", nbytes, groups.cp)


def ulysses_seconds(pricing: Pricing, layout: Layout, group: GroupSpan) -> float:
    """All-to-alls of Q, K, V before the core and of its output after, both ways; exposed.

    DeepSpeed-Ulysses, arXiv:2309.14509, section 3.1. Fewer key-value heads than ranks are copied,
    which is left out.
    """
    nbytes = key_bytes(pricing, layout) + query_bytes(pricing, layout)
    return 2 * pricing.links.seconds("all_to_all", nbytes, group)


def ring_seconds(pricing: Pricing, layout: Layout, groups: Groups, core: float) -> float:
    """Keys and values passed on once a step; what the attention core, ``core`` seconds, leaves.

    Every step also merges its part of the output into the fp32 sum, and launches kernels of its
    own: once forward, about twice backward.
    """
    job, attention = pricing.problem.job, pricing.problem.model.attention
    tokens = layout.tokens(job.sequence_length)
    steps = groups.cp_p2p.size - 1
    heads = attention.heads * attention.head_dim / layout.tp
    rate = pricing.problem.cluster.gpu.memory_gb_per_s * 1e9
    merge = steps * (MERGE_BYTES * tokens * heads / rate + STEP_SECONDS)
    hop = pricing.links.hop_seconds(key_bytes(pricing, layout), groups.cp_stride)
    exposed = max(0.0, steps * hop - core) + max(0.0, 2 * steps * hop - BACKWARD_FACTOR * core)
    return exposed + 3 * merge


def exchange_seconds(pricing: Pricing, layout: Layout, groups: Groups, core: float) -> float:
    """Exposed seconds of one layer and micro-batch, forward and backward; 0.0 where cp is 1.

    A hierarchy (``a2a+p2p``) exchanges heads for tokens among neighbours; each then has all of
    their tokens for its share of the heads, so that the ring over the others passes as many bytes
    a step as the ring over all, but takes fewer steps (Transformer Engine,
    attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P).
    """
    if layout.cp == 1:
        return 0.0
    if layout.cp_comm == "all_gather":
        return gather_seconds(pricing, layout, groups)
    if layout.cp_comm == "a2a":
        return ulysses_seconds(pricing, layout, groups.cp)
    ring = ring_seconds(pricing, layout, groups, core)
    return ring + ulysses_seconds(pricing, layout, groups.cp_a2a)


def mixer_seconds(pricing: Pricing, layout: Layout, kind: LayerKind, core: float) -> float:
    """``exchange_seconds`` of a layer of ``kind``, whose attention core takes ``core`` seconds."""
    if layout.cp == 1 or kind.mixer == "none":
        return 0.0
    groups = pricing.groups(layout)
    if kind.mixer == "attention":
        return exchange_seconds(pricing, layout, groups, core)
    nbytes = recurrence_bytes(pricing, layout, kind)
    return 2 * pricing.links.seconds("all_to_all", nbytes, groups.cp)


def recurrence_bytes(pricing: Pricing, layout: Layout, kind: LayerKind) -> float:
    """Bytes of a rank, 16 bit, that a recurrence exchanges for heads and back, forward.

    What the input projection puts out, and what the output projection takes in (Megatron-Core,
    ssm/mamba_context_parallel.py; ssm/gated_delta_net, tensor_a2a_cp2hp).
    """
    part = recurrence(pricing.problem.model, kind)
    width = part.projected + part.inner if part else 0
    return 2 * layout.tokens(pricing.problem.job.sequence_length) * width / layout.tp


def context_bytes(pricing: Pricing, layout: Layout, kind: LayerKind) -> dict[str, float]:
    """Axis -> bytes that a rank sends in one layer and micro-batch, forward and backward."""
    if kind.mixer == "none":
        return {}
    if kind.mixer != "attention":
        swapped = 2 * recurrence_bytes(pricing, layout, kind)
        return {"cp": swapped * (layout.cp - 1) / layout.cp}
    keys, others = key_bytes(pricing, layout), layout.cp - 1
    if layout.cp_comm == "all_gather":
        return {"cp": 2 * others * keys}
    swapped = 2 * (keys + query_bytes(pricing, layout))
    if layout.cp_comm == "a2a":
        return {"cp": swapped * others / layout.cp}
    if layout.cp_comm == "p2p":
        return {"cp": 3 * others * keys}
    inner = layout.cp_a2a
    return {
        "cp_a2a": swapped * (inner - 1) / inner,
        "cp_p2p": 3 * (layout.cp_p2p - 1) * keys,
    }
