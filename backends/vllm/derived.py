"""Values of flags that are not a field of the plan as it stands; names are those of flags.yaml.

None or False leaves the flag out, True writes it alone.
"""

from __future__ import annotations

import json

from parc.compiler.ir import ServingPlan

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def prefill_context(plan: ServingPlan) -> int | None:
    """Written where it is used."""
    return plan.layout.pcp if plan.layout.pcp > 1 else None


def decode_context(plan: ServingPlan) -> int | None:
    """Written where it is used."""
    return plan.layout.dcp if plan.layout.dcp > 1 else None


def data_parallel(plan: ServingPlan) -> int | None:
    """Written where it is used: a dense model has none."""
    return plan.layout.dp if plan.layout.dp > 1 else None


def executor(plan: ServingPlan) -> str | None:
    """``mp`` where an engine has several ranks: the one executor whose rank map is fixed."""
    return "mp" if plan.layout.rank_gpus > 1 else None


def expert_parallel(plan: ServingPlan) -> bool:
    """VLLM knows on or off; the degree is tp x pcp x dp."""
    return plan.layout.ep > 1


def all2all(plan: ServingPlan) -> str | None:
    """As pinned; vLLM's default otherwise."""
    return plan.problem.pins.all2all


def balances_experts(plan: ServingPlan) -> bool:
    """EPLB, where redundant experts are pinned, be it to none."""
    return plan.problem.pins.redundant_experts is not None


def balancer(plan: ServingPlan) -> str | None:
    """The settings of EPLB."""
    redundant = plan.problem.pins.redundant_experts
    return None if redundant is None else json.dumps({"num_redundant_experts": redundant})


def dtype(plan: ServingPlan) -> str:
    """Format of activations."""
    return DTYPES["fp16" if plan.problem.service.setup.weights == "fp16" else "bf16"]


def quantization(plan: ServingPlan) -> str | None:
    """Said only where vLLM quantises itself: a checkpoint names its own format."""
    return "fp8" if plan.problem.service.quantize else None


def cache_dtype(plan: ServingPlan) -> str:
    """``auto`` is the format of activations."""
    return "fp8" if plan.problem.service.setup.kv == "fp8" else "auto"


def memory_share(plan: ServingPlan) -> str:
    """What is not headroom."""
    return f"{plan.limits.gpu_memory_utilization:g}"


def block_size(plan: ServingPlan) -> int:
    """As asked; vLLM raises it itself where a state must fit into a block."""
    return plan.problem.service.block_tokens
