"""Time of the fused attention core by shape: prefill (causal or full) and decode.

Forward only. Blocks of query rows are dealt to the SMs; a block's time is matrix work and softmax
work per score (FlashAttention-3, arXiv:2407.08608, section 3.1, on why both count). Decode streams
the KV cache, split over SMs (Flash-Decoding). Constants: docs/kernel-fits.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import NamedTuple

from parc.compiler.cost.kernels.gemm import SUSTAINED_SECONDS, overlap

BACKWARD_FACTOR = 2.5
"""Backward over forward: five matrix products against two.

FlashAttention-2 (arXiv:2307.08691), section 4.1. Assumed: no backward timing was fitted.
"""
CACHE_BYTES = 2
"""One element of Q, K, V or the KV cache, 16 bit."""
DECODE_BLOCK = 128
"""Shortest piece of the context that one SM takes."""
GROUP_ROWS = 16
"""Query heads of one KV head that share a matrix instruction."""


class AttentionShape(NamedTuple):
    """One call on one rank. With unequal head dims (MLA), ``head_dim`` is the mean of qk and v."""

    batch: float
    tokens: float
    """Of a sequence: query rows in prefill, the cached context in decode."""
    heads: float
    kv_heads: float
    head_dim: float
    causal: bool = True
    window: float = 0.0
    """Sliding window in tokens; 0: none. The measurements have none: scores are cut by formula."""


@dataclass(frozen=True, slots=True)
class PrefillFit:
    """Prefill on one GPU, 16 bit."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    peak_share: float
    score_seconds: float
    """Softmax of one score on one SM."""
    block_seconds: float
    """One block of query rows of one head."""
    io_share: float
    """Of the memory bandwidth: Q, K, V read, O and the cache written, beside the core."""
    launch_seconds: float
    norm: float
    """Of the work per SM and the longest block: 1 adds them, 8 takes the longer."""
    sustained: float
    lookahead: float
    """Masked columns that are computed nevertheless, a row."""
    rows: int = 128
    """Query rows of a block."""


@dataclass(frozen=True, slots=True)
class DecodeFit:
    """Decode on one GPU: one query token a sequence, KV cache of 16 bit."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    memory_share: float
    head_factor: float
    """Work per query head and cached token, over its FLOPs at peak."""
    row_seconds: float
    """One KV head of one sequence, dealt to the SMs."""
    launch_seconds: float
    norm: float
    combine_seconds: float
    """The pass that joins a split context."""
    serial_seconds: float
    """One element of one cached token, when few sequences leave SMs without work."""


def prefill_seconds(fit: PrefillFit, shape: AttentionShape) -> float:
    """Seconds of the forward core over ``tokens`` new tokens of each sequence."""
    batch, tokens, heads, kv_heads, head_dim, causal, window = shape
    edge = fit.rows
    blocks = -(-tokens // edge)
    padded = blocks * edge
    # one score costs 4 d FLOPs (two products) beside its softmax; they overlap in part
    matrix = 4.0 * head_dim * fit.sms / (fit.flops_per_second * fit.peak_share)
    score = hypot(matrix, fit.score_seconds)
    columns = (padded + fit.lookahead) / 2.0 if causal else padded
    longest = padded
    if 0.0 < window < padded:
        columns, longest = min(columns, window), min(longest, window + edge)
    work = batch * heads * blocks * (edge * columns * score + fit.block_seconds) / fit.sms
    work *= 1.0 + fit.sustained * work / (work + SUSTAINED_SECONDS)
    tail = edge * longest * score + fit.block_seconds
    moved_bytes = 2.0 * CACHE_BYTES * batch * tokens * (heads + kv_heads) * head_dim
    moving = moved_bytes / (fit.bytes_per_second * fit.io_share)
    return fit.launch_seconds + overlap(work, tail, fit.norm) + moving


def decode_seconds(fit: DecodeFit, shape: AttentionShape) -> float:
    """Seconds of one step over a cached context of ``tokens`` for each sequence."""
    batch, tokens, heads, kv_heads, head_dim, _, window = shape
    if 0.0 < window < tokens:
        tokens = window
    rows = batch * kv_heads
    moved_bytes = 2.0 * CACHE_BYTES * batch * head_dim * (kv_heads * tokens + heads)
    streaming = moved_bytes / (fit.bytes_per_second * fit.memory_share)
    flops = 4.0 * batch * heads * tokens * head_dim
    pieces = max(1.0, min(fit.sms // rows, -(-tokens // DECODE_BLOCK)))
    groups = -(-heads // (kv_heads * GROUP_ROWS))
    serial = tokens / pieces * head_dim * fit.serial_seconds * groups
    busy = max(flops / fit.flops_per_second * fit.head_factor, serial)
    seconds = fit.launch_seconds + overlap(streaming, busy, fit.norm)
    seconds += rows * fit.row_seconds / fit.sms
    return seconds + fit.combine_seconds if pieces > 1.0 else seconds
