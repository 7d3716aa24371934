"""Findings for unknown and missing keys of the spec, with suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, SpecPositions
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.spec.annotations import ErrorLocation, describe_expected, model_of
from parc.compiler.spec.meant_values import explain_gpu_count, suggest_racks

_MAX_LISTED_KEYS = 12
"""Largest number of valid keys that a message lists; above it, the message refers to ``parc
explain``."""

_MAX_VALUE = 60
"""Largest length of a value or a path in a fix, in characters."""

_INDEX = r"\[\d+\]"

FOREIGN_KEYS: dict[str, str] = {
    "zero": "layout.zero_stage",
    "time": "launch.slurm.time_limit",
    "tensor_model_parallel_size": "layout.tp",
    "tensor_parallel": "layout.tp",
    "tensor_parallel_size": "layout.tp",
    "pipeline_model_parallel_size": "layout.pp",
    "pipeline_parallel": "layout.pp",
    "pipeline_parallel_size": "layout.pp",
    "virtual_pipeline_model_parallel_size": "layout.vpp",
    "context_parallel": "layout.cp",
    "context_parallel_size": "layout.cp",
    "data_parallel": "layout.dp",
    "data_parallel_size": "layout.dp",
    "expert_model_parallel_size": "layout.ep",
    "expert_parallel": "layout.ep",
    "expert_tensor_parallel_size": "layout.etp",
    "enable_expert_parallel": "layout.ep",
    "prefill_context_parallel_size": "layout.pcp",
    "decode_context_parallel_size": "layout.dcp",
    "gpu_memory_utilization": "goals.memory_headroom",
    "kv_cache_dtype": "job.kv_precision",
    "requests_per_second": "job.traffic.request_rate",
    "qps": "job.traffic.request_rate",
    "rps": "job.traffic.request_rate",
    "max_concurrency": "job.traffic.concurrency",
    "isl": "job.traffic.input_tokens",
    "input_len": "job.traffic.input_tokens",
    "prompt_len": "job.traffic.input_tokens",
    "prompt_tokens": "job.traffic.input_tokens",
    "random_input_len": "job.traffic.input_tokens",
    "osl": "job.traffic.output_tokens",
    "output_len": "job.traffic.output_tokens",
    "completion_tokens": "job.traffic.output_tokens",
    "max_new_tokens": "job.traffic.output_tokens",
    "random_output_len": "job.traffic.output_tokens",
    "quantization": "job.precision",
    "micro_batch_size": "layout.micro_batch",
    "mbs": "layout.micro_batch",
    "global_batch_size": "job.global_batch",
    "gbs": "job.global_batch",
    "batch_size": "job.global_batch",
    "train_batch_size": "job.global_batch",
    "seq_len": "job.sequence_length",
    "seq_length": "job.sequence_length",
    "seqlen": "job.sequence_length",
    "dtype": "job.precision",
    "lr": "job.learning_rate",
    "r": "job.lora.rank",
    "lora_r": "job.lora.rank",
    "lora_rank": "job.lora.rank",
    "lora_alpha": "job.lora.alpha",
    "lora_dropout": "job.lora.dropout",
    "target_modules": "job.lora.targets",
    "lora_target_modules": "job.lora.targets",
    "min_lr": "job.min_learning_rate",
    "lr_decay_style": "job.lr_decay",
    "lr_scheduler_type": "job.lr_decay",
    "lr_decay_iters": "job.lr_decay_steps",
    "lr_warmup_iters": "job.warmup_steps",
    "lr_warmup_fraction": "job.warmup_steps",
    "warmup_ratio": "job.warmup_steps",
    "warmup_num_steps": "job.warmup_steps",
    "adam_eps": "job.adam_epsilon",
    "clip_grad": "job.gradient_clipping",
    "max_grad_norm": "job.gradient_clipping",
    "max_norm": "job.gradient_clipping",
    "train_iters": "job.steps",
    "num_layers": "model.layers",
    "num_hidden_layers": "model.layers",
    "hidden_size": "model.hidden",
    "ffn_hidden_size": "model.ffn",
    "intermediate_size": "model.ffn",
    "num_attention_heads": "model.heads",
    "num_key_value_heads": "model.kv_heads",
    "num_query_groups": "model.kv_heads",
    "vocab_size": "model.vocab",
    "dataset": "job.data",
    "dataset_path": "job.data",
    "data_path": "job.data",
    "modules": "launch.setup",
    "slo": "goals",
    "num_nodes": "cluster.nodes",
    "num_hosts": "cluster.nodes",
    "node_count": "cluster.nodes",
    "nodelist": "cluster.nodes",
    "hostlist": "cluster.nodes",
    "count": "cluster.nodes",
    "nnodes": "cluster.nodes",
    "gpus": "cluster.nodes",
    "num_gpus": "cluster.nodes",
    "world_size": "cluster.nodes",
    "time_limit": "launch.slurm.time_limit",
    "walltime": "launch.slurm.time_limit",
    "partition": "launch.slurm.partition",
    "account": "launch.slurm.account",
    "save": "job.checkpoint_dir",
    "save_dir": "job.checkpoint_dir",
    "output_dir": "job.checkpoint_dir",
    "save_interval": "job.checkpoint_interval",
    "save_steps": "job.checkpoint_interval",
    "load": "job.load_dir",
    "nic_gbps": "cluster.node.nic_speed",
    "parallelism": "layout",
    "parallel": "layout",
    "sharding": "layout",
    "strategy": "layout",
    "hardware": "cluster",
    "train": "job",
    "training": "job",
    "serve": "job",
    "serving": "job",
    "service": "job",
    "inference": "job",
    "backend": "emit",
    "backends": "emit",
    "engine": "emit",
    "framework": "emit",
    "target": "emit",
    "targets": "emit",
}
"""Name of an option in Megatron-LM, DeepSpeed, vLLM, Slurm, Hugging Face or a benchmark client ->
spec path of the same option."""

OTHER_MEANING = frozenset(
    {
        *("gpu_memory_utilization", "enable_expert_parallel", "quantization"),
        *("nic_gbps", "save_interval", "save_steps", "gpus", "num_gpus", "world_size", "count"),
        *("lr_warmup_fraction", "warmup_ratio", "lr_scheduler_type", "lr_decay_style", "modules"),
    }
)
"""Keys of ``FOREIGN_KEYS`` whose values mean something else in the spec, so that a fix must not
carry the value over. For example, vLLM's ``gpu_memory_utilization`` is the part of the memory that
is used, and ``goals.memory_headroom`` the part that stays free."""

GPU_COUNTS = frozenset({"gpus", "num_gpus", "world_size", "count"})
"""Keys that count GPUs; ``cluster.nodes`` counts hosts."""
_KEY_WITH_VALUE = re.compile(r"(\w+):(\S{0,60})")
"""Key and value of ``{tp:8}``, or a key without a value: YAML reads one key up to a space."""

_SAME_MEANING = {"nodes": "hosts", "hosts": "nodes"}
"""Key -> key with the same meaning in other sections."""

_SIMILAR = 0.8
"""Smallest similarity (ratio of difflib) of a key that is suggested instead of an unknown key. With
difflib's default of 0.6, ``constraint`` would be taken for ``container_mounts``."""

EXAMPLES: dict[str, str] = {
    "name": "name: my-run",
    "model": "model: llama-3-70b",
    "cluster": "cluster: {node: dgx-h100, nodes: 4}",
    "job": "job: {sequence_length: 8192, global_batch: 1024}",
    "job.traffic": "traffic: {input_tokens: 1000, output_tokens: 500, concurrency: 64}",
    "job.sequence_length": "sequence_length: 8192",
    "job.global_batch": "global_batch: 1024",
}
"""Spec path of a missing key -> example line, shown with the fix."""


def unknown_key_finding(
    location: ErrorLocation, positions: SpecPositions, missing: Collection[str]
) -> Finding:
    """Return the finding for an unknown key (X01), with the most likely intended key.

    ``location.annotation`` is the pydantic model that does not have the key. ``positions`` are the
    positions of keys and values in the spec file. ``missing`` contains the spec paths of required
    keys that are not set.
    """
    parent, key = location.parent, location.key
    model = model_of(location.annotation)
    valid = tuple(model.model_fields) if model else ()
    special = _explain_wrong_job_kind(location, positions) or _explain_missing_space(
        location, valid
    )
    if special is not None:
        return special
    meant = _missing_key_with_words(parent, key, missing) or _suggest_keys(parent, key, valid)
    listed = f"valid keys: {', '.join(valid)}"
    # A long list would hide the suggestion.
    if len(valid) > _MAX_LISTED_KEYS:
        listed = f"`parc explain {re.sub(_INDEX, '[]', parent)}` lists the valid keys"
    if key.lower() in GPU_COUNTS and meant[:1] == ["cluster.nodes"]:
        listed = explain_gpu_count(location.value)
    return Finding(
        f"unknown key {key[:60]}" + (f" in {parent}" if parent else ""),
        label=f"did you mean {' or '.join(meant)}?" if meant else "this key does not exist",
        help=listed,
        # Without a similar key there is no fix: a removal would drop what the user wanted.
        fix=_move_value(location, meant[0], positions) if meant else "",
    )


def _missing_key_with_words(parent: str, key: str, missing: Collection[str]) -> list[str]:
    """Return the path of the missing key of section ``parent`` that has all words of ``key``.

    For example, ``batch`` stands for ``global_batch``. Empty if no missing key has these words, or
    several have them.
    """
    words = set(key.lower().split("_"))
    found = [
        path
        for path in missing
        if path.rpartition(".")[0] == parent and words <= set(path.rpartition(".")[2].split("_"))
    ]
    return found if len(found) == 1 else []


def _suggest_keys(parent: str, key: str, valid: Sequence[str]) -> list[str]:
    """Return the spec paths that the user might have meant by an unknown key, most likely first.

    Six sources are tried in order, and the first one with a result is used: the only key of
    ``valid``, the keys of section ``parent``, that continues ``key`` with more words; the option of
    another tool called ``key``; fields called ``key`` in related sections; the only key of
    ``valid`` with all words of ``key``; keys of ``valid`` that are similar to ``key`` or have its
    meaning; and the only field of the sections below that continues ``key``.
    """
    from parc.compiler.spec.schema import all_fields

    prefix = f"{parent}." if parent else ""
    longer = [name for name in valid if name.startswith(f"{key}_")]
    # ``gpus`` is ``gpus_per_node`` in cluster.node, and the number of all GPUs in cluster.
    if len(longer) == 1 and "." in parent:
        return [prefix + longer[0]]
    other_tool = FOREIGN_KEYS.get(key.lower())
    # Keys of this table have one meaning, so they may stand in any top-level section.
    if other_tool is not None and (
        "." not in parent or _is_related(parent, other_tool.rpartition(".")[0])
    ):
        return [other_tool]
    elsewhere = [
        path
        for path in all_fields()
        if path.rpartition(".")[2] == key and _is_related(parent, path.rpartition(".")[0])
    ]
    if elsewhere:
        ordered = sorted(elsewhere, key=lambda path: (path.count("."), path))
        # Fields deep inside a section are seldom meant.
        deepest = ordered[0].count(".") + 1
        return [path for path in ordered if path.count(".") <= deepest][:3]
    with_words = _keys_with_words(key, valid)
    if with_words:
        return [prefix + with_words]
    same = _SAME_MEANING.get(key)
    similar = (same,) if same in valid else did_you_mean(key, valid, cutoff=_SIMILAR)
    if similar:
        return [f"{prefix}{name}" for name in similar]
    below = [
        path
        for path in all_fields()
        if path.rpartition(".")[2].startswith(f"{key}_")
        and path.rpartition(".")[0].rpartition(".")[0] == parent
    ]
    return below if len(below) == 1 else []


def _keys_with_words(key: str, valid: Sequence[str]) -> str:
    """Return the only key of ``valid`` that has all words of ``key``: gpu_mtbf for mtbf."""
    words = set(key.lower().split("_"))
    found = [name for name in valid if words < set(name.split("_"))]
    return found[0] if len(found) == 1 else ""


def _is_related(parent: str, section: str) -> bool:
    """Return True if a user might write a key of ``section`` into ``parent`` by mistake.

    This is possible if the two sections are equal, if one contains the other, or if both are
    top-level sections. In other sections, equal keys have different meanings, as in
    ``launch.slurm.modules`` and ``layout.recompute.modules``.
    """
    inside = section.startswith(f"{parent}.") or parent.startswith(f"{section}.")
    return parent in ("", section) or inside or not ("." in parent or "." in section)


def _move_value(location: ErrorLocation, meant: str, positions: SpecPositions) -> str:
    """Return the fix that moves the value of an unknown key to the path ``meant``, or renames it.

    The fix is empty if ``meant`` is already set, if the value would mean something else there, or
    if the path of the unknown key is too long to show.
    """
    from parc.compiler.spec.schema import all_fields

    key, value = location.key.lower(), location.value
    if (key in OTHER_MEANING and FOREIGN_KEYS[key] == meant) or positions.is_path_in_spec(meant):
        return ""
    if len(location.path) > _MAX_VALUE:
        return ""
    field = all_fields().get(meant)
    if meant == "cluster.nodes" and (racks := suggest_racks(value)):
        return f"cluster.racks: {racks}   (instead of {location.path})"
    if isinstance(value, dict | list) and meant.rpartition(".")[0] == location.parent:
        return f"rename {location.path} to {meant.rpartition('.')[2]}"
    if field is not None and field.type.startswith("a list") and isinstance(value, str):
        value = [value]
    return f"{meant}: {_yaml_text(value)}   (instead of {location.path})"


def _explain_missing_space(location: ErrorLocation, valid: Sequence[str]) -> Finding | None:
    """Return a finding about a key such as ``tp:8`` without a space; None for any other key."""
    found = _KEY_WITH_VALUE.fullmatch(location.key)
    if found is None or found[1] not in valid or location.value is not None:
        return None
    prefix = f"{location.parent}." if location.parent else ""
    if not found[2]:
        return Finding(f"{prefix}{found[1]} has no value", label="the value is missing")
    return Finding(
        f"unknown key {location.key}" + (f" in {location.parent}" if location.parent else ""),
        label="a space is missing after the colon",
        help=f"YAML reads {location.key} as one key; write {found[1]}: {found[2]}",
        fix=f"{prefix}{found[1]}: {found[2]}   (instead of {location.path})",
    )


def _explain_wrong_job_kind(location: ErrorLocation, positions: SpecPositions) -> Finding | None:
    """Return a finding about a training key in a serving spec, or the reverse.

    None if the key exists in neither kind of spec.
    """
    from parc.compiler.spec.schema import serving_fields, training_fields

    path = re.sub(_INDEX, "[]", location.path)
    # If both are False, the key exists in neither kind of job and is a plain mistake.
    trains, serves = path in training_fields(), path in serving_fields()
    if not (trains or serves):
        return None
    kinds = "pretrain or finetune" if trains else "serve"
    this = "a serving job" if trains else "a training job"
    lora = serves and location.path.startswith("job.lora")
    plan = "a training job trains one adapter, with job.lora.rank and targets; " if lora else ""
    default = "" if positions.is_path_in_spec("job.kind") else "job.kind is pretrain by default; "
    return Finding(
        f"{location.path} is not a key of {this}",
        label=f"this key is valid only if job.kind is {kinds}",
        help=f"{plan}{default}`parc explain {location.parent or 'job'}` lists the valid keys",
        causes=(Cause("job.kind", "job.kind is set here"),),
    )


def missing_key_finding(location: ErrorLocation) -> Finding:
    """Return the finding for a missing required key (X08).

    ``location.annotation`` is the type of the missing key.
    """
    parent, key = location.parent, location.key
    example = (f"{parent}." if parent else "") + EXAMPLES.get(location.path, f"{key}: ...")
    # Any name will do, but no other example may be written into a spec: `parc check --fix` would
    # choose the size of a user's job.
    chosen = key == "name" or location.path not in EXAMPLES
    return Finding(
        f"{key} is missing" + (f" in {parent}" if parent else ""),
        label=f"add the key {key} here: {describe_expected(location.annotation)}",
        fix=example if chosen else f"set {location.path}, for example {example}",
    )


def _yaml_text(value: Any) -> str:
    """Return ``value`` as written in YAML on one line; ``...`` for a long value."""
    if isinstance(value, str) and value.isidentifier():
        return value
    if isinstance(value, list):
        text = f"[{', '.join(_yaml_text(entry) for entry in value)}]"
    elif isinstance(value, dict):
        keys = ((_yaml_text(key), _yaml_text(entry)) for key, entry in value.items())
        text = "{" + ", ".join(f"{key}: {entry}" for key, entry in keys) + "}"
    else:
        # JSON is valid YAML.
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else "..."
