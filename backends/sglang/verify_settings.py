"""Reader of the plan settings in the flags and variables of ``sglang/serve.sh``.

Source of flags and defaults: SGLang 0.5.23, server_args.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from parc.backends.shared.serving.verify_aliases import accepts_aliases
from parc.backends.shared.serving.verify_serve_script import (
    ScriptWord,
    contains_values,
    split_values,
)
from parc.backends.shared.serving.verify_shared_flags import (
    FlagValue,
    SharedFlags,
    parse_number,
    read_shared_flags,
)
from parc.backends.verifier import DerivedSetting

SCRIPT = "sglang/serve.sh"
GB = 10**9
PARTITION = "SGLANG_PP_LAYER_PARTITION"
EXTRA = "problem.launch.args"
PACKAGE = "parc.backends.sglang"
FEATURES = ("enable-lora", "enable-hierarchical-cache")
SWITCHES = ("enable-dp-lm-head", "enable-eplb", "disable-radix-cache", *FEATURES)
VALUES = (
    *("tp-size", "pp-size", "attn-dp-size", "ep-size", "moe-a2a-backend", "deepep-mode"),
    *("ep-num-redundant-experts", "dtype", "quantization", "kv-cache-dtype", "context-length"),
    *("max-running-requests", "chunked-prefill-size", "mem-fraction-static", "page-size", "host"),
    *("moe-dense-tp-size", "speculative-algorithm", "speculative-draft-model-path"),
    *("max-loras-per-batch", "max-lora-rank", "hicache-size"),
    *("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"),
    *("speculative-ngram-max-bfs-breadth", "disaggregation-mode"),
)
ADAPTERS = "lora-paths"
"""Flag with any number of values, one per adapter."""
METHODS = {"EAGLE": "eagle", "EAGLE3": "eagle3", "STANDALONE": "draft-model", "NGRAM": "ngram"}
ALL2ALL_NAMES = {
    (None, None): "auto",
    ("none", None): "allgather_reducescatter",
    ("deepep", "normal"): "deepep_high_throughput",
    ("deepep", "auto"): "deepep_low_latency",
    ("deepep", None): "deepep_low_latency",
    ("nixl", None): "nixl_ep",
    ("flashinfer", None): "flashinfer_nvlink_one_sided",
}
"""(--moe-a2a-backend, --deepep-mode) -> all2all of the spec; auto is the default mode."""
STAGE_WIDE_BACKENDS = {"deepep", "nixl", "flashinfer"}
"""All-to-all backends that make SGLang set --ep-size to --tp-size (overrides.py, _a2a_ep_size)."""
ACTIVATIONS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
CACHES = {"fp8_e4m3": "fp8", "bf16": "bf16", "bfloat16": "bf16"}


def read_shared(words: Sequence[ScriptWord]) -> SharedFlags:
    """Return the arguments, separated into flags of the plan and other words."""
    others, adapters = split_values(words, f"--{ADAPTERS}")
    shared = read_shared_flags(SCRIPT, others, VALUES, SWITCHES)
    if adapters:
        listed = "\n".join(word.text for word in adapters)
        shared.flags[ADAPTERS] = FlagValue(SCRIPT, ADAPTERS, listed, adapters[0].line)
    return shared


def read_flag_settings(
    checkpoint: ScriptWord, shared: SharedFlags, partition: ScriptWord | None, layers: int | None
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in the shared arguments and the partition.

    Args:
        checkpoint: the word after --model-path.
        shared: arguments that all processes share.
        partition: value of the variable with the layers per stage; None if it is not set.
        layers: number of decoder layers of the model; None if unknown.
    """
    yield from _read_sizes(shared)
    yield from _read_experts(shared)
    yield from _read_formats(shared)
    yield from _read_limits(shared)
    yield _read_draft(shared)
    mode = shared["disaggregation-mode"]
    yield mode.derive("problem.service.setup.pool", mode.text or "both")
    yield from _read_adapters(shared)
    uncached = shared["disable-radix-cache"]
    yield uncached.derive("problem.service.prefix_caching", uncached.text is None)
    yield from _read_stages(shared, partition, layers)
    path = "problem.service.checkpoint"
    yield DerivedSetting(path, checkpoint.text, SCRIPT, checkpoint.line, checkpoint.text)
    extra = [word.text for word in shared.extra]
    line = shared.extra[0].line if shared.extra else 1
    # These flags have one valid value, which is not a setting of the plan.
    wrong = [] if shared["host"].text == "0.0.0.0" else ["--host", shared["host"].text or ""]
    dp = shared.size("attn-dp-size")
    split_head = shared["enable-dp-lm-head"].text is not None
    wrong += [] if split_head == (dp > 1) else ["--enable-dp-lm-head"]
    whole = "1" if dp > 1 and shared.size("tp-size") == dp else None
    wrong += [] if shared["moe-dense-tp-size"].text == whole else ["--moe-dense-tp-size"]
    words = [*wrong, *extra]
    accepts = accepts_aliases(PACKAGE, words)
    yield DerivedSetting(EXTRA, words, SCRIPT, line, " ".join(extra), accepts)


def _read_sizes(shared: SharedFlags) -> Iterator[DerivedSetting]:
    """Yield the parallel sizes; SGLang's tp includes attention data parallelism."""
    tp, dp = shared["tp-size"], shared["attn-dp-size"]
    ranks, groups = shared.size("tp-size"), shared.size("attn-dp-size")
    yield tp.derive("layout.tp", ranks // groups if ranks % groups == 0 else f"{ranks}/{groups}")
    yield dp.derive("layout.dp", 1 if dp.text is None else dp.number)
    yield shared["pp-size"].derive("layout.pp", shared["pp-size"].number or 1)
    yield shared["dcp-size"].derive("layout.dcp", 1)
    yield shared["dcp-size"].derive("layout.pcp", 1)


def _read_experts(shared: SharedFlags) -> Iterator[DerivedSetting]:
    """Yield the expert parallel size, the all-to-all backend, and the redundant experts."""
    exchange, mode, ep = shared["moe-a2a-backend"], shared["deepep-mode"], shared["ep-size"]
    spans = exchange.text in STAGE_WIDE_BACKENDS
    value = shared.size("tp-size") if spans else 1 if ep.text is None else ep.number
    yield ep.derive("layout.ep", value)
    pair = (exchange.text, mode.text)
    chosen = ALL2ALL_NAMES.get(pair, " ".join(filter(None, pair)))
    yield exchange.derive("layout.all2all", chosen)
    yield exchange.derive("problem.pins.all2all", None if chosen == "auto" else chosen)
    balancer, copies = shared["enable-eplb"], shared["ep-num-redundant-experts"]
    number = copies.number if copies.text is not None else 0 if balancer.text is not None else None
    if balancer.text is None and number is not None:
        number = f"{number} without --enable-eplb"
    yield copies.derive("problem.pins.redundant_experts", number)
    yield copies.derive("layout.redundant_experts", number)


def _read_draft(shared: SharedFlags) -> DerivedSetting:
    """Return the setting of speculative decoding: None, or method, tokens and checkpoint.

    EAGLE without a checkpoint of the draft runs the multi-token-prediction layer of the model. A
    draft is a chain of tokens, so that each of its steps proposes one.
    """
    algorithm, path = shared["speculative-algorithm"], "problem.service.setup.speculative"
    steps, verified = shared["speculative-num-steps"], shared["speculative-num-draft-tokens"]
    draft, width = shared["speculative-draft-model-path"], shared["speculative-eagle-topk"]
    if algorithm.text is None:
        others = (one for one in (steps, verified, draft, width) if one.text is not None)
        stray = next(others, algorithm)
        return stray.derive(path, stray.text)
    method: Any = METHODS.get(algorithm.text, algorithm.text)
    if method == "eagle" and draft.text is None:
        method = "mtp"
    tokens: Any = verified.number - 1 if isinstance(verified.number, int) else verified.text
    breadth = shared["speculative-ngram-max-bfs-breadth"]
    chain = (None, None, 1) if method == "ngram" else (1, tokens, None)
    if (width.number, steps.number, breadth.number) != chain:
        tokens = f"{width.text} x {steps.text}"
    value = {"method": method, "tokens": tokens, "checkpoint": draft.text}
    setting = algorithm.derive(path, value)
    return replace(setting, accepts=lambda planned: contains_values(planned, value))


def _read_adapters(shared: SharedFlags) -> Iterator[DerivedSetting]:
    """Yield the settings of LoRA adapters, and of copies of the cache in host memory.

    SGLang counts requests without an adapter as one more adapter of a step. It allocates the copies
    per GPU, in whole GB.
    """
    slots, rank, listed = (shared[n] for n in ("max-loras-per-batch", "max-lora-rank", ADAPTERS))
    enabled, found = shared["enable-lora"], None
    if any(one.text is not None for one in (slots, rank, listed, enabled)):
        pairs = [list(text.partition("=")[::2]) for text in (listed.text or "").splitlines()]
        active: Any = slots.number - 1 if isinstance(slots.number, int) else slots.text
        found = {"adapters": pairs, "active": active, "rank": rank.number}
        if enabled.text is None:
            found["enable-lora"] = False
    yield listed.derive("problem.service.setup.lora", found)
    size, layered = shared["hicache-size"], shared["enable-hierarchical-cache"]
    groups = shared.size("attn-dp-size")
    gpus = shared.size("tp-size") // max(groups, 1) * shared.size("pp-size")
    copies: Any = 0
    if size.text is not None or layered.text is not None:
        is_complete = isinstance(size.number, int) and layered.text is not None
        copies = size.number * gpus * GB if is_complete else f"{size.text} GB"
    setting = size.derive("problem.service.setup.host_cache_bytes", copies)
    yield replace(
        setting,
        accepts=lambda planned: (
            isinstance(copies, int) and 0 < copies <= planned < copies + gpus * GB
        ),
    )


def _read_formats(shared: SharedFlags) -> Iterator[DerivedSetting]:
    """Yield the number formats of weights and KV cache, and the quantization at load time.

    ``--dtype`` sets only the format of activations. Weights of a checkpoint that SGLang does not
    quantize can have several formats with bf16 activations.
    """
    dtype, quantization, cache = (
        shared[name] for name in ("dtype", "quantization", "kv-cache-dtype")
    )
    activations = ACTIVATIONS.get(dtype.text or "", dtype.text)
    quantized = {None: False, "fp8": True}.get(quantization.text, quantization.text)
    yield quantization.derive("problem.service.quantize", quantized)
    weights: Any = activations
    if quantized is True:
        weights = "fp8"
    elif activations == "bf16":
        weights = frozenset({"bf16", "fp8", "int4", "nvfp4", "mxfp4"})
    yield dtype.derive("problem.service.setup.weights", weights)
    is_auto = cache.text in (None, "auto")
    kv = activations if is_auto else CACHES.get(cache.text or "", cache.text)
    yield cache.derive("problem.service.setup.kv", kv)


def _read_limits(shared: SharedFlags) -> Iterator[DerivedSetting]:
    """Yield the limits; SGLang divides requests and tokens by the number of dp ranks."""
    dp = shared.size("attn-dp-size")
    for name, path in (
        ("max-running-requests", "limits.max_num_seqs"),
        ("chunked-prefill-size", "limits.max_num_batched_tokens"),
    ):
        value = shared[name].number
        whole = isinstance(value, int) and value % dp == 0
        yield shared[name].derive(path, value // dp if whole else shared[name].text)
    page = shared["page-size"]
    for name, path in (
        ("context-length", "limits.max_model_len"),
        ("mem-fraction-static", "limits.gpu_memory_utilization"),
    ):
        yield shared[name].derive(path, shared[name].number)
    yield page.derive("problem.service.block_tokens", 1 if page.text is None else page.number)


def _read_stages(
    shared: SharedFlags, partition: ScriptWord | None, layers: int | None
) -> Iterator[DerivedSetting]:
    """Yield the number of layers of each pipeline stage.

    Without the variable, the last stages get the layers that remain after an even split
    (distributed/utils.py, get_pp_indices).
    """
    stages, path = shared.size("pp-size"), "layout.stages"
    if partition is not None:
        numbers = [parse_number(one) for one in partition.text.split(",")]
        setting = f"{PARTITION}={partition.text}"
        yield DerivedSetting(path, numbers, SCRIPT, partition.line, setting)
    elif layers is not None and 1 < stages <= layers:
        most = stages - layers % stages
        split = [layers // stages + (stage >= most) for stage in range(stages)]
        yield DerivedSetting(path, split, SCRIPT)
    elif stages == 1:
        yield DerivedSetting(path, [], SCRIPT, accepts=lambda planned: len(planned) < 2)
