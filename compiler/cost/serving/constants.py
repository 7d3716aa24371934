"""Constants of the serving model that do not depend on the engine, with their sources.

Hardware shares are fitted to published serving measurements, together with the constants that each
engine declares (`python -m benchmarks.accuracy.serving`). Byte sizes follow from number formats.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Gpu

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0 + 4 / 128**2,
    "int4": 0.5 + 2.5 / 128,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes per weight with its scales: fp8 blocks of 128 x 128 (fp32 scale), int4 groups of 128 (fp16
scale, 4-bit zero), nvfp4 blocks of 16 (fp8 scale)."""
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes per element of the key-value cache."""


@dataclass(frozen=True, slots=True)
class ServingHardware:
    """Shares of data-sheet rates that serving kernels reach, and fixed costs in seconds."""

    memory: float
    """Weight and cache streaming over memory bandwidth."""
    memory_fp4: float
    """The same for 4-bit weights."""
    gemm: float
    """Large GEMMs over dense peak, 16 bit."""
    gemm_fp8: float
    """The same in 8 bit, activations cast on the way."""
    gemm_fp4: float
    """The same in 4 bit."""
    attention: float
    """Prefill attention over dense 16-bit peak."""
    kernel_seconds: float
    """One kernel of a captured graph, beside its traffic."""
    collective_seconds: float
    """One all-reduce of a few KB inside a domain."""
    link: float
    """Large collectives over the one-way link rate."""


HARDWARE = {
    "hopper": ServingHardware(0.95, 0.75, 0.51, 0.53, 0.45, 0.25, 5.0e-6, 4.0e-6, 0.75),
    "blackwell": ServingHardware(0.69, 0.72, 0.55, 0.35, 0.30, 0.41, 1.0e-6, 15e-6, 0.75),
    "ampere": ServingHardware(0.76, 0.60, 0.62, 0.50, 0.50, 0.40, 3.0e-6, 13.5e-6, 0.75),
    "ada": ServingHardware(0.80, 0.64, 0.55, 0.50, 0.50, 0.35, 3.0e-6, 20e-6, 0.75),
    # Not fitted, no rows with a stated layout and latency: shares by analogy.
    "volta": ServingHardware(0.75, 0.60, 0.55, 0.55, 0.50, 0.25, 4e-6, 15e-6, 0.75),
    "cdna2": ServingHardware(0.65, 0.52, 0.45, 0.45, 0.40, 0.25, 5e-6, 20e-6, 0.70),
    "cdna3": ServingHardware(0.65, 0.52, 0.42, 0.40, 0.40, 0.30, 4e-6, 15e-6, 0.70),
    "cdna4": ServingHardware(0.65, 0.52, 0.45, 0.40, 0.40, 0.30, 4e-6, 15e-6, 0.70),
}
"""Fitted to 678 rows of Hopper (H100, H200, GH200), 889 of Blackwell (B200, B300, GB200,
RTX PRO 6000), 52 of Ampere, 27 of Ada, under priors of 30 %. ``link`` is not fitted but measured
(all-gather of 512 MiB over 8 GPUs: 335 of 450, 617 of 900, 205 of 300 GB/s); Blackwell's 16-bit
GEMM share is not fitted either, and neither are the shares of formats that a generation lacks."""


def hardware(gpu: Gpu) -> ServingHardware:
    """The row of the GPU's generation."""
    return HARDWARE[gpu.generation]
