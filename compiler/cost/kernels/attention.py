"""Time of the fused attention core of whole sequences (prefill), causal or full, forward only.

Blocks of query rows are distributed over the streaming multiprocessors (SMs), and the time of a
block is matrix work plus softmax work per score (FlashAttention-3, arXiv:2407.08608, section 3.1,
explains why softmax is not negligible). Constants are fitted per GPU type (docs/kernel-fits.md).
"""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from parc.compiler.cost.kernels.gemm import SUSTAINED_SECONDS, overlapped_seconds
from parc.compiler.ir.frozen import frozen

BACKWARD_FACTOR = 2.9
"""Backward time of the attention core, divided by its forward time. The backward pass has five
matrix products, the forward pass two, and reaches 63 % of the peak where the forward pass reaches
73 % (FlashAttention-2, arXiv:2307.08691, sections 4.1 and 5)."""
FLASH_ATTENTION_2 = {64: 1.43, 128: 1.62}
"""Time of FlashAttention-2 on Hopper by head dim, divided by the time of cuDNN's kernels, which use
Hopper's matrix instructions: forward and backward pass together, at 4,096 tokens (FlashAttention-3,
arXiv:2407.08608, figures 5 and 6). With head dim 64, softmax limits both kernels."""
FLASH_ATTENTION_2_ON_B200 = 2.86
"""The same on data-center GPUs of Blackwell, whose matrix instructions it does not use: 546.8 and
191.2 ms for sequences of 506,000 tokens on B200 (sgl-project/sglang, pull request 33655). With head
dim 64, it reaches 343 TFLOP/s (Dao-AILab/flash-attention, issue 1589) and cuDNN 1,147 TFLOP/s (pull
request 2605), forward without mask at 8,192 tokens."""
CACHE_BYTES = 2
"""Bytes per element of Q, K, V and the KV cache, 16 bit."""


class AttentionShape(NamedTuple):
    """Sizes of one attention call on one rank.

    ``head_dim`` is the mean of the query-key and value head dims if they differ (latent attention).
    """

    batch: float
    tokens: float
    """Tokens per sequence."""
    heads: float
    kv_heads: float
    head_dim: float
    causal: bool = True
    window: float = 0.0
    """Sliding window in tokens; 0: none. No measurement has a window, so that the number of scores
    is reduced by formula."""


@frozen
class PrefillFit:
    """Fitted constants of prefill on one GPU type, 16 bit."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    peak_share: float
    score_seconds: float
    """Softmax time per score on one SM."""
    block_seconds: float
    """Fixed time per block of query rows of one head."""
    io_share: float
    """Fraction of the memory bandwidth that the kernel reaches when it reads Q, K and V and writes
    O and the cache."""
    launch_seconds: float
    norm: float
    """Norm that combines the mean work per SM with the longest block (1: sum, 8: about maximum)."""
    sustained: float
    lookahead: float
    """Masked columns per row that are computed although they are discarded."""
    rows: int = 128
    """Query rows per block."""


def flash_attention_2_factor(head_dim: float, compute_capability: tuple[int, int]) -> float:
    """Return the time of FlashAttention-2, divided by that of newer kernels.

    GPUs of AMD have the factor of Hopper.

    >>> [flash_attention_2_factor(head_dim, (9, 0)) for head_dim in (32, 64, 96, 128, 256)]
    [1.43, 1.43, 1.525, 1.62, 1.62]
    >>> flash_attention_2_factor(128, (10, 0))
    2.86
    """
    if compute_capability[0] == 10:
        return FLASH_ATTENTION_2_ON_B200
    (narrow, low), (wide, high) = FLASH_ATTENTION_2.items()
    part = min(max((head_dim - narrow) / (wide - narrow), 0.0), 1.0)
    return low + part * (high - low)


def prefill_seconds(fit: PrefillFit, shape: AttentionShape) -> float:
    """Return the forward time in seconds of the attention core for a batch of prompts.

    The result is launch + overlap(a, b) + (bytes of Q, K, V, O and cache) / memory bandwidth. Here
    a is the mean time of work per streaming multiprocessor, b is the time of the longest block of
    query rows, and overlap is ``overlapped_seconds``.
    """
    batch, tokens, heads, kv_heads, head_dim, causal, window = shape
    edge = fit.rows
    blocks = -(-tokens // edge)
    padded = blocks * edge
    # A score needs 4 d FLOPs (two products) and its softmax, which overlap in part.
    matrix = 4.0 * head_dim * fit.sms / (fit.flops_per_second * fit.peak_share)
    score = hypot(matrix, fit.score_seconds)
    columns = (padded + fit.lookahead) / 2.0 if causal else padded
    longest = padded
    if 0.0 < window < padded:
        # A row has at most ``window`` unmasked scores; a block of rows spans ``edge`` columns more.
        columns, longest = min(columns, window), min(longest, window + edge)
    work = batch * heads * blocks * (edge * columns * score + fit.block_seconds) / fit.sms
    # Long kernels lose the boost clock: the slow-down grows with their duration up to
    # ``sustained``.
    work *= 1.0 + fit.sustained * work / (work + SUSTAINED_SECONDS)
    # The last block of a causal mask has the longest rows, and other SMs are idle at its end.
    tail = edge * longest * score + fit.block_seconds
    moved_bytes = 2.0 * CACHE_BYTES * batch * tokens * (heads + kv_heads) * head_dim
    moving = moved_bytes / (fit.bytes_per_second * fit.io_share)
    return fit.launch_seconds + overlapped_seconds(work, tail, fit.norm) + moving
