"""Time of one matrix multiplication C[m, n] = A[m, k] B[k, n] from its shape.

Tiles of 64 or 128 rows and columns are distributed over the streaming multiprocessors (SMs) in
waves; reads and writes overlap with the arithmetic; every call has one launch. The form is the wave
model of NVIDIA's "Matrix Multiplication Background User's Guide" (tile and wave quantization),
combined with a memory roofline. Constants are fitted per GPU type and precision
(docs/kernel-fits.md).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir.frozen import frozen

SPLIT_DEPTH = 256
"""Smallest part of K that one SM processes when K is split."""
SUSTAINED_SECONDS = 1e-3
"""Approximate duration from which a kernel runs at the power-limited clock instead of boost."""
OUTPUT_BYTES = 2
"""Bytes per element of C, 16 bit."""
PARTIAL_BYTES = 4
"""Bytes per partial sum of a split K, fp32."""
CAST_ROWS_PER_SM = 4
"""Rows that one SM quantizes at the same time."""
SHORT_ROWS = 16
"""Largest m for which the measured stacks use a separate kernel for fp8 with block scales."""
NARROW = 128
"""Number of elements per block of scales. GEMMs with smaller n or k have a separate minimum launch
time."""


@frozen
class CastFit:
    """Fitted constants of the kernel that quantizes A before each call."""

    launch_seconds: float
    row_seconds: float
    """Fixed time per row. Each SM processes four rows at the same time."""
    element_seconds: float
    """Time per element of a row; the elements along k are processed one after the other."""
    traffic_bytes: float
    """Bytes read and written per element of A."""


@frozen
class HostLaunchFloors:
    """Minimum time between host launches of the measured software stack, by shape of the GEMM."""

    short: float
    """Minimum time for GEMMs of at most 16 rows (m)."""
    regular: float
    narrow: float
    """Minimum time for GEMMs in which n or k is smaller than one block of scales (128)."""


@frozen
class GemmFit:
    """Constants of one GPU type at one precision: data-sheet numbers and fitted terms."""

    sms: int
    flops_per_second: float
    """Dense peak according to the data sheet."""
    bytes_per_second: float
    operand_bytes: float
    """Bytes per element of A or B, including scales."""
    peak_share: float
    """Share of the peak that is reached inside a tile."""
    sm_gb_per_s: float
    """Rate at which one SM reads operands from cache."""
    tile_seconds: float
    """Time of prologue and epilogue per tile."""
    wave: float
    """Weight of whole waves of tiles. If 1, a partial last wave takes as long as a full one; if 0,
    the time is proportional to the number of tiles."""
    memory_share: float
    write_factor: float
    """Time per byte written, divided by time per byte read."""
    launch_seconds: float
    sustained: float
    """Slow-down of a kernel of many milliseconds, relative to boost clock; 0.1: 10 %."""
    norm: float
    """Norm that combines arithmetic and memory time (1: sum, 8: about the maximum)."""
    split: float
    """Time of the kernel that adds the partial sums of a split K, divided by the time of its
    traffic."""
    cache_bytes: float = 0.0
    """Approximate size up to which operands stay in L2 between calls; 0 if they never do."""
    cache_gain: float = 1.0
    """Rate of L2 divided by the rate of memory."""
    cast: CastFit | None = None
    floors: HostLaunchFloors | None = None

    def without_gaps_and_casts(self) -> GemmFit:
        """Return this GEMM fit without the gaps between host launches and without the casts of A.

        The resulting fit gives only the GPU time of the multiplication.
        """
        # Some measured stacks launched each GEMM from the host without a CUDA graph, and cast A
        # before each call. Training and serving steps launch GEMMs and cast A in other ways.
        return replace(self, cast=None, floors=None)


def gemm_seconds(
    fit: GemmFit, m: float, n: float, k: float, output_bytes: float = OUTPUT_BYTES
) -> float:
    """Return the time in seconds of the GEMM C[m, n] = A[m, k] B[k, n].

    All of m, n and k must be positive. The library is assumed to use square tiles of 64 x 64 or of
    128 x 128 elements, whichever are faster. ``output_bytes`` is the traffic per element of C,
    which is 8 if the product is added to a sum in fp32.
    """
    shape = (m, n, k)
    busy = min(_tiled_seconds(fit, shape, 64), _tiled_seconds(fit, shape, 128))
    # Long kernels lose the boost clock: the slow-down grows with their duration up to
    # ``sustained``.
    busy *= 1.0 + fit.sustained * busy / (busy + SUSTAINED_SECONDS)
    moving = _memory_seconds(fit, shape, output_bytes)
    seconds = fit.launch_seconds + overlapped_seconds(busy, moving, fit.norm)
    if fit.cast is not None:
        seconds += _cast_seconds(fit, fit.cast, m, k)
    if fit.floors is not None:
        seconds = overlapped_seconds(seconds, _launch_gap_seconds(fit.floors, m, n, k), 8.0)
    return seconds


def batched_gemm_seconds(
    fit: GemmFit, batch: float, shape: tuple[float, float, float], output_bytes: float
) -> float:
    """Return the time in seconds of ``batch`` GEMMs of one shape (m, n, k) that share the GPU.

    The tiles of all GEMMs fill the same waves, as in a grouped GEMM or with several streams. Every
    GEMM reads its own operands. ``output_bytes`` is the traffic per element of C, which is 8 if the
    product is added to a sum in fp32.
    """
    m, n, k = shape
    busy = min(_tiled_seconds(fit, shape, 64, batch), _tiled_seconds(fit, shape, 128, batch))
    busy *= 1.0 + fit.sustained * busy / (busy + SUSTAINED_SECONDS)
    nbytes = fit.operand_bytes * (m + n) * k + fit.write_factor * output_bytes * m * n
    moving = batch * nbytes / (fit.bytes_per_second * fit.memory_share)
    return fit.launch_seconds + overlapped_seconds(busy, moving, fit.norm)


def _tiled_seconds(
    fit: GemmFit, shape: tuple[float, float, float], edge: int, batch: float = 1
) -> float:
    """Return the compute time in seconds of GEMMs in square tiles of ``edge`` rows and columns.

    ``batch`` GEMMs of the same shape share the GPU.
    """
    m, n, k = shape
    tiles = batch * -(-m // edge) * -(-n // edge)
    sms = fit.sms
    step = 2.0 * edge * edge * sms / (fit.flops_per_second * fit.peak_share)
    step += 2.0 * edge * fit.operand_bytes / (fit.sm_gb_per_s * 1e9)
    pieces = min(sms // tiles, k // SPLIT_DEPTH)
    # Waves of tiles: a mean of the exact quotient and the quotient rounded up, weighted by
    # ``wave``.
    whole = max(1.0, tiles / sms) * (1.0 - fit.wave) + -(-tiles // sms) * fit.wave
    seconds = whole * (k * step + fit.tile_seconds)
    if pieces <= 1:
        return seconds
    # Split K: all SMs share the few tiles, then a second kernel adds the partial sums.
    partial_bytes = batch * pieces * m * n * PARTIAL_BYTES
    added = partial_bytes / (fit.bytes_per_second * fit.memory_share) + fit.tile_seconds
    return min(seconds, k / pieces * step + fit.tile_seconds + fit.split * added)


def _memory_seconds(fit: GemmFit, shape: tuple[float, float, float], output_bytes: float) -> float:
    """Return the seconds that a GEMM takes to read A and B and to write C."""
    m, n, k = shape
    read_bytes = fit.operand_bytes * (m + n) * k
    moved_bytes = read_bytes + fit.write_factor * output_bytes * m * n
    seconds = moved_bytes / (fit.bytes_per_second * fit.memory_share)
    if fit.cache_bytes <= 0.0:
        return seconds
    # Share of the traffic that stays in L2: a smooth step at ``cache_bytes``.
    resident = 1.0 / (1.0 + (moved_bytes / fit.cache_bytes) ** 4)
    return seconds * (resident / fit.cache_gain + 1.0 - resident)


def _cast_seconds(fit: GemmFit, cast: CastFit, m: float, k: float) -> float:
    """Return the time in seconds of the kernel that quantizes A[m, k] before a GEMM."""
    rounds = max(1.0, m / (CAST_ROWS_PER_SM * fit.sms))
    traffic = cast.traffic_bytes * m * k / (fit.bytes_per_second * fit.memory_share)
    return cast.launch_seconds + rounds * (cast.row_seconds + cast.element_seconds * k) + traffic


def _launch_gap_seconds(floors: HostLaunchFloors, m: float, n: float, k: float) -> float:
    """Return the minimum time in seconds between two host launches of a GEMM of shape (m, n, k)."""
    if n < NARROW or k < NARROW:
        return floors.narrow
    return floors.short if m <= SHORT_ROWS else floors.regular


def overlapped_seconds(first: float, second: float, norm: float) -> float:
    """Return the time in seconds of two activities that overlap in part.

    ``first`` and ``second`` are the seconds of each activity alone. The formula is (first^norm +
    second^norm)^(1/norm): the sum if norm is 1, about the maximum if norm is 8.
    """
    # Scale by the larger duration: powers of small durations would leave the range of floats.
    if first < second:
        first, second = second, first
    if second <= 0.0:
        return first
    whole: float = first * (1.0 + (second / first) ** norm) ** (1.0 / norm)
    return whole
