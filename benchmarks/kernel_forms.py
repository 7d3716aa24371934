"""Parameters of each kernel formula: initial value and physically plausible range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernel_rows import (
    ADA,
    ALL_PRECISIONS,
    AMPERE,
    BLACKWELL,
    HOPPER,
    PRECISIONS,
    SCANNED,
    Series,
    Timing,
)

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.attention import (
    AttentionShape,
    PrefillFit,
    prefill_seconds,
)
from parc.compiler.cost.kernels.collective_time import CollectiveFit
from parc.compiler.cost.kernels.gemm import CastFit, GemmFit, HostLaunchFloors, gemm_seconds
from parc.compiler.cost.kernels.hardware_fit import OPERAND_BYTES, PEAKS
from parc.compiler.cost.kernels.recurrence import ScanFit, gated_delta_rule, scan_seconds
from parc.compiler.ir import LinearAttention

SMS = {
    "a100-sxm-80gb": 108,
    "b200-180gb": 148,
    "b300-288gb": 148,
    "gb200-186gb": 152,
    "gb300-288gb": 152,
    "h100-sxm-80gb": 132,
    "h200-sxm-141gb": 132,
    "l40s-48gb": 142,
}
Values = Mapping[str, float]
Range = tuple[float, float, float]
"""(initial value, minimum, maximum)."""
GEMM: dict[str, Range] = {
    "peak_share": (0.85, 0.2, 1.0),
    "sm_gb_per_s": (300, 5, 5000),
    "tile_seconds": (1.5e-6, 1e-8, 2e-5),
    "wave": (0.5, 0, 1),
    "memory_share": (0.8, 0.3, 1),
    "write_factor": (1.2, 0.5, 4),
    "launch_seconds": (2e-6, 1e-7, 1.5e-5),
    "sustained": (0.1, 0, 1),
    "norm": (3, 1, 8),
    "split": (1, 0.05, 6),
}
CACHE: dict[str, Range] = {"cache_bytes": (3e7, 1e6, 2e8), "cache_gain": (1.5, 1, 5)}
CAST: dict[str, Range] = {
    "cast.launch_seconds": (1e-6, 0, 1e-5),
    "cast.row_seconds": (5e-7, 1e-8, 1e-5),
    "cast.element_seconds": (2e-10, 1e-12, 3e-9),
    "cast.traffic_bytes": (1, 0, 20),
}
FLOORS: dict[str, Range] = {
    "floors.short": (1.5e-4, 1e-6, 1e-3),
    "floors.regular": (1.5e-4, 1e-6, 1e-3),
    "floors.narrow": (1.5e-4, 1e-6, 1e-3),
}
PREFILL: dict[str, Range] = {
    "peak_share": (0.8, 0.1, 1),
    "score_seconds": (3e-11, 1e-13, 1e-9),
    "block_seconds": (1e-6, 1e-8, 2e-5),
    "io_share": (0.5, 0.1, 1),
    "launch_seconds": (8e-6, 1e-6, 3e-5),
    "norm": (2, 1, 8),
    "sustained": (0.1, 0, 0.6),
    "lookahead": (64, 0, 1000),
}
ULTRA: dict[str, Range] = {"ultra": (0.7, 0.3, 1.5)}
"""Softmax time of Ultra GPUs relative to the others; their exponentials run twice as fast."""
SCAN: dict[str, Range] = {
    "matrix_share": (0.35, 0.02, 1),
    "memory_share": (0.8, 0.1, 1),
    "chunk_seconds": (1e-6, 0, 2e-5),
    "launch_seconds": (2e-5, 1e-6, 2e-4),
}
COLLECTIVE: dict[str, Range] = {
    "latency_seconds": (6e-6, 1e-6, 5e-5),
    "rank_seconds": (1e-6, 0, 2e-5),
    "bus_gb_per_s": (300, 1, 1000),
    "copy": (0.3, 0, 2),
    "ramp_seconds": (1e-5, 0, 3e-4),
    "ramp_bytes": (4e6, 1e4, 1e8),
}
SHARED: dict[str, Range] = {"crowding": (1.5, 0, 3)}
SWITCH: dict[str, Range] = {"switch_factor": (1, 0.5, 1.2)}


@dataclass(frozen=True)
class Pool:
    """Series that share one set of fitted constants, with the parameters of their formula."""

    kind: str
    series: tuple[Series, ...]
    ranges: Mapping[str, Range]
    build: Callable[[Series, Values], Any]
    predict: Callable[[Any, Timing], float]


@cache
def data_sheet(series: Series) -> dict[str, Any]:
    """Return the data-sheet values of a GPU at the precision of the series. Do not modify the
    result."""
    gpu, precision = series
    entry = Library().entry("gpus", gpu)
    return {
        "sms": SMS[gpu],
        "flops_per_second": entry["peak_tflops"][PEAKS[precision]] * 1e12,
        "bytes_per_second": entry["memory_gb_per_s"] * 1e9,
    }


def nest_sections(values: Values) -> dict[str, Any]:
    """Convert ``{"a": 1, "cast.b": 2}`` to ``{"terms": {"a": 1}, "cast": {"b": 2}}``."""
    found: dict[str, Any] = {"terms": {}}
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        found.setdefault(part or "terms", {})[key] = value
    return found


def _gemm(series: Series, values: Values) -> GemmFit:
    parts = nest_sections(values)
    terms = {**data_sheet(series), **parts["terms"], "operand_bytes": OPERAND_BYTES[series[1]]}
    cast = CastFit(**parts["cast"]) if "cast" in parts else None
    floors = HostLaunchFloors(**parts["floors"]) if "floors" in parts else None
    return GemmFit(**terms, cast=cast, floors=floors)


def _prefill(series: Series, values: Values) -> PrefillFit:
    return PrefillFit(**data_sheet(series), **prefill_terms(series, values))


def prefill_terms(series: Series, values: Values) -> dict[str, float]:
    """Return the terms for one GPU of a pool; Ultra GPUs have a different softmax time."""
    terms = dict(values)
    ultra = terms.pop("ultra", 1.0)
    if series[0] in ("b300-288gb", "gb300-288gb"):
        terms["score_seconds"] *= ultra
    if series[0] in ADA:
        terms["rows"] = 64
    return terms


def gemm_pools() -> list[Pool]:
    """Return one pool per GPU and precision."""
    return [
        Pool("gemm", ((gpu, precision),), gemm_ranges(gpu, precision), _gemm, _gemm_row)
        for gpu in SMS
        for precision in _precisions(gpu)
    ]


def _precisions(gpu: str) -> Sequence[str]:
    if gpu in AMPERE:
        return ("bf16",)
    return ALL_PRECISIONS if gpu in BLACKWELL else PRECISIONS


def gemm_ranges(gpu: str, precision: str) -> dict[str, Range]:
    """Return the parameters of a GEMM.

    Casts are added if A is quantized, floors if the host launches the kernel, and a cache on Ada,
    where it is faster than the GDDR memory.
    """
    ranges = dict(GEMM)
    if precision in ("fp8", "nvfp4"):
        ranges |= CAST
    if precision == "fp8_block":
        ranges |= FLOORS
    return ranges | CACHE if gpu in ADA else ranges


def _gemm_row(fit: GemmFit, row: Timing) -> float:
    return gemm_seconds(fit, *row.shape)


def attention_pools() -> list[Pool]:
    """Return one pool per generation."""
    pools = []
    for gpus in (AMPERE, BLACKWELL, HOPPER, ADA):
        series = tuple((gpu, "bf16") for gpu in gpus)
        ranges = {**PREFILL, **(ULTRA if gpus is BLACKWELL else {})}
        pools.append(Pool("attention_prefill", series, ranges, _prefill, _prefill_row))
    return pools


def _prefill_row(fit: PrefillFit, row: Timing) -> float:
    return prefill_seconds(fit, AttentionShape(*row.shape))


def scan_pools() -> list[Pool]:
    """Return one pool per GPU."""
    return [Pool("scan", ((gpu, "bf16"),), SCAN, _scan, _scan_row) for gpu in SCANNED]


def _scan(series: Series, values: Values) -> ScanFit:
    return ScanFit(**data_sheet(series), **values)


def _scan_row(fit: ScanFit, row: Timing) -> float:
    batch, sequence, key_heads, key_dim, value_heads, value_dim = row.shape
    linear = LinearAttention(
        full_attention_every=1,
        kind="gated-delta-net",
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv_size=4,
    )
    return scan_seconds(fit, gated_delta_rule(linear), batch * sequence, sequence)


def collective_ranges(gpu: str, operation: str) -> dict[str, Range]:
    """Return the parameters of a collective: crowding on shared PCIe, else switch reduction
    (all-reduce)."""
    ranges = dict(COLLECTIVE)
    if gpu in ADA:
        ranges |= SHARED | {"bus_gb_per_s": (20, 1, 100)}
    elif operation == "all_reduce":
        ranges |= SWITCH
    return ranges


def collective(operation: Any, values: Values) -> CollectiveFit:
    """Return a collective fit for a link rate of 1, so that ``values`` are absolute rates."""
    return CollectiveFit(operation=operation, link_gb_per_s=1.0, **values)
