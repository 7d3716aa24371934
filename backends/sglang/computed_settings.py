"""Functions that compute values of flags from the plan; flags.yaml refers to them by name.

None or False leaves a flag out; True writes the flag without a value.
"""

from __future__ import annotations

from parc.compiler.ir import ServingPlan

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
ALL2ALL = {
    "allgather_reducescatter": ("none", None),
    "deepep_high_throughput": ("deepep", "normal"),
    "deepep_low_latency": ("deepep", "auto"),
    "nixl_ep": ("nixl", None),
    "flashinfer_nvlink_one_sided": ("flashinfer", None),
}
"""Value of ``layout.all2all`` -> (--moe-a2a-backend, --deepep-mode). The mode auto uses the
low-latency kernels for decode steps only, because their buffers are too small for prompts."""

ALGORITHMS = {
    "mtp": "EAGLE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "draft-model": "STANDALONE",
    "ngram": "NGRAM",
}
"""Method -> --speculative-algorithm."""


def tensor_parallel_size(plan: ServingPlan) -> int:
    """Return SGLang's tp size: the ranks per stage, including data-parallel attention."""
    return plan.layout.tp * plan.layout.dp


def attention_data_parallel_size(plan: ServingPlan) -> int | None:
    """Return the data parallel size of attention; None, which omits the flag, if it is 1."""
    return plan.layout.dp if plan.layout.dp > 1 else None


def enables_dp_lm_head(plan: ServingPlan) -> bool:
    """Return True if each data-parallel rank computes the logits of its own tokens."""
    return plan.layout.dp > 1


def moe_dense_tp_size(plan: ServingPlan) -> int | None:
    """Return 1 if each data-parallel rank has one GPU, which then stores whole dense MLPs.

    Otherwise SGLang splits dense MLPs over all ranks of a stage.
    """
    return 1 if plan.layout.dp > 1 and plan.layout.tp == 1 else None


def expert_parallel_size(plan: ServingPlan) -> int | None:
    """Return the expert parallel size; None, which omits the flag, if it is 1."""
    return plan.layout.ep if plan.layout.ep > 1 else None


def moe_a2a_backend(plan: ServingPlan) -> str | None:
    """Return SGLang's name of the all-to-all backend in the spec; None to use its default."""
    return _all2all(plan)[0]


def deepep_mode(plan: ServingPlan) -> str | None:
    """Return the mode of DeepEP's kernels; None for other backends."""
    return _all2all(plan)[1]


def _all2all(plan: ServingPlan) -> tuple[str | None, str | None]:
    # Other values are reported (V23), so that no plan with them is emitted.
    return ALL2ALL.get(plan.problem.pins.all2all or "", (None, None))


def enables_eplb(plan: ServingPlan) -> bool:
    """Return True if the spec sets ``redundant_experts``, even to 0, which turns on EPLB."""
    return plan.problem.pins.redundant_experts is not None


def dtype(plan: ServingPlan) -> str:
    """Return SGLang's name of the number format of activations, such as "bfloat16"."""
    return DTYPES["fp16" if plan.problem.service.setup.weights == "fp16" else "bf16"]


def quantization(plan: ServingPlan) -> str | None:
    """Return "fp8" if SGLang quantizes the weights while it loads them, else None."""
    return "fp8" if plan.problem.service.quantize else None


def cache_dtype(plan: ServingPlan) -> str:
    """Return the number format of the KV cache: "auto" is the format of activations."""
    return "fp8_e4m3" if plan.problem.service.setup.kv == "fp8" else "auto"


def max_running_requests(plan: ServingPlan) -> int:
    """Return the limit on requests of an engine, which SGLang divides by the number of dp ranks."""
    # model_executor/pool_configurator.py, requested_max_running_requests_per_worker
    return plan.limits.max_num_seqs * plan.layout.dp


def chunked_prefill_size(plan: ServingPlan) -> int:
    """Return the tokens per step of an engine, which SGLang divides by the number of dp ranks."""
    # arg_groups/parallel_hook.py, handle_data_parallelism
    return plan.limits.max_num_batched_tokens * plan.layout.dp


def mem_fraction_static(plan: ServingPlan) -> str:
    """Return the fraction of device memory for weights and KV cache; the rest is the headroom."""
    return f"{plan.limits.gpu_memory_utilization:g}"


def speculative_algorithm(plan: ServingPlan) -> str | None:
    """Return SGLang's name of the method; None without speculative decoding."""
    draft = plan.problem.service.setup.speculative
    return None if draft is None else ALGORITHMS[draft.method]


def speculative_num_steps(plan: ServingPlan) -> int | None:
    """Return the number of passes of the draft, which proposes one token per pass."""
    draft = plan.problem.service.setup.speculative
    return None if draft is None or draft.method == "ngram" else draft.tokens


def speculative_topk(plan: ServingPlan) -> int | None:
    """Return 1, for a draft that is a chain of tokens and not a tree; None without passes."""
    return None if speculative_num_steps(plan) is None else 1


def ngram_breadth(plan: ServingPlan) -> int | None:
    """Return 1 for ngram, so that the draft is a chain; None for other methods.

    SGLang rejects wider drafts with pages of several tokens (speculative_hook.py, _handle_ngram).
    """
    draft = plan.problem.service.setup.speculative
    return 1 if draft is not None and draft.method == "ngram" else None


def speculative_num_draft_tokens(plan: ServingPlan) -> int | None:
    """Return the number of tokens that a step verifies: the draft, and the token before it."""
    draft = plan.problem.service.setup.speculative
    return None if draft is None else draft.tokens + 1


def disaggregation_mode(plan: ServingPlan) -> str | None:
    """Return the pool of the engines; None, which omits the flag, if they serve whole requests."""
    pool = plan.problem.service.setup.pool
    return None if pool == "both" else pool


def disables_prefix_caching(plan: ServingPlan) -> bool:
    """Return True if the spec turns off prefix caching, which is on by default."""
    return not plan.problem.service.prefix_caching


def enables_lora(plan: ServingPlan) -> bool:
    """Return True if the spec lists LoRA adapters."""
    return plan.problem.service.setup.lora is not None


def max_loras_per_batch(plan: ServingPlan) -> int | None:
    """Return the adapters per step, plus one for requests without adapter; None without LoRA."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else lora.active + 1


def max_lora_rank(plan: ServingPlan) -> int | None:
    """Return the largest rank of the adapters; None without adapters."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else lora.rank


def lora_paths(plan: ServingPlan) -> tuple[str, ...] | None:
    """Return NAME=PATH of each adapter; None without adapters."""
    lora = plan.problem.service.setup.lora
    return None if lora is None else tuple(f"{name}={path}" for name, path in lora.adapters)


def enables_hierarchical_cache(plan: ServingPlan) -> bool:
    """Return True if host memory stores copies of the cache."""
    return plan.problem.service.setup.host_cache_bytes > 0


def hicache_size(plan: ServingPlan) -> int | None:
    """Return the host memory per GPU in GB, rounded down; None if nothing is copied there."""
    copies = plan.problem.service.setup.host_cache_bytes
    return int(copies / plan.layout.rank_gpus / 1e9) if copies else None
