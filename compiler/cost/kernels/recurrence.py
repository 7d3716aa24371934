"""FLOPs, bytes and times of linear attention, Mamba and short convolutions.

Linear attention and Mamba-2 process chunks of tokens: a chunk needs matrix products, and passes a
state to the next chunk (Yang et al. 2024, arXiv:2412.06464, section 3; Dao and Gu 2024,
arXiv:2405.21060, section 6). There are many small kernels, so that the times of matrix products and
memory traffic add up. Tensor parallelism divides the heads. Context parallelism also divides heads
and gives a rank all tokens for its heads, which is the same amount of work.

Constants are fitted per GPU type to timings of the gated delta rule (docs/kernel-fits.md) with the
kernels of flash-linear-attention, which training uses. The kernels of the other recurrences have
the same structure and are assumed to reach the same shares of the data sheet. Serving engines also
have other kernels, so that ``serving/layer_seconds.py`` reads only FLOPs and bytes of this module.
"""

from __future__ import annotations

from parc.compiler.ir import Convolution, LayerKind, LinearAttention, Mamba, Model
from parc.compiler.ir.frozen import frozen

LINEAR_CHUNK = 64
"""Tokens per chunk (flash-linear-attention, ops/gated_delta_rule/chunk.py)."""
LIGHTNING_CHUNK = 256
"""Tokens per chunk of lightning attention (vLLM 0.33, layers/lightning_attn.py: BLOCK)."""
MAMBA_CHUNK = 128
"""Tokens per chunk (Megatron-Core, ssm/mamba_mixer.py: chunk_size)."""
SELECTIVE_CHUNK = 2048
"""Tokens per chunk of Mamba-1 (mamba_ssm, csrc/selective_scan/selective_scan_fwd_kernel.cuh)."""
VECTOR_RATIO = 989 / 67
"""Peak of products of 16-bit matrices divided by that of fp32 vectors (data sheet of H100 SXM)."""
SCAN_BACKWARD = 2.5
"""Backward time divided by forward time. Assumed, because the backward pass has two products for
each forward product and recomputes states."""


@frozen
class ScanFit:
    """Fitted constants of the kernels of a recurrence on one GPU type, 16 bit, forward only."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    matrix_share: float
    """Share of the matrix peak that the products inside chunks reach."""
    memory_share: float
    """Share of the memory bandwidth that the traffic of chunks reaches."""
    chunk_seconds: float
    """Seconds per chunk of one sequence: each chunk waits for the state of the one before it."""
    launch_seconds: float
    """Seconds of a layer without work: the launches of all its kernels."""


@frozen
class Recurrence:
    """Widths, FLOPs and bytes of one recurrent layer, per token and over all heads."""

    projected: int
    """Width of the input projection."""
    inner: int
    """Input width of the output projection."""
    chunk: int
    """Tokens per chunk; 0 if the layer passes no state from chunk to chunk."""
    flops: float
    """FLOPs of the products inside chunks, forward."""
    scanned_bytes: float
    """Memory traffic of the chunks, forward."""
    streamed_bytes: float
    """Memory traffic of convolution, norms and gate, forward."""
    kept_bytes: float
    """Bytes saved for the backward pass, without the input of the layer."""
    inner_products: tuple[tuple[float, int], ...] = ()
    """Shapes (outputs, inputs) of further projections. In Kimi Delta Attention, they expand decay
    and gate to all heads; in Mamba-1, they compute B, C and the step sizes."""


def recurrence_of_layer(model: Model, kind: LayerKind) -> Recurrence | None:
    """Return the widths, FLOPs and bytes per token of the recurrent mixer of a layer.

    The result is None if the mixer of layers of type ``kind`` is not recurrent.
    """
    part = model.recurrent_mixer(kind)
    if isinstance(part, LinearAttention):
        return _lightning_attention(part) if part.kind == "lightning" else gated_delta_rule(part)
    if isinstance(part, Convolution):
        return _convolution(part)
    if part is None:
        return None
    return _mamba1(part) if part.step_rank else _mamba2(part)


def scan_seconds(fit: ScanFit, part: Recurrence, tokens: float, sequence: float) -> float:
    """Return the time in seconds of the recurrence of one layer on one rank, forward.

    ``tokens`` is the number of tokens times the fraction of the heads that the rank computes.
    ``sequence`` is the number of tokens of its longest sequence.
    """
    if not part.chunk:
        return 0.0
    # Added and not overlapped: the many small kernels run one after the other.
    seconds = part.flops / (fit.matrix_share * fit.flops_per_second)
    seconds += part.scanned_bytes / (fit.memory_share * fit.bytes_per_second)
    serial = sequence / part.chunk * fit.chunk_seconds
    return fit.launch_seconds + serial + tokens * seconds


def gated_delta_rule(linear: LinearAttention) -> Recurrence:
    """Return the projection widths, FLOPs and bytes per token of Gated DeltaNet or Kimi Delta.

    FLOPs and bytes are counted as in the kernels of flash-linear-attention. Kimi Delta Attention
    has the same products, and a decay in fp32 for each channel of the keys
    (flash-linear-attention, ops/kda/chunk.py).
    """
    # K: keys, V: values, Q: queries, T: the inverse of a triangular matrix, S: the state. Products
    # inside a chunk: the scores of keys and of queries, W = T K, U = T V, scores times values.
    # Products with the state: W S, Q S, K' U. Queries and keys are repeated for the value heads
    # that share them. Saved for the backward pass: the projection, the convolved and normed inputs,
    # T, decay and step size per head, the outputs before and after the norm.
    heads, keys, values = linear.value_heads, linear.key_dim, linear.value_dim
    wide, chunk = heads * keys, LINEAR_CHUNK
    state = heads * keys * values
    # Written and read once more if queries and keys are repeated for several value heads.
    repeated = 2 * wide if linear.value_heads > linear.key_heads else 0
    # The decay of each channel is written, and read by the kernels of scores and state.
    decay = 4 * wide if linear.kind == "kimi-delta" else 0
    return Recurrence(
        projected=linear.input_projection_width,
        inner=linear.inner_width,
        chunk=chunk,
        flops=2 * chunk * heads * (3 * keys + 2 * values) + 6 * state,
        scanned_bytes=2 * (7 * wide + 6 * linear.inner_width + 2 * state / chunk)
        + 12 * heads * chunk
        + 3 * decay,
        streamed_bytes=4 * linear.conv_channels
        + 8 * linear.key_width
        + 4 * repeated
        + 6 * linear.inner_width,
        kept_bytes=2
        * (linear.input_projection_width + linear.conv_channels + 2 * wide + chunk * heads)
        + 2 * 2 * linear.inner_width
        + 8 * heads
        + decay,
        # The projections of decay and gate have rank head dim.
        inner_products=((linear.gate_weights / values, values),) if linear.gate_weights else (),
    )


def _lightning_attention(linear: LinearAttention) -> Recurrence:
    """Return the widths, FLOPs and bytes per token of lightning attention.

    A chunk has the products of scores and values, and two products with the state (Qin et al. 2024,
    arXiv:2401.04658, algorithm 1). Projection, output, norm and gate are saved.
    """
    wide, chunk = linear.key_width + linear.inner_width, LIGHTNING_CHUNK
    state = linear.value_heads * linear.key_dim * linear.value_dim
    return Recurrence(
        projected=linear.input_projection_width,
        inner=linear.inner_width,
        chunk=chunk,
        flops=2 * chunk * wide + 4 * state,
        scanned_bytes=4 * wide + 8 * state / chunk,
        streamed_bytes=6 * linear.inner_width,
        kept_bytes=2 * (linear.input_projection_width + 2 * linear.inner_width),
    )


def _convolution(part: Convolution) -> Recurrence:
    """Return the widths, FLOPs and bytes per token of a short convolution between two gates.

    The gates read two elements per channel and write one, the convolution reads and writes one
    (transformers 5.20, modeling_lfm2.py). Projection, convolved input and output are saved.
    """
    return Recurrence(
        projected=part.input_projection_width,
        inner=part.inner_width,
        chunk=0,
        flops=0.0,
        scanned_bytes=0.0,
        streamed_bytes=2 * 8 * part.width,
        kept_bytes=2 * (part.input_projection_width + 2 * part.width),
    )


def _mamba2(mamba: Mamba) -> Recurrence:
    """Return the widths, FLOPs and bytes per token of a Mamba-2 mixer with fused kernels.

    Bytes are counted as in mamba_ssm, ops/triton/ssd_combined.py. The kernels save the projection
    and the output of the scan before its gate, and recompute all other tensors in the backward pass
    (MambaSplitConv1dScanCombinedFn). The norm after the gate saves its input, and the output
    projection saves the output of the norm.
    """
    # Kernels: sums of step sizes and decays; state of each chunk from inputs and B, in fp32;
    # passing of states; products of B and C; outputs from inputs, C, products and states.
    inner, matrices = mamba.inner_width, mamba.groups * mamba.state_size
    state = inner * mamba.state_size
    return Recurrence(
        projected=mamba.input_projection_width,
        inner=inner,
        chunk=MAMBA_CHUNK,
        flops=2 * MAMBA_CHUNK * (matrices + inner) + 4 * state,
        scanned_bytes=6 * inner
        + 8 * matrices
        + 26 * mamba.heads
        + 8 * mamba.groups * MAMBA_CHUNK
        + 16 * state / MAMBA_CHUNK,
        streamed_bytes=4 * mamba.conv_channels + 6 * inner,
        kept_bytes=2 * (mamba.input_projection_width + 3 * inner),
    )


def _mamba1(mamba: Mamba) -> Recurrence:
    """Return the widths, FLOPs and bytes per token of a Mamba-1 mixer.

    The scan of each channel and state is a recurrence of scalars in one kernel, which reads its
    input, the gate, the step sizes, B and C, and writes its output before and after the gate. These
    tensors, the input of the convolution and the input of the second projection are saved
    (mamba_ssm, ops/selective_scan_interface.py, SelectiveScanFn; transformers 5.23,
    modeling_jamba.py, cuda_kernels_forward).
    """
    inner, matrices = mamba.inner_width, 2 * mamba.state_size
    return Recurrence(
        projected=mamba.input_projection_width,
        inner=inner,
        chunk=SELECTIVE_CHUNK,
        flops=VECTOR_RATIO * 7 * inner * mamba.state_size,
        scanned_bytes=2 * (5 * inner + matrices),
        streamed_bytes=4 * mamba.conv_channels,
        kept_bytes=2 * (mamba.input_projection_width + 4 * inner + mamba.step_rank + matrices),
        inner_products=mamba.step_projections,
    )
