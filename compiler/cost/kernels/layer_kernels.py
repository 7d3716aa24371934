"""The kernels of one layer on one rank: shapes in, seconds out; no communication."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kernels.attention import AttentionShape, prefill_seconds
from parc.compiler.cost.kernels.gemm import GemmFit, gemm_seconds
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.ir import LayerKind, Layout, Model

Shape = tuple[float, float, float]
"""(m, n, k) of C[m, n] = A[m, k] B[k, n]."""

SCORE_BYTES = 12
"""A score in 16 bit: written; read, but for masked ones, and written by softmax; read and written
with a mask by dropout; read."""
SCORE_GRADIENT_BYTES = 17
"""Its gradient: written; dropout reads it, its mask and writes; softmax reads that and its own
output, but for masked ones, and writes; two products read it, one what dropout wrote."""
ALIGNED = 8
"""16-bit elements of an address that tensor cores load at once (cuBLAS documentation)."""
MISALIGNED = 4
"""Times that a product without that alignment takes longer, about."""
WHOLE = 64
"""16-bit elements of a row of a weight that load best, 128 bytes (NVIDIA, Matrix Multiplication
Background User's Guide, on A100; Anthony et al. 2024, arXiv:2401.14489)."""
UNEVEN = 1.2
"""Times that a weight with other rows takes longer, about."""
STREAM_SHARE = 0.85
"""Of the memory bandwidth, for streaming kernels."""
ROW_TILE = 64
"""Rows of an expert are padded to this."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Forward and backward seconds."""

    forward: float
    backward: float


def attention_gemms(model: Model, layout: Layout, tokens: float) -> list[Shape]:
    """Projections of one layer, forward."""
    attention, t = model.attention, layout.tp
    latent = attention.latent
    if latent is None:
        keys = max(attention.kv_heads / t, 1.0)
        width = (attention.projected_heads / t + 2 * keys) * attention.head_dim
        inner = attention.heads * attention.head_dim / t
        return [(tokens, width, model.hidden), (tokens, model.hidden, inner)]
    heads = attention.heads / t
    query_dim = latent.qk_nope_dim + latent.qk_rope_dim
    # Down-projections are whole on every rank and work on its share of the sequence.
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


def mlp_gemms(model: Model, layout: Layout, tokens: float, width: float) -> list[Shape]:
    """An MLP of hidden ``width``, forward."""
    inner = width / layout.tp
    columns = 2 * inner if model.ffn.gated else inner
    return [(tokens, columns, model.hidden), (tokens, model.hidden, inner)]


def gemm_pass(fit: GemmFit, shapes: list[Shape]) -> Seconds:
    """Forward, and backward by input and by weight, of matrix multiplications."""
    forward = backward = 0.0
    for m, n, k in shapes:
        odd = UNEVEN if n % WHOLE or k % WHOLE else 1.0
        forward += odd * gemm_seconds(fit, m, n, k)
        backward += odd * (gemm_seconds(fit, m, k, n) + gemm_seconds(fit, n, k, m))
    return Seconds(forward, backward)


def unfused_core(kernels: KernelFit, model: Model, layout: Layout, sequence: int) -> Seconds:
    """Attention core without a fused kernel, as before FlashAttention: scores go through memory.

    Forward: two batched products over the full square, and scale, mask, softmax and dropout over
    every score. Backward: four products, and the traffic of gradients.
    """
    attention = model.attention
    heads = layout.micro_batch * attention.heads / layout.tp / layout.cp
    scores = heads * sequence * sequence
    fit = kernels.gemm("bf16").device_only()
    rows = heads * sequence
    product = gemm_seconds(fit, rows, sequence, attention.head_dim)
    product = max(product, gemm_seconds(fit, rows, attention.head_dim, sequence))
    if attention.head_dim % ALIGNED:
        product *= MISALIGNED
    rate = fit.bytes_per_second * STREAM_SHARE
    return Seconds(
        2 * product + SCORE_BYTES * scores / rate,
        4 * product + SCORE_GRADIENT_BYTES * scores / rate,
    )


def core_seconds(kernels: KernelFit, model: Model, layout: Layout, sequence: int) -> float:
    """Forward attention core of one micro-batch; cp ranks share whole sequences evenly."""
    attention = model.attention
    latent = attention.latent
    head_dim = float(attention.head_dim)
    if latent is not None:
        head_dim = (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim) / 2
    heads = attention.heads / layout.tp
    keys = heads if latent is not None else max(attention.kv_heads / layout.tp, 1.0)

    def price(window: float) -> float:
        shape = AttentionShape(layout.micro_batch, sequence, heads, keys, head_dim, window=window)
        return prefill_seconds(kernels.prefill, shape) / layout.cp

    if attention.window is None or attention.window >= sequence:
        return price(0.0)
    every = attention.full_attention_every
    share = 1 / every if every else 0.0
    return share * price(0.0) + (1 - share) * price(float(attention.window))


def expert_gemms(model: Model, layout: Layout, tokens: float) -> list[Shape]:
    """Routed experts of one rank as one grouped multiplication: rows of all its experts.

    Every rank of the expert group brings tokens / tp, so that routing evenly a rank works on
    top-k of its own number. An expert's rows are filled up to whole tiles.
    """
    experts = model.experts
    assert experts is not None
    local = experts.count / layout.ep
    rows = experts.top_k * tokens / layout.tp * layout.etp
    padded = local * -(-rows / local // ROW_TILE) * ROW_TILE
    inner = experts.size / layout.etp
    columns = 2 * inner if model.ffn.gated else inner
    return [(padded, columns, model.hidden), (padded, model.hidden, inner)]


def stream_bytes(model: Model, layout: Layout, kind: LayerKind, tokens: float) -> float:
    """Bytes that the element-wise kernels of one layer's forward move.

    A norm a part (read and write), a residual addition (two reads and a write), rotation of
    queries and keys, the activation function (reads 2 f gated, 1 f plain, writes f), a gate on
    the attention output (two reads and a write). What recurrences move is theirs.
    """
    t = layout.tp
    attention, experts = model.attention, model.experts
    stream = 10 * kind.parts * tokens * model.hidden / (t if layout.sequence_parallel else 1)
    mixed = 0.0
    if kind.mixer == "attention":
        mixed = 4 * (attention.heads + attention.kv_heads) * attention.head_dim
        mixed += 6 * attention.heads * attention.head_dim if attention.gate else 0
    width = float(model.ffn.size if kind.mlp == "dense" else 0)
    if kind.routed and experts is not None:
        width = float(experts.shared_size)
    gate = 6 if model.ffn.gated else 4
    return stream + tokens * (mixed + gate * width) / t
