"""Context parallelism by a gather or by Ulysses; the ring stands with the layer it hides behind."""

from __future__ import annotations

from parc.compiler.cost.pricing import Groups, Pricing
from parc.compiler.ir import Layout


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


def ulysses_seconds(pricing: Pricing, layout: Layout, groups: Groups) -> float:
    """All-to-alls of Q, K, V before the core and of its output after, both ways; exposed.

    DeepSpeed-Ulysses, arXiv:2309.14509, section 3.1. Fewer key-value heads than ranks are copied,
    which is left out.
    """
    nbytes = key_bytes(pricing, layout) + query_bytes(pricing, layout)
    return 2 * pricing.links.seconds("all_to_all", nbytes, groups.cp)


def context_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes that a rank sends in one layer and micro-batch, forward and backward."""
    keys, others = key_bytes(pricing, layout), layout.cp - 1
    if layout.cp_comm == "all_gather":
        return 2 * others * keys
    if layout.cp_comm == "a2a":
        return 2 * (keys + query_bytes(pricing, layout)) * others / layout.cp
    return 3 * others * keys
