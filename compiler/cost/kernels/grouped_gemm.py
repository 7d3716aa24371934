"""Time of the routed experts of one MoE layer on one rank: two grouped GEMMs and the routing.

Weights of experts without tokens are not read, and the rows of each expert are padded to a tile.
The measured call is the fused forward layer of a serving stack: top-k, permute, gated
up-projection, activation, down-projection, unpermute. Constants are fitted per GPU type and
precision (docs/kernel-fits.md).
"""

from __future__ import annotations

from math import ceil, exp
from typing import NamedTuple

from parc.compiler.cost.kernels.gemm import overlapped_seconds
from parc.compiler.ir.frozen import frozen

TILE_EDGE = 128
"""Rows and columns of an output tile."""
MIN_TILE_ROWS = 16.0
"""Smallest number of rows of a tile, those of one matrix instruction."""
ACTIVATION_BYTES = 2
"""Bytes per element of activations, 16 bit."""


class ExpertShape(NamedTuple):
    """Sizes of one routed layer.

    ``inter`` is the inner width of a whole expert, before it is split over ``tp``.
    """

    tokens: float
    """Tokens per step that the ``ep`` group routes."""
    top_k: float
    hidden: float
    inter: float
    experts: float
    tp: float = 1.0
    ep: float = 1.0
    imbalance: float = 0.0
    """Rows of the fullest rank, divided by the mean number of rows per rank. 0 stands for the
    imbalance in the fitted measurements."""


@frozen
class GroupedFit:
    """Constants of grouped GEMMs on one GPU type at one precision."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    operand_bytes: float
    peak_share: float
    pad_rows: float
    """Rows that padding adds to each expert that has tokens."""
    tile_seconds: float
    memory_share: float
    launch_seconds: float
    """Launch time of all kernels of the layer."""
    row_factor: float
    """Number of times that the rows of this rank's experts are moved in memory, in addition to the
    GEMMs."""
    token_factor: float
    """Number of times that all tokens are moved in memory for routing, permutation and
    quantizing."""
    norm: float
    skew: float
    """Exponent s of the imbalance: in the measurements, the rank has ep^s times the rows of an even
    distribution."""
    wave: float


def grouped_gemm_seconds(fit: GroupedFit, shape: ExpertShape) -> float:
    """Return the forward time in seconds of the routed experts of one layer on one rank.

    The time includes routing, permutation and activation function.
    """
    tokens, top_k, hidden, inter, experts, tp, ep, imbalance = shape
    local = experts / ep
    inter /= tp
    rows = tokens * top_k / ep * (imbalance or ep**fit.skew)
    # Expected number of experts with at least one row, if rows are distributed at random (Poisson).
    used = max(local * (1.0 - exp(-rows / local)), min(1.0, rows))
    # Rows in units of a tile's height.
    padded = (rows + used * fit.pad_rows) / TILE_EDGE
    part = min(1.0, max(MIN_TILE_ROWS, rows / used) / TILE_EDGE)
    busy = _wave_seconds(fit, padded * 2.0 * inter / TILE_EDGE, hidden, part)
    busy += _wave_seconds(fit, padded * hidden / TILE_EDGE, inter, part)
    rate = fit.bytes_per_second * fit.memory_share
    # Three matrices per expert: gate, up and down projection.
    reading = used * 3.0 * hidden * inter * fit.operand_bytes / rate
    passes = fit.row_factor * rows * (hidden + inter) + fit.token_factor * tokens * hidden
    moving = passes * ACTIVATION_BYTES / rate
    return fit.launch_seconds + overlapped_seconds(busy, reading, fit.norm) + moving


def _wave_seconds(fit: GroupedFit, tiles: float, depth: float, part: float) -> float:
    """Return the compute time in seconds of one grouped GEMM with inner dimension ``depth``.

    ``tiles`` is the size of the output, measured in full tiles. ``part`` (0 to 1) is the height of
    the tiles that the kernel uses, as a fraction of the height of a full tile.
    """
    # Experts with few rows use lower tiles, which need proportionally less time per tile.
    waves = tiles / (fit.sms * part)
    # A mean of the exact and the rounded-up number of waves, weighted by ``wave``.
    waves = max(1.0, waves) * (1.0 - fit.wave) + ceil(waves) * fit.wave
    tile = 2.0 * TILE_EDGE * TILE_EDGE * depth * fit.sms / (fit.flops_per_second * fit.peak_share)
    return waves * part * (tile + fit.tile_seconds)
