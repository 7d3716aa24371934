"""Functions that compute values of flags from the plan; flags.yaml refers to them by name.

None or False leaves a flag out; True writes the flag without a value.
"""

from __future__ import annotations

import json

from parc.compiler.ir import ServingPlan

KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
"""Pool -> role in the transfer of the KV cache (config/kv_transfer.py)."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def prefill_context_parallel_size(plan: ServingPlan) -> int | None:
    """Return the prefill context parallel size; None, which omits the flag, if the size is 1."""
    return plan.layout.pcp if plan.layout.pcp > 1 else None


def decode_context_parallel_size(plan: ServingPlan) -> int | None:
    """Return the decode context parallel size; None, which omits the flag, if the size is 1."""
    return plan.layout.dcp if plan.layout.dcp > 1 else None


def data_parallel_size(plan: ServingPlan) -> int | None:
    """Return the data parallel size; None, which omits the flag, if the size is 1."""
    return plan.layout.dp if plan.layout.dp > 1 else None


def executor_backend(plan: ServingPlan) -> str | None:
    """Return "mp" (multiprocessing) if a data-parallel rank has several GPUs, else None.

    "mp" is the only executor of vLLM with a fixed map of ranks to hosts.
    """
    # Ray sorts nodes by random ids, so its map of ranks to hosts is not known in advance
    # (ray_utils.py, initialize_ray_cluster).
    return "mp" if plan.layout.rank_gpus > 1 else None


def enables_expert_parallel(plan: ServingPlan) -> bool:
    """Return True if the plan uses expert parallelism.

    vLLM has only a switch for expert parallelism. Its size is always tp x pcp x dp.
    """
    return plan.layout.ep > 1


def enables_eplb(plan: ServingPlan) -> bool:
    """Return True if the spec sets ``redundant_experts``, even to 0.

    Setting this field turns on EPLB, vLLM's load balancer for experts.
    """
    return plan.problem.pins.redundant_experts is not None


def eplb_config(plan: ServingPlan) -> str | None:
    """Return the settings of vLLM's expert load balancer (EPLB) as JSON; None if EPLB is off."""
    redundant = plan.problem.pins.redundant_experts
    return None if redundant is None else json.dumps({"num_redundant_experts": redundant})


def dtype(plan: ServingPlan) -> str:
    """Return vLLM's name of the number format of activations, such as "bfloat16"."""
    return DTYPES["fp16" if plan.problem.service.setup.weights == "fp16" else "bf16"]


def quantization(plan: ServingPlan) -> str | None:
    """Return "fp8" if vLLM quantizes the weights while it loads them, else None."""
    return "fp8" if plan.problem.service.quantize else None


def cache_dtype(plan: ServingPlan) -> str:
    """Return the number format of the KV cache: "fp8", or "auto" for the format of activations."""
    return "fp8" if plan.problem.service.setup.kv == "fp8" else "auto"


def gpu_memory_utilization(plan: ServingPlan) -> str:
    """Return the fraction of device memory that vLLM may use; the rest is the headroom."""
    return f"{plan.limits.gpu_memory_utilization:g}"


def speculative_config(plan: ServingPlan) -> str | None:
    """Return the value of --speculative-config as JSON; None without speculative decoding."""
    draft = plan.problem.service.setup.speculative
    if draft is None:
        return None
    config: dict[str, object] = {"method": draft.method.replace("-", "_")}
    if draft.checkpoint is not None:
        config["model"] = draft.checkpoint
    return json.dumps({**config, "num_speculative_tokens": draft.tokens})


def kv_transfer_config(plan: ServingPlan) -> str | None:
    """Return the value of --kv-transfer-config as JSON; None for engines that are in no pool."""
    role = KV_ROLES.get(plan.problem.service.setup.pool)
    return None if role is None else json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


def disables_prefix_caching(plan: ServingPlan) -> bool:
    """Return True if the spec turns off prefix caching, which is on by default."""
    return not plan.problem.service.prefix_caching


def enables_lora(plan: ServingPlan) -> bool:
    """Return True if the spec lists LoRA adapters."""
    return plan.problem.service.setup.lora is not None


def max_loras(plan: ServingPlan) -> int | None:
    """Return the maximum number of adapters of a step; None without adapters."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else lora.active


def max_lora_rank(plan: ServingPlan) -> int | None:
    """Return the largest rank of the adapters; None without adapters."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else lora.rank


def max_cpu_loras(plan: ServingPlan) -> int | None:
    """Return the number of adapters in host memory, which are all of them; None without any."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else len(lora.adapters)


def lora_modules(plan: ServingPlan) -> tuple[str, ...] | None:
    """Return a JSON object with name and path of each adapter; None without adapters."""
    # The form NAME=PATH would not accept a path that contains a comma.
    lora = plan.problem.service.setup.lora
    if lora is None:
        return None
    return tuple(json.dumps({"name": name, "path": path}) for name, path in lora.adapters)


def kv_offloading_size(plan: ServingPlan) -> str | None:
    """Return the host memory for copies of the cache in GiB, over all GPUs of a dp rank."""
    copies = plan.problem.service.setup.host_cache_bytes
    return f"{copies / 2**30:.6g}" if copies else None
