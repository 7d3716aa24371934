"""Time of the kernels of one layer on one rank by shape, without communication."""

from __future__ import annotations

import math

from parc.compiler.cost.counts.flops import mean_visible_keys, multiplied_extra_weights
from parc.compiler.cost.counts.params import indexer_params
from parc.compiler.cost.kernels.attention import AttentionShape, prefill_seconds
from parc.compiler.cost.kernels.gemm import (
    OUTPUT_BYTES,
    GemmFit,
    batched_gemm_seconds,
    gemm_seconds,
)
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.ir import (
    FUSED_KERNELS,
    Attention,
    LayerKind,
    Layout,
    LowRank,
    Model,
    ProgramTraffic,
)
from parc.compiler.ir.frozen import frozen

GemmShape = tuple[float, float, float]
"""(m, n, k) of C[m, n] = A[m, k] B[k, n]."""

HEAD_ALIGNMENT = 8
"""16-bit elements to which tensor cores require operands to be aligned (cuBLAS documentation)."""
MISALIGNED_HEAD = 4
"""Approximate slow-down of a product whose head dimension is not aligned; assumed."""
WEIGHT_ALIGNMENT = 64
"""16-bit elements, 128 bytes, to which rows of a weight should be aligned (NVIDIA, Matrix
Multiplication Background User's Guide, on A100; Anthony et al. 2024, arXiv:2401.14489)."""
MISALIGNED_WEIGHT = 1.2
"""Approximate slow-down of a product whose weight does not have this alignment; assumed."""
STREAM_SHARE = 0.85
"""Share of the memory bandwidth that streaming kernels reach; assumed."""
ROW_TILE = 64
"""Multiple to which the rows of an expert are padded; assumed."""


@frozen
class ForwardBackward:
    """Seconds, or bytes, of the forward and of the backward pass."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        """Return the sum of both passes."""
        return self.forward + self.backward

    def scaled(self, factor: float) -> ForwardBackward:
        """Return both passes, multiplied by ``factor``."""
        return ForwardBackward(factor * self.forward, factor * self.backward)

    def __add__(self, other: ForwardBackward) -> ForwardBackward:
        """Return the sum of two activities, by pass."""
        return ForwardBackward(self.forward + other.forward, self.backward + other.backward)


NOTHING = ForwardBackward(0.0, 0.0)
"""No seconds, or no bytes."""


def attention_gemm_shapes(model: Model, layout: Layout, tokens: float) -> list[GemmShape]:
    """Return the (m, n, k) shapes of one layer's attention projections on one rank.

    The shapes belong to the forward pass. ``tokens`` is the number of tokens that the rank
    processes.
    """
    attention, t = model.attention, layout.tp
    latent = attention.latent
    if latent is None:
        # With fewer key-value heads than tensor ranks, every rank computes a whole head.
        keys = max(attention.kv_heads / t, 1.0)
        # Width of values relative to keys.
        spread = attention.value_width / attention.head_dim
        if attention.shared_kv:
            keys = 0.0
        kinds = 1 if attention.keys_as_values or attention.joint_kv else 1 + spread
        width = attention.query_projection_heads / t + kinds * keys
        inner = attention.heads * attention.value_width / t
        if attention.low_rank is not None:
            return _low_rank_gemm_shapes(model, attention.low_rank, tokens)
        return [(tokens, width * attention.head_dim, model.hidden), (tokens, model.hidden, inner)]
    heads = attention.heads / t
    query_dim = latent.qk_nope_dim + latent.qk_rope_dim
    # Down-projections are not split; with sequence parallelism each rank runs them on its tokens.
    share = tokens / (t if layout.sequence_parallel else 1)
    rank = latent.q_lora_rank or model.hidden
    shapes = [
        (share, latent.kv_lora_rank + latent.qk_rope_dim, model.hidden),
        (tokens, heads * query_dim, rank),
        (tokens, heads * (latent.qk_nope_dim + latent.v_dim), latent.kv_lora_rank),
        (tokens, model.hidden, heads * latent.v_dim),
    ]
    if latent.q_lora_rank:
        shapes.append((share, latent.q_lora_rank, model.hidden))
    return shapes


def _low_rank_gemm_shapes(model: Model, ranks: LowRank, tokens: float) -> list[GemmShape]:
    """Return the (m, n, k) shapes of low-rank projections and of the projection to keys."""
    attention, hidden = model.attention, model.hidden
    groups, inputs = ranks.output_groups, attention.heads * attention.value_width
    return [
        (tokens, attention.key_value_projection_width, hidden),
        (tokens, ranks.queries, hidden),
        (tokens, attention.heads * attention.head_dim, ranks.queries),
        # One product per group of heads, as one product with the rows of all groups.
        (tokens * groups, ranks.output, inputs / groups),
        (tokens, hidden, groups * ranks.output),
    ]


def extra_gemm_shapes(
    model: Model, kind: LayerKind, tokens: float, sequence: int
) -> list[GemmShape]:
    """Return the (m, n, k) shapes of the products that only some models have, on one rank.

    They are the projections and scores of an indexer, the projections that compress keys, the
    projections to and from experts on a latent width, gates per head, and extra weights. No rank
    splits them. ``sequence`` is the sequence length.
    """
    shapes: list[GemmShape] = []
    attention = model.attention
    if kind.attends and attention.head_gate:
        shapes.append((tokens, attention.heads, model.hidden))
    if kind.attends and attention.compression is not None:
        width = attention.kv_heads * attention.cached_width
        inputs = attention.compression.parameters(model.hidden, width, 0) / model.hidden
        shapes.append((tokens, inputs, model.hidden))
    indexer = attention.indexer if kind.attends else None
    if indexer is not None and not indexer.shared:
        inputs = indexer_params(model, indexer) / model.hidden
        # Causal masking halves the scores, which are one product over all index heads.
        rate = 1 if attention.compression is None else attention.compression.rate
        scores = indexer.heads * sequence / rate / 2
        shapes += [(tokens, inputs, model.hidden), (tokens, scores, indexer.head_dim)]
    if kind.routed and model.experts is not None and model.experts.latent_size:
        latent = model.experts.latent_size
        shapes += [(tokens, latent, model.hidden), (tokens, model.hidden, latent)]
    extra = multiplied_extra_weights(model, kind)
    return [*shapes, (tokens, extra / model.hidden, model.hidden)] if extra else shapes


def mlp_gemm_shapes(model: Model, layout: Layout, tokens: float, width: float) -> list[GemmShape]:
    """Return the (m, n, k) shapes of the GEMMs of an MLP with inner width ``width`` on one rank.

    The shapes belong to the forward pass, in which gate and up-projection are a single GEMM.
    ``tokens`` is the number of tokens that the rank processes.
    """
    inner = width / layout.tp
    columns = 2 * inner if model.ffn.gated else inner
    return [(tokens, columns, model.hidden), (tokens, model.hidden, inner)]


def gemm_forward_backward_seconds(
    fit: GemmFit, shapes: list[GemmShape], sum_bytes: float | None
) -> ForwardBackward:
    """Return the forward and backward times in seconds of GEMMs with the given (m, n, k) shapes.

    The backward pass computes the gradients of input and weight. ``sum_bytes`` is the traffic per
    weight gradient in the kernel that computes it: 2 if it only writes the gradient in 16 bit, 8 if
    it adds the gradient to a sum in fp32; None for frozen weights, which have no gradient.
    """
    forward = backward = 0.0
    for m, n, k in shapes:
        slow_down = MISALIGNED_WEIGHT if n % WEIGHT_ALIGNMENT or k % WEIGHT_ALIGNMENT else 1.0
        forward += slow_down * gemm_seconds(fit, m, n, k)
        # Gradients dA[m, k] = dC B^T with depth n, and transposed dB[n, k] = dC^T A with depth m.
        backward += slow_down * gemm_seconds(fit, m, k, n)
        if sum_bytes is not None:
            backward += slow_down * gemm_seconds(fit, n, k, m, sum_bytes)
    return ForwardBackward(forward, backward)


def unfused_attention_core_seconds(
    kernels: KernelFit,
    model: Model,
    layout: Layout,
    sequence: int,
    traffic: ProgramTraffic,
) -> ForwardBackward:
    """Return the forward and backward times in seconds of an attention core without a fused kernel.

    The times are for one layer and one micro-batch. Software without FlashAttention computes
    attention in this way: it writes the scores to memory. ``traffic`` states the bytes that the
    program moves per score.
    """
    # The forward pass has two batched products over the full square of scores (the masked half is
    # not skipped), then scaling, mask, softmax and dropout. The backward pass has four products and
    # the traffic of the gradients.
    attention = model.attention
    heads = layout.micro_batch * attention.heads / layout.tp / layout.cp
    scores = heads * sequence * sequence
    fit = kernels.gemm_fit("bf16").without_gaps_and_casts()
    rows = heads * sequence
    product = gemm_seconds(fit, rows, sequence, attention.head_dim)
    # The score product and the value product have the same FLOPs; the slower one is taken for both.
    product = max(product, gemm_seconds(fit, rows, attention.head_dim, sequence))
    if attention.head_dim % HEAD_ALIGNMENT:
        product *= MISALIGNED_HEAD
    rate = fit.bytes_per_second * STREAM_SHARE
    moved = traffic.score_bytes(heads, sequence)
    return ForwardBackward(
        2 * product + moved.forward * scores / rate,
        4 * product + moved.backward * scores / rate,
    )


def mean_head_dim(attention: Attention) -> float:
    """Return the mean of the widths of the two products of an attention core.

    The fit has one head dim for both.
    """
    latent = attention.latent
    if latent is not None:
        return (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim) / 2
    value = attention.value_dim or attention.head_dim
    return (attention.head_dim + value) / 2


def fused_attention_core_seconds(
    kernels: KernelFit, model: Model, layout: Layout, sequence: int
) -> float:
    """Return the forward time in seconds of one layer's fused attention core for one micro-batch.

    The work for a sequence is divided evenly among the cp ranks. If some layers have a sliding
    window, the result is the mean over all layers.
    """
    attention = model.attention
    head_dim = mean_head_dim(attention)
    heads = attention.heads / layout.tp
    keys = heads if attention.latent is not None else max(attention.kv_heads / layout.tp, 1.0)

    def windowed_seconds(window: float) -> float:
        """Return the core's forward seconds for a window of ``window`` tokens (0: none)."""
        shape = AttentionShape(layout.micro_batch, sequence, heads, keys, head_dim, window=window)
        return prefill_seconds(kernels.prefill, shape) / layout.cp

    if attention.compression is not None:
        # The window with the same mean number of keys: w (1 - w / 2s) keys for sequence length s.
        masked = sequence - 2 * mean_visible_keys(model, sequence)
        return windowed_seconds(sequence - math.sqrt(max(sequence * masked, 0.0)))
    if attention.indexer is not None and attention.indexer.top_k < sequence:
        return windowed_seconds(float(attention.indexer.top_k))
    if attention.window is None or attention.window >= sequence:
        return windowed_seconds(0.0)
    # A query of a chunk attends to half of the chunk on average.
    window = attention.window / 2 if attention.chunked else float(attention.window)
    every = attention.full_attention_every
    share = 1 / every if every else 0.0
    return share * windowed_seconds(0.0) + (1 - share) * windowed_seconds(window)


def expert_gemm_shapes(model: Model, layout: Layout, tokens: float) -> list[GemmShape]:
    """Return the (m, n, k) shapes of the forward GEMMs of one routed expert on one rank.

    Routing is assumed to be balanced. ``tokens`` is the number of tokens per micro-batch that a
    tensor-parallel group processes.
    """
    experts = model.experts
    assert experts is not None
    rows = routed_rows(model, layout, tokens) * layout.ep / experts.count
    # A grouped GEMM needs whole tiles for each expert.
    padded = -(-rows // ROW_TILE) * ROW_TILE
    inner = experts.size / layout.etp
    columns = 2 * inner if model.ffn.gated else inner
    return [(padded, columns, model.expert_input_width), (padded, model.expert_input_width, inner)]


def routed_rows(model: Model, layout: Layout, tokens: float) -> float:
    """Return the number of rows that the routed experts of one rank process per micro-batch.

    Routing is assumed to be balanced.
    """
    # Each rank of the expert group contributes tokens / tp, so that a rank processes top-k times
    # that number. Each of etp ranks computes all rows of its group in parts.
    experts = model.experts
    assert experts is not None
    return experts.top_k * tokens / layout.tp * layout.etp


def expert_gemm_seconds(
    fit: GemmFit, local: float, shapes: list[GemmShape], sum_bytes: float | None
) -> ForwardBackward:
    """Return the forward and backward times in seconds of the GEMMs of ``local`` equal experts.

    ``shapes`` are the forward GEMMs of one expert. ``sum_bytes`` is the traffic per weight gradient
    in the kernel that computes it, as in ``gemm_forward_backward_seconds``.
    """
    # Experts have few rows, so that the weight gradients have a short inner dimension: the traffic
    # of their sums, which the kernel overlaps with the products, can take longer than the products.
    forward = backward = 0.0
    for m, n, k in shapes:
        slow_down = MISALIGNED_WEIGHT if n % WEIGHT_ALIGNMENT or k % WEIGHT_ALIGNMENT else 1.0
        forward += slow_down * batched_gemm_seconds(fit, local, (m, n, k), OUTPUT_BYTES)
        backward += slow_down * batched_gemm_seconds(fit, local, (m, k, n), OUTPUT_BYTES)
        if sum_bytes is not None:
            backward += slow_down * batched_gemm_seconds(fit, local, (n, k, m), sum_bytes)
    return ForwardBackward(forward, backward)


def element_wise_bytes(
    model: Model, layout: Layout, kind: LayerKind, tokens: float, traffic: ProgramTraffic
) -> ForwardBackward:
    """Return the bytes that the element-wise kernels of one layer move, by pass.

    ``traffic`` contains the bytes per element. The traffic of recurrent mixers is not included; see
    ``Recurrence.streamed_bytes``.
    """
    t, model = layout.tp, model.with_shapes_of(kind)
    attention, experts = model.attention, model.experts
    # Hyper-connections read all residual streams, and add to each of them. Sequence parallelism
    # splits norms and residual additions over tp.
    hidden = tokens * model.hidden * model.residual_streams
    hidden /= t if layout.sequence_parallel else 1
    norms = kind.sub_layers * model.norms_per_layer / 2
    parts = [(traffic.norm, norms * hidden), (traffic.residual, kind.sub_layers * hidden)]
    if kind.attends:
        queries = tokens * attention.heads * attention.head_dim / t
        keys = tokens * attention.kv_heads * attention.head_dim / t
        parts.append((traffic.rotation, queries + keys))
        if attention.qk_norm != "none":
            parts.append((traffic.head_norm, queries + keys))
        if attention.gate or attention.head_gate:
            # The gate on the attention output reads both and writes one.
            parts.append((FUSED_KERNELS.gated, queries))
    width = float(model.ffn.size if kind.mlp == "dense" else 0)
    if kind.routed and experts is not None:
        width = float(experts.shared_size)
    parts.append((traffic.gated if model.ffn.gated else traffic.plain, tokens * width / t))
    return ForwardBackward(
        sum(each.forward * elements for each, elements in parts),
        sum(each.backward * elements for each, elements in parts),
    )
