"""What a routed layer adds on the device: experts, permutation, casts; and its launch."""

from __future__ import annotations

from parc.compiler.cost.kernels.layer_kernels import Seconds, expert_gemms, gemm_pass
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Layout

PASS_BYTES = 4
"""An element of a routed token that one permutation reads and writes, 16 bit."""
PASSES = 4
"""All-to-all: by rank before it and by expert after it, on the way there and on the way back."""
ONCE_PASSES = 2
"""DeepEP and HybridEP: by expert on arrival, and back."""
UNFUSED = 3.0
"""Traffic of permutations made of single PyTorch kernels over fused ones, as with token dropping;
fitted to published runs of both kinds."""
CAST_BYTES = 8
"""An element quantised to 8 or 4 bit: padded for its expert (read, written), then read and written
twice, by row and by column."""
FUSED_CASTS = 0.25
"""What is left of them where the grouped MLP is one kernel: the gradients that arrive."""
FUSED_GEMMS = 0.8
"""Time of such a grouped MLP over that of a kernel a matrix; fitted to published runs."""
LOW_LAUNCH = 1.5
"""Host launch with casts for every expert over that in 16 bit."""


def routed_kernels(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Routed experts of one micro-batch, forward and backward; ``tokens`` are those of a rank."""
    gemms, moved = _gemms(pricing, layout, tokens), routed_bytes(pricing, layout, tokens)
    gpu, row = pricing.problem.cluster.gpu, pricing.efficiency
    factor = pricing.gemm_factor * row.experts * (FUSED_GEMMS if row.fused_experts else 1.0)
    stream = row.stream / (gpu.memory_gb_per_s * 1e9)
    return Seconds(
        factor * gemms.forward + stream * moved.forward,
        factor * gemms.backward + stream * moved.backward,
    )


def _gemms(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Grouped multiplications."""
    shapes = expert_gemms(pricing.problem.model, layout, tokens)
    return pricing.memo(("grouped", *shapes), lambda: gemm_pass(pricing.gemm, shapes))


def routed_bytes(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Bytes (not seconds), forward and backward: permutations, activation, casts of all visits."""
    job, model, row = pricing.problem.job, pricing.problem.model, pricing.efficiency
    experts = model.experts
    if experts is None:
        return Seconds(0.0, 0.0)
    visits = experts.top_k * tokens / layout.tp * layout.etp
    inner = experts.size / layout.etp
    columns = 2 * inner if model.ffn.gated else inner
    passes = ONCE_PASSES if job.deduplicates_dispatch else PASSES
    permuted = PASS_BYTES * passes * model.hidden * (1.0 if row.fused_routing else UNFUSED)
    activated = 2 * (columns + inner)
    cast = CAST_BYTES if job.is_low_precision else 0.0
    cast *= FUSED_CASTS if row.fused_experts else 1.0
    return Seconds(
        visits * (permuted + activated + cast * (model.hidden + inner)),
        visits * (permuted + 2 * activated + cast * (model.hidden + columns)),
    )


def routed_launch_seconds(pricing: Pricing) -> float:
    """Host launch of the forward of one routed layer; backward takes twice as long."""
    low = LOW_LAUNCH if pricing.problem.job.is_low_precision else 1.0
    return pricing.efficiency.routed_seconds * low
