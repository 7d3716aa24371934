"""Layers that mix tokens by a recurrence: Gated DeltaNet and Mamba-2, what a token costs in one.

Both run in chunks: products inside a chunk are matrix work, and chunks hand on a state (Yang et
al. 2024, arXiv:2412.06464, section 3; Dao and Gu 2024, arXiv:2405.21060, section 6). Kernels are
many and small, so that matrix work and memory traffic add. Tensor parallelism divides heads, and
so does context parallelism: a rank has all tokens for its share of them, which is the same work.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.cost.kernels.layer_kernels import STREAM_SHARE, Seconds
from parc.compiler.ir import LayerKind, LinearAttention, Mamba, Model

LINEAR_CHUNK = 64
"""Tokens of a chunk (flash-linear-attention, ops/gated_delta_rule/chunk.py)."""
MAMBA_CHUNK = 128
"""Tokens of a chunk (Megatron-Core, ssm/mamba_mixer.py: chunk_size)."""
MATRIX_SHARE = 0.35
"""Of the 16-bit matrix peak, for products of 64 to 256 rows inside a chunk; an assumption."""
MAMBA_PASSES = 56
"""Times that a channel of a Mamba layer passes through memory, forward, as if at full rate: what
fits 12 published runs of Nemotron-H and Nemotron 3 Nano on five types of GPU. It stands for all
that Megatron-Core does there: scans, transposes, norm and gate in fp32."""
BACKWARD = 2.5
"""Backward over forward: each product has two, and states are computed again; an assumption."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One layer and token, all heads; bytes of 16-bit elements unless said."""

    projected: int
    """Width of the input projection."""
    inner: int
    """Width of what goes into the output projection."""
    flops: float
    """Matrix work of the chunks, forward."""
    scanned_bytes: float
    """Memory traffic of the chunks, forward."""
    streamed_bytes: float
    """Memory traffic of convolution, norms and gate, forward."""
    kept_bytes: float
    """What the backward pass needs, the input of the layer not counted."""


def recurrence(model: Model, kind: LayerKind) -> Recurrence | None:
    """The recurrence of a layer of ``kind``; None where it has none."""
    part = model.recurrent(kind)
    if isinstance(part, LinearAttention):
        return _linear(part)
    return None if part is None else _mamba(part)


def scan_seconds(kernels: KernelFit, part: Recurrence, tokens: float) -> Seconds:
    """Chunks of ``tokens`` tokens on one rank, the heads that it has counted in tokens."""
    fit = kernels.gemm("bf16")
    seconds = part.flops / (MATRIX_SHARE * fit.flops_per_second)
    seconds += part.scanned_bytes / (STREAM_SHARE * fit.bytes_per_second)
    return Seconds(tokens * seconds, BACKWARD * tokens * seconds)


def _linear(linear: LinearAttention) -> Recurrence:
    """Gated DeltaNet as flash-linear-attention runs it.

    Inside a chunk of C: scores of keys and of queries, W = T K and U = T V with the inverse T,
    scores times values; with the state: W S, Q S, K' U. Queries and keys are repeated for the
    value heads that share them. Kept: the projection, what is convolved and normed, T, decay and
    step a head, outputs before and after their norm.
    """
    heads, keys, values = linear.value_heads, linear.key_dim, linear.value_dim
    wide, chunk = heads * keys, LINEAR_CHUNK
    state = heads * keys * values
    repeated = 2 * wide if linear.value_heads > linear.key_heads else 0
    return Recurrence(
        projected=linear.projected,
        inner=linear.inner,
        flops=2 * chunk * heads * (3 * keys + 2 * values) + 6 * state,
        scanned_bytes=2 * (7 * wide + 6 * linear.inner + 2 * state / chunk) + 12 * heads * chunk,
        streamed_bytes=4 * linear.conv_channels
        + 8 * linear.key_width
        + 4 * repeated
        + 6 * linear.inner,
        kept_bytes=2 * (linear.projected + linear.conv_channels + 2 * wide + chunk * heads)
        + 2 * 2 * linear.inner
        + 8 * heads,
    )


def _mamba(mamba: Mamba) -> Recurrence:
    """Mamba-2 as its fused kernels run it; states of chunks pass three times, in fp32.

    Kept: the projection, and outputs before and after their norm (mamba_ssm,
    ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn); the rest is computed again.
    """
    matrices, state = mamba.groups * mamba.state_size, mamba.inner * mamba.state_size
    return Recurrence(
        projected=mamba.projected,
        inner=mamba.inner,
        flops=2 * MAMBA_CHUNK * (matrices + mamba.inner) + 4 * state,
        scanned_bytes=2 * MAMBA_PASSES * (mamba.inner + matrices) + 12 * state / MAMBA_CHUNK,
        streamed_bytes=4 * mamba.conv_channels + 6 * mamba.inner,
        kept_bytes=2 * (mamba.projected + 2 * mamba.inner),
    )
