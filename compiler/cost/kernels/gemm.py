"""Time of one matrix multiplication C[m, n] = A[m, k] B[k, n] from its shape.

Tiles of 64 or 128 rows and columns are dealt to the SMs in waves, reads and writes overlap with the
arithmetic, and a launch is paid once. The form is the wave model of NVIDIA's "Matrix
Multiplication Background User's Guide" (tile and wave quantisation) with a roofline beside it; its
constants are fitted per GPU and precision (docs/kernel-fits.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SPLIT_DEPTH = 256
"""Shortest piece of K that a split leaves to one SM."""
SUSTAINED_SECONDS = 1e-3
"""From about this duration on a kernel runs at the clock that power allows, not at boost."""
OUTPUT_BYTES = 2
PARTIAL_BYTES = 4
"""Partial sums of a split are written and read in fp32."""
CAST_ROWS_PER_SM = 4
SHORT_ROWS = 16
"""Up to here fp8 with block scales takes a path of its own on the measured stacks."""
NARROW = 128
"""Below this n or k, one block of scales is not full."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Quantising A to the GEMM's precision before each call, a kernel of its own."""

    launch_seconds: float
    row_seconds: float
    """One row's fixed cost, four rows at a time on each SM."""
    element_seconds: float
    """One element of a row, serial along k."""
    traffic_bytes: float
    """Read and written per element of A."""


@dataclass(frozen=True, slots=True)
class HostFloors:
    """Seconds under which the measured stack could not launch from the host, by shape."""

    short: float
    """At most 16 rows."""
    regular: float
    narrow: float
    """n or k below one block of scales, 128."""


@dataclass(frozen=True, slots=True)
class GemmFit:
    """What one GPU does at one precision: three data-sheet numbers and the fitted terms."""

    sms: int
    flops_per_second: float
    """Dense peak of the data sheet."""
    bytes_per_second: float
    operand_bytes: float
    """One element of A or B, scales included."""
    peak_share: float
    """Of the peak, inside a tile."""
    sm_gb_per_s: float
    """Operand traffic that feeds one SM, from cache."""
    tile_seconds: float
    """Prologue and epilogue of one tile."""
    wave: float
    """1: an unfinished last wave costs a full one; 0: tiles flow without waves."""
    memory_share: float
    write_factor: float
    """A byte written over a byte read."""
    launch_seconds: float
    sustained: float
    """How much longer a kernel of many milliseconds takes than at boost clock: 0.1 = 10 %."""
    norm: float
    """Overlap of arithmetic and memory: 1 adds them, 8 takes the longer."""
    split: float
    """Cost of the pass that adds the partial sums of a split, over its bare traffic."""
    cache_bytes: float = 0.0
    """Operands up to about this size stay in L2 between calls; 0: none do."""
    cache_gain: float = 1.0
    cast: Cast | None = None
    floors: HostFloors | None = None

    def device_only(self) -> GemmFit:
        """Without host floors and casts: a captured graph whose casts are fused elsewhere."""
        return replace(self, cast=None, floors=None)


def gemm_seconds(fit: GemmFit, m: float, n: float, k: float) -> float:
    """Seconds of one GEMM; m, n, k positive, output in 16 bit."""
    busy = min(_tiled_seconds(fit, m, n, k, 64), _tiled_seconds(fit, m, n, k, 128))
    busy *= 1.0 + fit.sustained * busy / (busy + SUSTAINED_SECONDS)
    seconds = fit.launch_seconds + overlap(busy, _memory_seconds(fit, m, n, k), fit.norm)
    if fit.cast is not None:
        seconds += _cast_seconds(fit, fit.cast, m, k)
    if fit.floors is not None:
        seconds = overlap(seconds, _floor_seconds(fit.floors, m, n, k), 8.0)
    return seconds


def _tiled_seconds(fit: GemmFit, m: float, n: float, k: float, edge: int) -> float:
    tiles = -(-m // edge) * -(-n // edge)
    sms = fit.sms
    step = 2.0 * edge * edge * sms / (fit.flops_per_second * fit.peak_share)
    step += 2.0 * edge * fit.operand_bytes / (fit.sm_gb_per_s * 1e9)
    pieces = min(sms // tiles, k // SPLIT_DEPTH)
    whole = max(1.0, tiles / sms) * (1.0 - fit.wave) + -(-tiles // sms) * fit.wave
    seconds = whole * (k * step + fit.tile_seconds)
    if pieces <= 1:
        return seconds
    # split K: all SMs work on the few tiles, then a second pass adds the partial sums
    partial_bytes = pieces * m * n * PARTIAL_BYTES
    added = partial_bytes / (fit.bytes_per_second * fit.memory_share) + fit.tile_seconds
    return min(seconds, k / pieces * step + fit.tile_seconds + fit.split * added)


def _memory_seconds(fit: GemmFit, m: float, n: float, k: float) -> float:
    read_bytes = fit.operand_bytes * (m + n) * k
    moved_bytes = read_bytes + fit.write_factor * OUTPUT_BYTES * m * n
    seconds = moved_bytes / (fit.bytes_per_second * fit.memory_share)
    if fit.cache_bytes <= 0.0:
        return seconds
    resident = 1.0 / (1.0 + (moved_bytes / fit.cache_bytes) ** 4)
    return seconds * (resident / fit.cache_gain + 1.0 - resident)


def _cast_seconds(fit: GemmFit, cast: Cast, m: float, k: float) -> float:
    rounds = max(1.0, m / (CAST_ROWS_PER_SM * fit.sms))
    traffic = cast.traffic_bytes * m * k / (fit.bytes_per_second * fit.memory_share)
    return cast.launch_seconds + rounds * (cast.row_seconds + cast.element_seconds * k) + traffic


def _floor_seconds(floors: HostFloors, m: float, n: float, k: float) -> float:
    if n < NARROW or k < NARROW:
        return floors.narrow
    return floors.short if m <= SHORT_ROWS else floors.regular


def overlap(first: float, second: float, norm: float) -> float:
    """The ``norm``-norm of two durations: their sum at 1, nearly their maximum at 8.

    Scaled by the larger one, so that neither a nanosecond nor an hour leaves the range of floats.
    """
    if first < second:
        first, second = second, first
    if second <= 0.0:
        return first
    return float(first * (1.0 + (second / first) ** norm) ** (1.0 / norm))
