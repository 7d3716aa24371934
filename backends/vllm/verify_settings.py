"""Reader of the plan settings in the flags and variables of ``vllm/serve.sh``.

Flags, their types and defaults are those of vLLM 0.28 to 0.33: engine/arg_utils.py,
config/parallel.py, config/scheduler.py, config/cache.py and entrypoints/openai/cli_args.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from parc.backends.shared.serving.verify_aliases import accepts_aliases
from parc.backends.shared.serving.verify_serve_script import (
    ScriptWord,
    contains_values,
    split_values,
)
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen

PARTITION = "VLLM_PP_LAYER_PARTITION"
EXTRA = "problem.launch.args"
PACKAGE = "parc.backends.vllm"
Value = int | float | str | None


@frozen
class PlannedFlag:
    """A flag whose value is a setting of the plan."""

    path: str
    default: Value = None
    """Value that vLLM uses without the flag; None if it depends on the model or the GPU."""


NUMBERS = {
    "tensor-parallel-size": PlannedFlag("layout.tp", 1),
    "pipeline-parallel-size": PlannedFlag("layout.pp", 1),
    "prefill-context-parallel-size": PlannedFlag("layout.pcp", 1),
    "decode-context-parallel-size": PlannedFlag("layout.dcp", 1),
    "data-parallel-size": PlannedFlag("layout.dp", 1),
    "max-model-len": PlannedFlag("limits.max_model_len"),
    "max-num-seqs": PlannedFlag("limits.max_num_seqs"),
    "max-num-batched-tokens": PlannedFlag("limits.max_num_batched_tokens"),
    "gpu-memory-utilization": PlannedFlag("limits.gpu_memory_utilization", 0.92),
    "block-size": PlannedFlag("problem.service.block_tokens", 16),
}
TEXTS = {"all2all-backend": PlannedFlag("problem.pins.all2all")}
SWITCHES = ("enable-expert-parallel", "enable-eplb", "no-enable-prefix-caching", "enable-lora")
FORMATS = ("dtype", "quantization", "kv-cache-dtype")
LORA = ("max-loras", "max-lora-rank", "max-cpu-loras")
OFFLOAD = "kv-offloading-size"
ADAPTERS = "lora-modules"
"""Flag with any number of values, one per adapter."""
TRANSFER = "kv-transfer-config"
OTHERS = (
    *("distributed-executor-backend", "eplb-config", "speculative-config", TRANSFER),
    *(*LORA, OFFLOAD),
)
ACTIVATIONS = {"bfloat16": "bf16", "float16": "fp16"}


@frozen
class FlagValue:
    """Value of a flag as text, and its line; the line is 1 if the flag is absent."""

    text: str | None
    line: int = 1

    def setting(self, flag: str) -> str:
        """Return the text of the flag and its value in the script; "" if the flag is absent."""
        return "" if self.text is None else f"--{flag} {self.text}".rstrip()


@frozen
class SharedArguments:
    """Arguments that all processes share: flags of the plan, and all other words."""

    flags: dict[str, FlagValue]
    extra: tuple[ScriptWord, ...]

    def __getitem__(self, flag: str) -> FlagValue:
        """Return the value of the flag ``--<flag>``."""
        return self.flags.get(flag, FlagValue(None))

    def number(self, flag: str) -> Value:
        """Return the number that ``--<flag>`` sets.

        Return vLLM's default if the flag is absent, and the text of the value if it is not a
        number.
        """
        return _parse_number(self[flag].text, NUMBERS[flag].default)

    def size(self, flag: str) -> int:
        """Return the parallel size that ``--<flag>`` sets; 1 if the value is not a valid size."""
        value = self.number(flag)
        return value if isinstance(value, int) and value > 0 else 1


def read_shared(words: Sequence[ScriptWord]) -> SharedArguments:
    """Return the arguments, separated into flags of the plan and other words.

    The last value of a repeated flag counts. A flag with a wrong number of values is stored among
    the other words.
    """
    flags: dict[str, FlagValue] = {}
    extra: list[ScriptWord] = []
    words, adapters = split_values(words, f"--{ADAPTERS}")
    if adapters:
        listed = "\n".join(word.text for word in adapters)
        flags[ADAPTERS] = FlagValue(listed, adapters[0].line)
    at = 0
    while at < len(words):
        word = words[at]
        flag, equals, value = word.text.partition("=")
        name = flag.removeprefix("--").replace("_", "-")
        takes = 0 if name in SWITCHES else 1
        known = name in NUMBERS or name in TEXTS or name in (*SWITCHES, *FORMATS, *OTHERS)
        if not known or not word.text.startswith("--") or (equals and not takes):
            extra.append(word)
            at += 1
            continue
        at += 1
        if takes and not equals:
            if at == len(words) or words[at].text.startswith("--"):
                extra.append(word)
                continue
            value = words[at].text
            at += 1
        flags[name] = FlagValue(value, word.line)
    return SharedArguments(flags, tuple(extra))


@frozen
class PlannedCommand:
    """A ``vllm serve`` command whose settings are compared with the plan."""

    file: str
    checkpoint: ScriptWord
    words: tuple[ScriptWord, ...]
    """Arguments after the checkpoint."""
    partition: ScriptWord | None
    """Value of the variable with the layers per stage; None if it is not set."""
    executor: str
    """Mechanism that must start the workers of an engine with several ranks."""
    executor_always: bool = False
    """True if the executor must also be set for engines of a single rank."""


def read_flag_settings(command: PlannedCommand, layers: int | None) -> Iterator[DerivedSetting]:
    """Yield the plan settings in a command and its variables.

    Args:
        command: the command and its variables.
        layers: number of decoder layers of the model, which determines vLLM's default pipeline
            split; None if unknown.
    """
    shared, file = read_shared(command.words), command.file
    for name, flag in (*NUMBERS.items(), *TEXTS.items()):
        given = shared[name]
        value = shared.number(name) if name in NUMBERS else given.text or flag.default
        yield DerivedSetting(flag.path, value, file, given.line, given.setting(name))
    exchange = shared["all2all-backend"]
    setting = exchange.setting("all2all-backend")
    yield DerivedSetting("layout.all2all", exchange.text or "auto", file, exchange.line, setting)
    for one in (*_read_expert_settings(shared), *_read_number_formats(shared)):
        yield replace(one, file=file)
    yield _read_draft(shared, file)
    yield _read_pool(shared, file)
    yield from _read_adapters(shared, file)
    uncached = shared["no-enable-prefix-caching"]
    setting, path = uncached.setting("no-enable-prefix-caching"), "problem.service.prefix_caching"
    yield DerivedSetting(path, uncached.text is None, file, uncached.line, setting)
    yield from _read_stage_settings(command, shared, layers)
    checkpoint = command.checkpoint
    yield DerivedSetting(
        "problem.service.checkpoint", checkpoint.text, file, checkpoint.line, checkpoint.text
    )
    line = shared.extra[0].line if shared.extra else 1
    extra = [word.text for word in shared.extra]
    words = [*_executor_words(command, shared), *extra]
    accepts = accepts_aliases(PACKAGE, words)
    yield DerivedSetting(EXTRA, words, file, line, " ".join(extra), accepts)


def _parse_number(text: str | None, default: Value) -> Value:
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", text) else text


def _executor_words(command: PlannedCommand, shared: SharedArguments) -> list[str]:
    """Return the executor flag of the command if its value is not the required executor.

    Return an empty list if the executor is correct. Only the multiprocessing executor has a fixed
    map of ranks to hosts (v1/executor/multiproc_executor.py). An engine of one rank needs no
    executor.
    """
    sizes = ("tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size")
    single = all(shared.size(name) == 1 for name in sizes) and not command.executor_always
    executor = shared["distributed-executor-backend"].text
    if executor == (None if single else command.executor):
        return []
    return ["--distributed-executor-backend", executor or "(not set)"]


def _read_expert_settings(shared: SharedArguments) -> Iterator[DerivedSetting]:
    """Yield the expert parallel size and the number of redundant experts.

    vLLM derives the size: expert parallelism spans all ranks of a pipeline stage
    (config/parallel.py).
    """
    enabled = shared["enable-expert-parallel"]
    names = ("tensor-parallel-size", "prefill-context-parallel-size", "data-parallel-size")
    size = 1
    for name in names if enabled.text is not None else ():
        size *= shared.size(name)
    yield DerivedSetting("layout.ep", size, "", enabled.line, enabled.setting(SWITCHES[0]))
    balancer, config = shared["enable-eplb"], shared["eplb-config"]
    copies: Any = None
    if balancer.text is not None or config.text is not None:
        copies = _redundant_experts(config.text) if balancer.text is not None else config.text
    text = config.setting("eplb-config")
    yield DerivedSetting("problem.pins.redundant_experts", copies, "", config.line, text)
    yield DerivedSetting("layout.redundant_experts", copies, "", config.line, text)


def _read_draft(shared: SharedArguments, file: str) -> DerivedSetting:
    """Return the setting of speculative decoding that --speculative-config sets.

    The value is None without the flag, a mapping of method, tokens and checkpoint, or the text of
    the flag if it contains anything else.
    """
    config = shared["speculative-config"]
    path, setting = "problem.service.setup.speculative", config.setting("speculative-config")
    value: Any = config.text
    try:
        found = json.loads(config.text or "null")
    except ValueError:
        found = None
    names = {"method": "method", "num_speculative_tokens": "tokens", "model": "checkpoint"}
    if isinstance(found, dict) and found.keys() <= names.keys():
        value = {"checkpoint": None} | {names[key]: one for key, one in found.items()}
        if isinstance(value.get("method"), str):
            value["method"] = value["method"].replace("_", "-")
    return DerivedSetting(
        path,
        value,
        file,
        config.line,
        setting,
        accepts=lambda planned: contains_values(planned, value),
    )


def _read_pool(shared: SharedArguments, file: str) -> DerivedSetting:
    """Return the pool that --kv-transfer-config sets, or its text if PARC did not write it."""
    config = shared[TRANSFER]
    pools = {None: "both"} | {
        json.dumps({"kv_connector": "NixlConnector", "kv_role": role}): pool
        for role, pool in (("kv_producer", "prefill"), ("kv_consumer", "decode"))
    }
    path, pool = "problem.service.setup.pool", pools.get(config.text, config.text)
    return DerivedSetting(path, pool, file, config.line, config.setting(TRANSFER))


def _read_adapters(shared: SharedArguments, file: str) -> Iterator[DerivedSetting]:
    """Yield the settings of LoRA adapters, and of copies of the cache in host memory."""
    path, values = "problem.service.setup.lora", [shared[name] for name in LORA]
    listed, enabled, found = shared[ADAPTERS], shared["enable-lora"], None
    if any(one.text is not None for one in (*values, listed, enabled)):
        active, rank, stored = (_parse_number(one.text, None) for one in values)
        adapters = [_read_adapter(text) for text in (listed.text or "").splitlines()]
        found = {"adapters": adapters, "active": active, "rank": rank}
        if enabled.text is None or stored != len(adapters):
            found["max-cpu-loras"] = stored
    yield DerivedSetting(path, found, file, listed.line, listed.setting(ADAPTERS))
    copies = shared[OFFLOAD]
    number = _parse_number(copies.text, 0)
    yield DerivedSetting(
        "problem.service.setup.host_cache_bytes",
        number,
        file,
        copies.line,
        copies.setting(OFFLOAD),
        accepts=lambda planned: (
            isinstance(number, int | float) and abs(number * 2**30 - planned) <= 1e-5 * planned
        ),
    )


def _read_adapter(text: str) -> Any:
    """Return [name, path] of an adapter; the text itself if it is another form."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    is_pair = isinstance(found, dict) and found.keys() == {"name", "path"}
    return [found["name"], found["path"]] if is_pair else text


def _redundant_experts(text: str | None) -> Any:
    """Return the number of redundant experts in ``text``, the value of --eplb-config.

    If ``text`` contains other settings or is not valid JSON, return ``text`` itself.
    """
    if text is None:
        return 0
    try:
        config = json.loads(text)
    except ValueError:
        return text
    only = isinstance(config, dict) and config.keys() == {"num_redundant_experts"}
    return config["num_redundant_experts"] if only else text


def _read_number_formats(shared: SharedArguments) -> Iterator[DerivedSetting]:
    """Yield the number formats of weights and KV cache, and the quantization at load time.

    ``--dtype`` sets only the format of activations. Weights of a checkpoint that vLLM does not
    quantize can have several formats with bf16 activations; with fp16 activations they are always
    fp16.
    """
    dtype, quantization, cache = (shared[name] for name in FORMATS)
    activations = ACTIVATIONS.get(dtype.text or "", dtype.text)
    quantized = {None: False, "fp8": True}.get(quantization.text, quantization.text)
    yield DerivedSetting(
        "problem.service.quantize", quantized, "", quantization.line,
        quantization.setting("quantization"),
    )  # fmt: skip
    weights: Any = activations
    if quantized is True:
        weights = "fp8"
    elif activations == "bf16":
        weights = frozenset({"bf16", "fp8", "int4", "nvfp4", "mxfp4"})
    path = "problem.service.setup.weights"
    yield DerivedSetting(path, weights, "", dtype.line, dtype.setting("dtype"))
    kv = activations if cache.text in (None, "auto") else cache.text
    yield DerivedSetting(
        "problem.service.setup.kv", kv, "", cache.line, cache.setting("kv-cache-dtype")
    )


def _read_stage_settings(
    command: PlannedCommand, shared: SharedArguments, layers: int | None
) -> Iterator[DerivedSetting]:
    """Yield the number of layers of each pipeline stage.

    If ``VLLM_PP_LAYER_PARTITION`` is not set, vLLM splits the layers evenly. Each of the remaining
    layers is added to a different stage, from the last stage but one backwards
    (distributed/utils.py, get_pp_indices).
    """
    stages, path, found = shared.size("pipeline-parallel-size"), "layout.stages", command.partition
    if found is not None:
        numbers = [_parse_number(one, None) for one in found.text.split(",")]
        setting = f"{PARTITION}={found.text}"
        yield DerivedSetting(path, numbers, command.file, found.line, setting)
    elif layers is not None and 1 < stages <= layers:
        split = [layers // stages] * stages
        for one in range(layers % stages):
            split[-2 - one] += 1
        yield DerivedSetting(path, split, command.file)
    elif stages == 1:
        yield DerivedSetting(path, [], command.file, accepts=lambda planned: len(planned) < 2)
