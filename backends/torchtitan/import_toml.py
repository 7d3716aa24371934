"""Import of layout and job from a TOML file of torchtitan's releases before 0.3.

Sections and keys: torchtitan 0.2, torchtitan/config/job_config.py and the files in train_configs/.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from parc.backends.torchtitan.extra_arguments import find_bound_fault
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.formats import BackendImporters
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

MODELS: Mapping[str, Mapping[str, str]] = {
    "llama3": {"8B": "llama-3.1-8b", "70B": "llama-3.1-70b", "405B": "llama-3.1-405b"},
    "qwen3": {"8B": "qwen3-8b", "14B": "qwen3-14b", "32B": "qwen3-32b"},
    "deepseek_v3": {"16B": "deepseek-v2-lite", "236B": "deepseek-v2", "671B": "deepseek-v3"},
}
"""``model.name`` -> ``model.flavor`` -> model of the catalog."""
NUMBERS = {
    "parallelism.tensor_parallel_degree": "layout.tp",
    "parallelism.context_parallel_degree": "layout.cp",
    "parallelism.pipeline_parallel_degree": "layout.pp",
    "parallelism.expert_parallel_degree": "layout.ep",
    "parallelism.expert_tensor_parallel_degree": "layout.etp",
    "training.seq_len": "job.sequence_length",
    "training.global_batch_size": "job.global_batch",
    "training.steps": "job.steps",
    "training.max_norm": "job.gradient_clipping",
    "optimizer.lr": "job.learning_rate",
    "optimizer.beta1": "job.adam_beta1",
    "optimizer.beta2": "job.adam_beta2",
    "optimizer.eps": "job.adam_epsilon",
    "optimizer.weight_decay": "job.weight_decay",
    "lr_scheduler.warmup_steps": "job.warmup_steps",
    "checkpoint.interval": "job.checkpoint_interval",
    "training.seed": "job.seed",
    "debug.seed": "job.seed",
}
"""Key -> field of the spec with the same number. A number below 0 means torchtitan's own choice."""
SCHEDULES = {
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "GPipe": "gpipe",
    "InterleavedZeroBubble": "zb-h1",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}
DECAY = "lr_scheduler.decay_type"
WORDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "parallelism.pipeline_parallel_schedule": ("layout.schedule", SCHEDULES),
    "activation_checkpoint.mode": ("layout.recompute", {"none": "none", "full": "full"}),
    "training.mixed_precision_param": ("job.precision", {"bfloat16": "bf16"}),
    DECAY: ("job.lr_decay", {"linear": "linear", "cosine": "cosine"}),
}
"""Key -> (field of the spec, value -> value of the spec)."""
REPLICAS, SHARDS = (f"parallelism.data_parallel_{one}_degree" for one in ("replicate", "shard"))
RESHARD = "parallelism.fsdp_reshard_after_forward"
BATCH, MICRO = "training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"
UNUSED = ("job.dump_folder", "job.description", "job.print_args", "job.print_config")
"""Keys that another key uses, or that only affect what a run prints about itself."""
OPTIONS: Mapping[str, Any] = {
    "profiling.enable_profiling": False,
    "profiling.save_traces_folder": "profiling/traces",
    "profiling.profile_freq": 10,
    "profiling.profiler_active": 1,
    "profiling.profiler_warmup": 3,
    "profiling.enable_memory_snapshot": False,
    "profiling.save_memory_snapshot_folder": "profiling/memory_snapshot",
    "metrics.log_freq": 10,
    "metrics.enable_tensorboard": False,
    "metrics.disable_color_printing": False,
    "metrics.save_tb_folder": "tb",
    "metrics.save_for_all_ranks": False,
    "metrics.enable_wandb": False,
    "comm.init_timeout_seconds": 300,
    "comm.train_timeout_seconds": 100,
    "comm.trace_buf_size": 20000,
    "comm.save_traces_folder": "comm_traces",
    "comm.save_traces_file_prefix": "rank_",
}
"""Key -> default of torchtitan 0.3, for keys that become options in ``launch.args``."""
RENAMED = {"profiling.": "profiler."}
"""Section of a TOML file -> section of torchtitan 0.3."""
SWITCHES = {
    "profiling.": ("profiling.enable_profiling", "profiling.enable_memory_snapshot"),
    "metrics.save_tb_folder": ("metrics.enable_tensorboard",),
}
"""Start of a key -> keys one of which must be true, so that other values have an effect."""
DEFAULTS = {"optimizer.name": "AdamW", "optimizer.implementation": "fused"}
"""Key -> value that PARC's torchtitan files have too."""
OLD_NAMES = {
    "training.batch_size": BATCH,
    "checkpoint.enable_checkpoint": "checkpoint.enable",
    "model.tokenizer_path": "model.hf_assets_path",
    # Before 0.1 (March 2025), section parallelism did not exist.
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.data_parallel_degree": SHARDS,
    "training.data_parallel_shard_degree": SHARDS,
    "training.data_parallel_replicate_degree": REPLICAS,
    "training.fsdp_reshard_after_forward": RESHARD,
    "training.warmup_steps": "lr_scheduler.warmup_steps",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
}
"""Name of a key in older releases -> later name."""
REPLICATION = "training.data_parallel_type"
"""Key of releases before 0.1 that selects FSDP, the default, or replication."""


def read_titan_toml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec fields that a TOML file of torchtitan sets; None if the text is unusable.

    Keys without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink)
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = (int(place[1]), int(place[2])) if place else (1, 1)
        finding = Finding(f"invalid TOML: {str(error)[:80]}", "parsing stopped here")
        reading.report_error("I01", finding, reading.span(*where))
        return None
    found = _dotted_keys(tree, "")
    for key in [key for key, value in found.items() if _is_number(value)]:
        fault = find_bound_fault(key, found[key])
        if fault is not None:
            reading.report_error("F03", fault, _key_span(key, reading))
            del found[key]
    _read_model(found, reading)
    _read_data_parallel(found, reading)
    _read_micro_batch(found, reading)
    _read_checkpoints(found, reading)
    _read_recompute(found, reading)
    # With a ratio, the rate is constant between warm-up and decay.
    constant = {DECAY} if "lr_scheduler.decay_ratio" in found else set()
    taken = [key for key in found if key not in constant and _read_key(key, found[key], reading)]
    taken += _read_options(found, reading)
    for key, value in found.items():
        if key not in taken and key not in UNUSED and value != DEFAULTS.get(key):
            reading.leave_out(f"{key}: {value}", _key_span(key, reading))
    if not reading.spec and reading.is_valid:
        message = "this file sets no field of a spec"
        reading.report_error("I02", message, reading.span())
    return reading.fragment()


def _dotted_keys(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return key -> value of all sections, with dotted keys."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _dotted_keys(value, f"{prefix}{name}.")
        else:
            found[OLD_NAMES.get(f"{prefix}{name}", f"{prefix}{name}")] = value
    return found


def _key_span(key: str, reading: Reading) -> Span:
    """Return the position of a key, or of the file if the key is written in another form."""
    names = {key, *(old for old, new in OLD_NAMES.items() if new == key)}
    section = ""
    for line in reading.lines():
        header = re.match(r"\s*\[([^\[\]]+)\]", line.text)
        section = header[1].strip() if header else section
        match = re.match(r"\s*([\w.-]+)\s*=", line.text)
        if match and f"{section}.{match[1]}".removeprefix(".") in names:
            return reading.span(line.number, len(line.text) - len(line.text.lstrip()) + 1)
    return reading.span()


def _set_field(reading: Reading, path: str, value: Any, key: str) -> bool:
    section, _, name = path.partition(".")
    if name:
        reading.spec.setdefault(section, {})[name] = value
    else:
        reading.spec[section] = value
    reading.spans[path] = _key_span(key, reading)
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_key(key: str, value: Any, reading: Reading) -> bool:
    """Set the field of the spec that equals ``key``; return False if there is none."""
    if key in NUMBERS and _is_number(value):
        return value < 0 or _set_field(reading, NUMBERS[key], value, key)
    if key in WORDS and isinstance(value, str):
        path, names = WORDS[key]
        return value in names and _set_field(reading, path, names[value], key)
    texts = {"model.hf_assets_path": "job.tokenizer_model"}
    return key in texts and isinstance(value, str) and _set_field(reading, texts[key], value, key)


def _read_options(found: Mapping[str, Any], reading: Reading) -> list[str]:
    """Add the keys in OPTIONS that differ from their default to ``launch.args``; return them all.

    PARC writes the configuration for torchtitan 0.3, whose command line overrides it.
    """
    keys = [key for key in found if type(found[key]) is type(OPTIONS.get(key))]
    for key in keys:
        value = found[key]
        needed = next((names for start, names in SWITCHES.items() if key.startswith(start)), ())
        has_effect = not needed or any(found.get(one) for one in needed)
        if value == OPTIONS[key] or not has_effect:
            continue
        section = f"{key.partition('.')[0]}."
        option = f"--{RENAMED.get(section, section)}{key.removeprefix(section)}"
        words = [option] if value is True else [option, str(value)]
        reading.spec.setdefault("launch", {}).setdefault("args", []).extend(words)
        reading.spans.setdefault("launch.args", _key_span(key, reading))
    return keys


def _read_model(found: dict[str, Any], reading: Reading) -> None:
    flavors = MODELS.get(str(found.get("model.name")), {})
    model = flavors.get(str(found.get("model.flavor")))
    if model is not None:
        del found["model.name"], found["model.flavor"]
        _set_field(reading, "model", model, "model.flavor")


def _read_data_parallel(found: dict[str, Any], reading: Reading) -> None:
    """Set dp, dp_shard and the ZeRO stage; -1 shards over all ranks that are left."""
    shards, copies = found.get(SHARDS, -1), found.get(REPLICAS, 1)
    if not (isinstance(shards, int) and isinstance(copies, int)):
        return
    found.pop(SHARDS, None)
    if shards > 0:
        _set_field(reading, "layout.dp", shards * copies, SHARDS)
        _set_field(reading, "layout.dp_shard", shards, SHARDS)
    elif copies > 1:
        hint = f"set layout.dp, and layout.dp_shard to the number of ranks / {copies}"
        reading.leave_out(f"{REPLICAS}: {copies}", _key_span(REPLICAS, reading), hint)
    found.pop(REPLICAS, None)
    if found.get(REPLICATION, "fsdp") != "fsdp":
        return
    found.pop(REPLICATION, None)
    policy = found.get(RESHARD, "default")
    # parallelize.py: with a pipeline, the default keeps the gathered weights.
    kept = policy == "never" or (
        policy == "default" and found.get("parallelism.pipeline_parallel_degree", 1) > 1
    )
    if policy in ("always", "never", "default"):
        found.pop(RESHARD, None)
        alone = shards == 1 and copies > 1
        _set_field(reading, "layout.zero_stage", 0 if alone else 2 if kept else 3, RESHARD)


def _read_micro_batch(found: dict[str, Any], reading: Reading) -> None:
    """Set the micro-batch and the global batch in the spec.

    Without a pipeline, the micro-batch is the number of sequences per rank.
    """
    dp, local = reading.spec.get("layout", {}).get("dp"), found.get(BATCH)
    if isinstance(local, int) and dp and found.get("training.global_batch_size", -1) == -1:
        # trainer.py: without a global batch, ranks do not accumulate gradients.
        _set_field(reading, "job.global_batch", dp * found.pop(BATCH), BATCH)
    staged = found.get("parallelism.pipeline_parallel_degree", 1) != 1
    batch = found.get(MICRO, 1) if staged else local
    if isinstance(batch, int) and batch > 0:
        found.pop(MICRO if staged else BATCH, None)
        _set_field(reading, "layout.micro_batch", batch, MICRO if staged else BATCH)


def _read_checkpoints(found: dict[str, Any], reading: Reading) -> None:
    """Set the folder of the checkpoints, which is below ``job.dump_folder``."""
    folder = found.pop("checkpoint.folder", "checkpoint")
    above = found.get("job.dump_folder", "./outputs")
    if found.pop("checkpoint.enable", False) is True:
        path = f"{above}/{folder}".removeprefix("./")
        _set_field(reading, "job.checkpoint_dir", path, "checkpoint.enable")
    else:
        found.pop("checkpoint.interval", None)


def _read_recompute(found: dict[str, Any], reading: Reading) -> None:
    """Set selective recomputation by operator; recomputation of every n-th layer is left out."""
    mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    if found.get(mode) == "selective" and found.get(option, "op") == "op":
        _set_field(
            reading, "layout.recompute", {"granularity": "selective", "modules": ["op"]}, mode
        )
        del found[mode]
    if found.get(mode) != "selective":
        found.pop(option, None)


_DEGREE = re.compile(
    r"[ \t]*(?:\[(?P<section>[^\]]*)\]|(?:data_parallel_shard|tensor_parallel|pipeline_parallel)"
    r"_degree[ \t]*=)"
)
"""Matches the line of a section, or of a parallel size."""
_SECTIONS = ("parallelism", "training", "experimental")
"""Sections with parallel sizes; before 0.1, they were in ``training`` and ``experimental``."""


def _is_titan_config(text: str) -> bool:
    """Return True if a section of torchtitan sets a parallel size; other tools use other names."""
    section = ""
    for line in text.splitlines():
        match = _DEGREE.match(line)
        if match is not None and match["section"] is None and section in _SECTIONS:
            return True
        section = match["section"].strip() if match and match["section"] is not None else section
    return False


IMPORTERS = BackendImporters(
    {
        "torchtitan-toml": FileFormat(
            read_titan_toml,
            "TOML config of torchtitan before 0.3",
            (r"(?m)^[ \t]*(data_parallel_shard|tensor_parallel|pipeline_parallel)_degree[ \t]*=",),
            confirms=_is_titan_config,
        )
    }
)
