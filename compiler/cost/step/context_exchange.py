"""Time and traffic that context parallelism adds to a layer.

Variants (``cp_comm``): ring (p2p), gather (all_gather), Ulysses (a2a), and a ring over Ulysses
(a2a+p2p).
"""

from __future__ import annotations

from parc.compiler.cost.kernels.attention import BACKWARD_FACTOR
from parc.compiler.cost.kernels.layer_kernels import NOTHING, ForwardBackward
from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.cost.memory.workspaces import key_value_bytes
from parc.compiler.cost.setup.cost_model import CostModel, GroupSpans
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.ir import LayerKind, Layout

MERGE_BYTES = 10
"""Bytes moved per output element and ring step: a 16-bit partial output is read, the fp32 sum is
read and written."""
STEP_SECONDS = 2e-5
"""Launch time per ring step, during which the stream waits; assumed."""


def query_output_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the 16-bit bytes of the queries and attention outputs on a rank.

    The bytes are per layer and micro-batch.
    """
    attention = cost_model.problem.model.attention
    width = 2 * attention.heads * attention.head_dim
    if attention.latent is not None:
        latent = attention.latent
        width = attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim)
    return 2 * layout.tokens(cost_model.problem.job.sequence_length) * width / layout.tp


def all_gather_exchange_seconds(
    cost_model: CostModel, layout: Layout, groups: GroupSpans
) -> ForwardBackward:
    """Return the exposed seconds of all-gather context parallelism per layer, by pass.

    All keys and values are gathered before the attention core, and their gradients are scattered
    after it, as in Llama 3 (arXiv:2407.21783, section 3.3.2) and torchtitan's flex attention.
    """
    nbytes = layout.cp * key_value_bytes(cost_model, layout)
    links = cost_model.links
    return ForwardBackward(
        links.collective_seconds("all_gather", nbytes, groups.cp),
        links.collective_seconds("reduce_scatter", nbytes, groups.cp),
    )


def ulysses_exchange_seconds(
    cost_model: CostModel, layout: Layout, group: GroupSpan
) -> ForwardBackward:
    """Return the exposed seconds of Ulysses context parallelism per layer, by pass.

    Queries, keys and values pass through all-to-alls before the attention core. The attention
    output passes through one all-to-all after the core (DeepSpeed-Ulysses, arXiv:2309.14509,
    section 3.1). Forward and backward pass are counted, but not the time to copy heads if there are
    fewer key-value heads than ranks.
    """
    nbytes = key_value_bytes(cost_model, layout) + query_output_bytes(cost_model, layout)
    # Forward and backward send the same bytes.
    each = cost_model.links.collective_seconds("all_to_all", nbytes, group)
    return ForwardBackward(each, each)


def ring_exchange_seconds(
    cost_model: CostModel, layout: Layout, groups: GroupSpans, core: float
) -> ForwardBackward:
    """Return the exposed seconds of ring context parallelism per layer, by pass.

    In each step of the ring, a rank sends keys and values to the next rank. These transfers overlap
    with the attention core. ``core`` is the time of the core's forward pass in seconds.
    """
    # A ring of c ranks has c - 1 steps. The backward pass sends twice the bytes of the forward
    # pass. Each step also launches kernels and adds its part of the output to the fp32 sum: once in
    # the forward pass, about twice in the backward pass.
    job, attention = cost_model.problem.job, cost_model.problem.model.attention
    tokens = layout.tokens(job.sequence_length)
    steps = groups.cp_p2p.size - 1
    # Only the output of the attention core is merged, whose width is that of the query heads.
    heads = attention.heads * attention.head_dim / layout.tp
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    merge = steps * (MERGE_BYTES * tokens * heads / rate + STEP_SECONDS)
    hop = cost_model.links.message_seconds(key_value_bytes(cost_model, layout), groups.cp_stride)
    # In the backward pass, keys and values and their gradients are sent.
    return ForwardBackward(
        max(0.0, steps * hop - core) + merge,
        max(0.0, 2 * steps * hop - BACKWARD_FACTOR * core) + 2 * merge,
    )


def attention_exchange_seconds(
    cost_model: CostModel, layout: Layout, groups: GroupSpans, core: float
) -> ForwardBackward:
    """Return the exposed seconds of context parallelism in one attention layer, by pass.

    The time is per micro-batch; without context parallelism it is 0. ``core`` is the forward time
    of the attention core in seconds.
    """
    # In the hierarchical variant (a2a+p2p), neighboring ranks exchange heads for tokens by
    # all-to-all, so that each rank has the tokens of all its neighbors for its part of the heads.
    # The ring over the groups of neighbors sends as many bytes per step as a ring over all ranks,
    # in fewer steps (TransformerEngine, attention/dot_product_attention/context_parallel.py,
    # AttnFuncWithCPAndKVP2P).
    if layout.cp == 1:
        return NOTHING
    if layout.cp_comm == "all_gather":
        return all_gather_exchange_seconds(cost_model, layout, groups)
    if layout.cp_comm == "a2a":
        return ulysses_exchange_seconds(cost_model, layout, groups.cp)
    ring = ring_exchange_seconds(cost_model, layout, groups, core)
    return ring + ulysses_exchange_seconds(cost_model, layout, groups.cp_a2a)


def mixer_exchange_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind, core: float
) -> ForwardBackward:
    """Return the exposed seconds of context parallelism in one layer of type ``kind``, by pass.

    The time is per micro-batch. ``core`` is the forward time of the layer's attention core in
    seconds. In recurrent layers, ranks use an all-to-all, after which each rank has all tokens for
    a part of the heads.
    """
    if layout.cp == 1 or kind.mixer == "none":
        return NOTHING
    groups = cost_model.group_spans(layout)
    seconds = NOTHING
    if kind.attends:
        seconds = attention_exchange_seconds(cost_model, layout, groups, core)
    if not kind.recurrent:
        return seconds
    nbytes = recurrence_exchange_bytes(cost_model, layout, kind)
    swapped = cost_model.links.collective_seconds("all_to_all", nbytes, groups.cp)
    return seconds + ForwardBackward(swapped, swapped)


def recurrence_exchange_bytes(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the 16-bit bytes that a rank exchanges for a recurrent layer in the forward pass."""
    # Outputs of the input projection and inputs of the output projection (Megatron-Core,
    # ssm/mamba_context_parallel.py; ssm/gated_delta_net, tensor_a2a_cp2hp).
    part = recurrence_of_layer(cost_model.problem.model, kind)
    width = part.projected + part.inner if part else 0
    return 2 * layout.tokens(cost_model.problem.job.sequence_length) * width / layout.tp


def context_exchange_bytes(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> dict[str, float]:
    """Return {mesh axis: bytes that a rank sends for context parallelism} of one layer.

    The bytes are the sum over the forward and backward pass of one micro-batch.
    """
    if kind.mixer == "none":
        return {}
    if kind.recurrent:
        # No framework with context parallelism supports attention next to a recurrence.
        swapped = 2 * recurrence_exchange_bytes(cost_model, layout, kind)
        return {"cp": swapped * (layout.cp - 1) / layout.cp}
    # Factors: an exchange happens forward and backward (2); a ring sends gradients too (1 + 2 = 3).
    keys, peers = key_value_bytes(cost_model, layout), layout.cp - 1
    if layout.cp_comm == "all_gather":
        return {"cp": 2 * peers * keys}
    swapped = 2 * (keys + query_output_bytes(cost_model, layout))
    if layout.cp_comm == "a2a":
        return {"cp": swapped * peers / layout.cp}
    if layout.cp_comm == "p2p":
        return {"cp": 3 * peers * keys}
    inner = layout.cp_a2a
    return {
        "cp_a2a": swapped * (inner - 1) / inner,
        "cp_p2p": 3 * (layout.cp_p2p - 1) * keys,
    }
