"""Time of the routed experts of one MoE layer on one rank: both grouped GEMMs and the routing.

Experts that get no token are not read; each expert's rows are padded to a tile. The measured call
is the fused forward layer of a serving stack: top-k, permute, gated up-projection, activation,
down-projection, unpermute. Constants: docs/kernel-fits.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from typing import NamedTuple

from parc.compiler.cost.kernels.gemm import overlap

EDGE = 128
"""Edge of an output tile."""
LEAST_EDGE = 16.0
"""Least height of a tile: the rows of one matrix instruction."""
ACTIVATION_BYTES = 2


class ExpertShape(NamedTuple):
    """One routed layer on one rank. ``inter`` is the width of a whole expert."""

    tokens: float
    """Tokens routed over the ``ep`` group, a step."""
    top_k: float
    hidden: float
    inter: float
    experts: float
    tp: float = 1.0
    ep: float = 1.0
    imbalance: float = 0.0
    """Rows of the fullest rank over the mean; 0: as in the fitted measurements."""


@dataclass(frozen=True, slots=True)
class GroupedFit:
    """Grouped GEMM on one GPU at one precision."""

    sms: int
    flops_per_second: float
    bytes_per_second: float
    operand_bytes: float
    peak_share: float
    pad_rows: float
    """Rows that padding adds to an expert in use."""
    tile_seconds: float
    memory_share: float
    launch_seconds: float
    """All kernels of the layer."""
    row_factor: float
    """Passes over the rows of this rank's experts beside the GEMMs."""
    token_factor: float
    """Passes over all tokens: routing, permutation, quantising."""
    norm: float
    skew: float
    """Rows of the measured rank grow as ep to this power over the even share."""
    wave: float


def grouped_gemm_seconds(fit: GroupedFit, shape: ExpertShape) -> float:
    """Seconds of the routed experts, forward."""
    tokens, top_k, hidden, inter, experts, tp, ep, imbalance = shape
    local = experts / ep
    inter /= tp
    rows = tokens * top_k / ep * (imbalance or ep**fit.skew)
    # expected experts with at least one row, when rows fall at random (Poisson)
    used = max(local * (1.0 - exp(-rows / local)), min(1.0, rows))
    padded = (rows + used * fit.pad_rows) / EDGE
    part = min(1.0, max(LEAST_EDGE, rows / used) / EDGE)
    busy = _wave_seconds(fit, padded * 2.0 * inter / EDGE, hidden, part)
    busy += _wave_seconds(fit, padded * hidden / EDGE, inter, part)
    rate = fit.bytes_per_second * fit.memory_share
    reading = used * 3.0 * hidden * inter * fit.operand_bytes / rate
    passes = fit.row_factor * rows * (hidden + inter) + fit.token_factor * tokens * hidden
    moving = passes * ACTIVATION_BYTES / rate
    return fit.launch_seconds + overlap(busy, reading, fit.norm) + moving


def _wave_seconds(fit: GroupedFit, tiles: float, depth: float, part: float) -> float:
    """Waves of tiles whose height is ``part`` of a full one, as few rows need no more."""
    waves = tiles / (fit.sms * part)
    waves = max(1.0, waves) * (1.0 - fit.wave) + ceil(waves) * fit.wave
    tile = 2.0 * EDGE * EDGE * depth * fit.sms / (fit.flops_per_second * fit.peak_share)
    return waves * part * (tile + fit.tile_seconds)
