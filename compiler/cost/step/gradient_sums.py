"""Time and traffic of adding the gradients of the micro-batches of a step."""

from __future__ import annotations

from parc.compiler.cost.kernels.gemm import OUTPUT_BYTES
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.ir import Layout

SEPARATE_BYTES = 10
"""Bytes moved per gradient if a separate kernel adds it: the sum is read and written in 32 bit, the
gradient is read in 16 bit. The same number is used for bf16 and fp16, because matched runs of
BigScience take only 1 % longer in bf16 than in fp16."""


def gradient_accumulation_seconds(
    cost_model: CostModel, layout: Layout, parameters: float
) -> float:
    """Return the time in seconds of kernels that only add the gradients of one micro-batch.

    ``parameters`` is the number of gradients. The result is 0 if the GEMMs that compute the
    gradients add them, or if gradients are sharded (ZeRO 2 and 3) and their sum is small.
    """
    if layout.zero_stage > 1 or not cost_model.efficiency.separate_sums:
        return 0.0
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    return cost_model.efficiency.accumulate * SEPARATE_BYTES * parameters / rate


def gradient_sum_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the traffic per weight gradient in the GEMM that computes it, in bytes.

    The GEMM adds the gradient to the sum of the step, which it reads and writes (Megatron's fused
    gradient accumulation). Otherwise it writes the gradient in 16 bit.
    """
    # Sharded gradients are reduced first, so that their sum is small.
    if layout.zero_stage > 1 or cost_model.efficiency.separate_sums:
        return OUTPUT_BYTES
    # Ranks that share weights reduce the gradient of each micro-batch before they add it.
    if layout.gtp > 1:
        return cost_model.problem.job.gradient_bytes
    return 2 * cost_model.problem.job.gradient_bytes


def base_gradient_bytes(cost_model: CostModel, layout: Layout) -> float | None:
    """Return ``gradient_sum_bytes`` of the weights of the model; None if LoRA freezes them."""
    return None if cost_model.problem.job.lora else gradient_sum_bytes(cost_model, layout)
