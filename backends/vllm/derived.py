"""Values of flags that are computed from the plan; flags.yaml refers to the functions by name.

None or False omits the flag, True writes it without a value.
"""

from __future__ import annotations

import json

from parc.compiler.ir import ServingPlan

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def prefill_context(plan: ServingPlan) -> int | None:
    """Return pcp if it is above 1."""
    return plan.layout.pcp if plan.layout.pcp > 1 else None


def decode_context(plan: ServingPlan) -> int | None:
    """Return dcp if it is above 1."""
    return plan.layout.dcp if plan.layout.dcp > 1 else None


def data_parallel(plan: ServingPlan) -> int | None:
    """Return dp if it is above 1."""
    return plan.layout.dp if plan.layout.dp > 1 else None


def executor(plan: ServingPlan) -> str | None:
    """Return ``mp`` for several ranks, the only executor with a fixed rank map."""
    return "mp" if plan.layout.rank_gpus > 1 else None


def expert_parallel(plan: ServingPlan) -> bool:
    """Return True for expert parallelism; vLLM derives the degree tp x pcp x dp."""
    return plan.layout.ep > 1


def all2all(plan: ServingPlan) -> str | None:
    """Return the pinned all-to-all backend; None for vLLM's default."""
    return plan.problem.pins.all2all


def balances_experts(plan: ServingPlan) -> bool:
    """Return True for EPLB, if redundant experts are pinned, also to 0."""
    return plan.problem.pins.redundant_experts is not None


def balancer(plan: ServingPlan) -> str | None:
    """Return the settings of EPLB as JSON."""
    redundant = plan.problem.pins.redundant_experts
    return None if redundant is None else json.dumps({"num_redundant_experts": redundant})


def dtype(plan: ServingPlan) -> str:
    """Return the format of activations."""
    return DTYPES["fp16" if plan.problem.service.setup.weights == "fp16" else "bf16"]


def quantization(plan: ServingPlan) -> str | None:
    """Return the format only if vLLM quantizes itself; checkpoints state their own format."""
    return "fp8" if plan.problem.service.quantize else None


def cache_dtype(plan: ServingPlan) -> str:
    """Return the cache format; ``auto`` is the format of activations."""
    return "fp8" if plan.problem.service.setup.kv == "fp8" else "auto"


def memory_share(plan: ServingPlan) -> str:
    """Return the share of device memory without the headroom."""
    return f"{plan.limits.gpu_memory_utilization:g}"


def block_size(plan: ServingPlan) -> int:
    """Return the block length of the spec; vLLM raises it if a state must fit into a block."""
    return plan.problem.service.block_tokens
