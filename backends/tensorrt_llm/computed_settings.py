"""Functions that compute values of flags and of config.yaml; flags.yaml refers to them by name.

None leaves a setting out.
"""

from __future__ import annotations

from parc.backends.tensorrt_llm.defaults import default_stages
from parc.compiler.ir import ServingPlan

BLACKWELL = 10
"""Major compute capability from which CUTLASS kernels lack fp8 weights in blocks."""


def tensor_parallel_size(plan: ServingPlan) -> int:
    """Return the ranks of a pipeline stage: with attention data parallelism, dp of the plan."""
    return plan.layout.tp * plan.layout.dp


def expert_parallel_size(plan: ServingPlan) -> int | None:
    """Return the expert parallel size; None, which omits the flag, if it is 1."""
    return plan.layout.ep if plan.layout.ep > 1 else None


def enables_attention_dp(plan: ServingPlan) -> bool | None:
    """Return True if each rank of a stage runs the attention of its own requests, else None."""
    return True if plan.layout.dp > 1 else None


def stage_layers(plan: ServingPlan) -> list[int] | None:
    """Return the layers of each pipeline stage; None for the default split."""
    stages = plan.layout.stages
    if not stages or stages == default_stages(plan.problem.model.layers, plan.layout.pp):
        return None
    return list(stages)


def dtype(plan: ServingPlan) -> str:
    """Return the number format of activations: "float16" or "bfloat16"."""
    return "float16" if plan.problem.service.setup.weights == "fp16" else "bfloat16"


def cache_dtype(plan: ServingPlan) -> str:
    """Return the number format of the KV cache: "auto" is the format of activations."""
    return "fp8" if plan.problem.service.setup.kv == "fp8" else "auto"


def cache_memory_fraction(plan: ServingPlan) -> float:
    """Return the share of the memory left by weights and activations that the KV cache gets."""
    return round(plan.limits.gpu_memory_utilization, 6)


def moe_backend(plan: ServingPlan) -> str | None:
    """Return the kernels for experts; None to use the default of TensorRT-LLM.

    On Blackwell, only DEEPGEMM supports experts with fp8 weights in blocks (documentation of
    DeepSeek-R1, table of MoE backends).
    """
    problem = plan.problem
    setup, major = problem.service.setup, problem.cluster.gpu.compute_capability[0]
    in_blocks = setup.weights == "fp8" and setup.block_size > 1
    needs_deepgemm = problem.model.experts is not None and in_blocks and major >= BLACKWELL
    return "DEEPGEMM" if needs_deepgemm else None
