"""Page of Markdown tables with the errors of the kernel fits on shapes that they did not use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from kernel_forms import data_sheet
from kernel_rows import Series, Timing

from parc.compiler.cost.kernels.hardware_fit import OPERAND_BYTES

SMALL_SECONDS = 1e-5
"""Roofline time below which launches and latencies dominate the timing."""
Pair = tuple[Timing, float]
Regimes = dict[str, Callable[[Series, Timing], bool]]


@dataclass(frozen=True)
class Validation:
    """Predictions of one fit for rows of one series that it was not fitted to."""

    kind: str
    series: Series
    pairs: list[Pair]

    @property
    def rows(self) -> int:
        return len(self.pairs)

    @property
    def median(self) -> float:
        return median(errors(self.pairs))

    @property
    def rms(self) -> float:
        """Root mean square of log(predicted / measured)."""
        logs = [math.log(predicted / row.seconds) for row, predicted in self.pairs]
        return math.sqrt(sum(value * value for value in logs) / len(logs))


def errors(pairs: Sequence[Pair]) -> list[float]:
    """Return the absolute relative errors."""
    return [abs(predicted / row.seconds - 1.0) for row, predicted in pairs]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a fraction ``share`` of ``values`` lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def roofline(series: Series, row: Timing) -> tuple[float, float]:
    """Return the seconds of arithmetic and of memory traffic of a GEMM at data-sheet rates."""
    sheet = data_sheet(series)
    m, n, k = row.shape
    moved_bytes = OPERAND_BYTES[series[1]] * (m + n) * k + 2 * m * n
    return 2.0 * m * n * k / sheet["flops_per_second"], moved_bytes / sheet["bytes_per_second"]


def _small(series: Series, row: Timing) -> bool:
    return max(roofline(series, row)) < SMALL_SECONDS


def _compute(series: Series, row: Timing) -> bool:
    arithmetic, memory = roofline(series, row)
    return arithmetic >= max(memory, SMALL_SECONDS)


def _memory(series: Series, row: Timing) -> bool:
    arithmetic, memory = roofline(series, row)
    return memory > arithmetic and memory >= SMALL_SECONDS


def _between(least: float, most: float) -> Callable[[Series, Timing], bool]:
    return lambda series, row: least <= row.seconds < most


BY_TIME: Regimes = {
    "under 30 us": _between(0.0, 3e-5),
    "30 to 300 us": _between(3e-5, 3e-4),
    "over 300 us": _between(3e-4, math.inf),
}
REGIMES: dict[str, Regimes] = {
    "gemm": {"compute bound": _compute, "memory bound": _memory, "small": _small},
    "nccl": {
        "under 1 MB": lambda series, row: row.shape[0] < 2**20,
        "1 to 32 MB": lambda series, row: 2**20 <= row.shape[0] < 2**25,
        "over 32 MB": lambda series, row: row.shape[0] >= 2**25,
    },
}
TITLES = {
    "gemm": "GEMM",
    "attention_prefill": "Attention, prefill",
    "attention_decode": "Attention, decode",
    "moe": "Routed experts (grouped GEMM)",
    "scan": "Recurrences (gated delta rule)",
    "nccl": "Collectives in one host",
}
NOTES = {
    "gemm": (
        "The regimes follow from the roofline of the data sheet; *small* means a roofline time "
        "below 10 us. fp8 includes the cast of A, which the measured stack runs before each "
        "call. fp8_block was launched from the host without a CUDA graph, so its minimum of 60 "
        "to 450 us is launch time and not GPU time. `GemmFit.without_gaps_and_casts()`, which "
        "estimates use, excludes both."
    ),
    "attention_prefill": (
        "Regimes are ranges of the measured time. All GPUs of a generation share one set of "
        "constants."
    ),
    "attention_decode": (
        "Regimes are ranges of the measured time. All GPUs of a generation share one set of "
        "constants."
    ),
    "moe": (
        "Regimes are ranges of the measured time. All GPUs of a generation share one set of "
        "constants per precision. On Hopper fp8 is slower than bf16 in the measurements, "
        "because that stack's kernel is not tuned; `KernelFit.experts` therefore uses the "
        "faster of fp8 and fp8_block. In shapes under 30 us a rank has hardly any rows. The "
        "formula still counts every kernel and overestimates them."
    ),
    "scan": (
        "Regimes are ranges of the measured time. The measured kernels are the Triton kernels of "
        "flash-linear-attention, which training uses too, on sequences of at least one chunk (64 "
        "tokens). They reach 80 to 95 % of the memory bandwidth on Hopper and little more than "
        "half of it on Blackwell. The cache of l40s-48gb holds all data of the smaller shapes, "
        "which the formula does not know."
    ),
    "nccl": (
        "Regimes are ranges of the message size. The GPUs of l40s-48gb share PCIe without P2P."
    ),
}
HEAD = """# Kernel fits

<!-- Generated by: python benchmarks/fit_kernels.py FOLDER --report -->

This page shows how well the formulas of `gemm.py`, `attention.py`, `grouped_gemm.py`,
`recurrence.py` and `collective_time.py` in `compiler/cost/kernels/` predict timings that they were
not fitted to. Shapes are split in half at random, and a fit on one half is evaluated on the other
half.
Collectives have only 30 to 45 rows each; there every row is predicted by a fit on the other four
fifths. Each cell is **median / 90th percentile of the absolute relative error, in per cent**;
*bias* is the median signed error. The constants in `compiler/catalog/kernels/` are fitted to all
rows.

The timings are those of the public kernel database of ai-dynamo/aiconfigurator (a serving stack).
"""
FOOT = """
## Limits of the data and of the formulas

- **Labels.** The files of GEMM, attention and expert timings name neither GPU nor precision.
  The rows of each shape are in a fixed order of GPUs and precisions; the labels were recovered
  from this order.
  - GEMM on data-center GPUs: the labels are practically certain. 23 series share one grid of
    shapes, and their best fp8 and nvfp4 rates have the same ranking as the published best rates.
  - The three series of l40s-48gb, attention and experts: the rows were aligned to the fit itself,
    keeping the order. The errors shown are therefore too small by an unknown amount, and similar
    GPUs of one generation can be confused. For this reason the GPUs of a generation share their
    constants; they differ only by data sheet and by the softmax time of the Ultra GPUs.
  - Collectives: the file contains labels.
- **GB200 in bf16.** The other timings of GB200 come from a host whose bf16 GEMMs lose 40 % of their
  rate as they grow (870 TFLOP/s at 16,384 x 8,192 x 8,192). Two more collections of the same
  database show no such loss (1,510 and 1,580 TFLOP/s there). The bf16 constants are fitted to that
  of TensorRT-LLM, at the same shapes.
- **Inference kernels.** Weights are static and pre-arranged; GEMMs of training run up to 10 %
  slower. The data contains no backward pass. Its GEMMs are estimated as GEMMs, and the attention
  core is assumed to take 2.5 times the forward time (FlashAttention-2, arXiv:2307.08691).
- **Not modeled.** The formulas contain neither the library's choice of a kernel, which
  explains most of the 90th percentile (neighboring shapes differ by up to 30 %), nor the
  alignment of odd dimensions, nor clocks under other power caps than that of the measured host.
  Sliding windows and unequal head dims follow the formula but were not measured. Head dim 512
  on Ampere and Ada uses another kernel, and the prediction is off by about half. The imbalance
  of the measured routing is unknown. It is part of the parameter `skew`: with expert parallelism,
  the share of the busiest rank grows by this exponent.
- **Collectives across hosts** follow an unfitted formula (the slower of link and NIC share, plus
  hops), as does the latency beyond 8 ranks in one domain. The formula does not choose a protocol
  (LL, LL128, Simple) explicitly; a cost that saturates with size represents the change between
  them. NVLink reduction (NVLS) is visible only on Hopper from 8 ranks on, as less traffic in
  all-reduce.
- **GPUs without timings** are marked `fitted: false`. They use the constants of a similar GPU as
  shares of their own data sheet. For AMD GPUs the share of peak is lowered by the ratio of the
  best published GEMM rates (stas00/ml-engineering); no other quantity was measured on them.
"""


def report_text(validations: Sequence[Validation]) -> str:
    """Return the whole page."""
    parts = [HEAD]
    for kind, title in TITLES.items():
        rows = [one for one in validations if one.kind == kind]
        parts.append(f"\n## {title}\n\n{NOTES[kind]}\n\n{_table(kind, rows)}")
    return "".join(parts) + FOOT


def _table(kind: str, validations: Sequence[Validation]) -> str:
    regimes = REGIMES.get(kind, BY_TIME)
    second = "operation" if kind == "nccl" else "precision"
    head = ["GPU", second, "held-out rows", "all", "bias", *regimes]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for one in validations:
        cells = [*one.series, str(one.rows), format_errors(one.pairs), format_bias(one.pairs)]
        for test in regimes.values():
            cells.append(format_errors([pair for pair in one.pairs if test(one.series, pair[0])]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_errors(pairs: Sequence[Pair]) -> str:
    """Return the median and 90th percentile of the absolute errors; a dash for fewer than three
    rows."""
    if len(pairs) < 3:
        return "-"
    found = errors(pairs)
    return f"{100 * median(found):.1f} / {100 * quantile(found, 0.9):.0f}"


def format_bias(pairs: Sequence[Pair]) -> str:
    """Return the median of the signed errors."""
    return f"{100 * median(predicted / row.seconds - 1.0 for row, predicted in pairs):+.1f}"
