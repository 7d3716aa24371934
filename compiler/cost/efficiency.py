"""Stated efficiencies: how much of a data-sheet number a training step gets.

One row a device generation. Link shares are measured collectives over data-sheet rates; the GEMM
shares are the measured 8192-cube GEMM (in the comment) less what published training steps of
GPT-3 175B and Llama 70B lose against it. They are means: a shape-by-shape model would do better.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Gpu


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the data-sheet peak, and fixed costs in seconds."""

    gemm: float
    """Matrix multiplications of a training step over the dense peak.

    The 8192-cube GEMM reaches 10 to 20 points more; training shapes, casts, gaps between kernels
    and clocks under sustained power take the rest.
    """
    attention: float
    """Fused attention core over dense bf16 peak."""
    memory: float
    """Streaming kernels over memory bandwidth."""
    link: float
    """Ring all-gather at 512 MiB over the one-way NVLink (xGMI) data-sheet rate."""
    network: float
    """Ring all-gather between hosts over the NIC rate."""
    link_latency_seconds: float
    """One collective inside the domain: launch and synchronise."""
    kernel_seconds: float
    """Host launch of one kernel; a layer forward launches about 20."""


GENERATIONS: dict[str, Efficiency] = {
    # GEMM 262.5/312 and all-gather 205/300 GB/s measured on 8 GPUs (public kernel timings).
    "ampere": Efficiency(0.65, 0.45, 0.85, 0.68, 0.80, 24e-6, 6e-6),
    # GEMM 782.7/989.4, all-gather 335/450 GB/s; attention: FlashAttention-3 paper, causal backward.
    "hopper": Efficiency(0.62, 0.50, 0.85, 0.74, 0.80, 20e-6, 5e-6),
    # GEMM 1491.6/2250, all-gather 617/900 GB/s.
    "blackwell": Efficiency(0.54, 0.50, 0.85, 0.68, 0.80, 20e-6, 5e-6),
    # GEMM 222.6/362 on L40S; no NVLink: PCIe share measured at 20 of 31.5 GB/s for two GPUs.
    "ada": Efficiency(0.50, 0.40, 0.85, 0.60, 0.80, 40e-6, 6e-6),
    "volta": Efficiency(0.70, 0.30, 0.80, 0.65, 0.75, 30e-6, 8e-6),
    # Best measured GEMM on MI300X 668/1307 and MI325X 785/1307.
    "cdna2": Efficiency(0.45, 0.30, 0.80, 0.60, 0.75, 30e-6, 8e-6),
    "cdna3": Efficiency(0.42, 0.35, 0.80, 0.60, 0.80, 30e-6, 8e-6),
    # Best measured GEMM on MI355X 1565/2500.
    "cdna4": Efficiency(0.50, 0.40, 0.80, 0.60, 0.80, 30e-6, 8e-6),
}

LOW_PRECISION_GEMM = 0.85
"""fp8 and fp4 GEMM efficiency over that of bf16: 1420/1979 against 783/989 less casts."""


def efficiency(gpu: Gpu) -> Efficiency:
    """The row of the GPU's generation."""
    return GENERATIONS[gpu.generation]


def matmul_flops_per_second(gpu: Gpu, precision: str) -> float:
    """Achievable matrix-multiplication rate, FLOP/s; bf16 where the precision has no peak."""
    row = efficiency(gpu)
    peak = gpu.peak(precision)
    if peak is None or precision in ("bf16", "fp16"):
        return (peak or gpu.peak("bf16") or gpu.peak("fp16") or 1.0) * 1e12 * row.gemm
    return peak * 1e12 * row.gemm * LOW_PRECISION_GEMM


def attention_flops_per_second(gpu: Gpu) -> float:
    """Achievable rate of the attention core, FLOP/s; it runs in 16 bit whatever the precision."""
    peak = gpu.peak("bf16") or gpu.peak("fp16") or 1.0
    return peak * 1e12 * efficiency(gpu).attention
