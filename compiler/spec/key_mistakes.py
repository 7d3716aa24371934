"""Findings for unknown and missing keys of the spec, with suggestions."""

from __future__ import annotations

import re
from typing import Any

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.spec.annotations import ErrorLocation, expected, model_of
from parc.compiler.spec.similar_names import did_you_mean

_MAX_LISTED_KEYS = 12
"""Largest number of valid keys that a message lists; above it, the message refers to ``parc
explain``."""

_INDEX = r"\[\d+\]"

FOREIGN_KEYS: dict[str, str] = {
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
    "num_nodes": "cluster.nodes",
    "nnodes": "cluster.nodes",
    "backends": "emit",
    "targets": "emit",
}
"""Name of an option in Megatron-LM, DeepSpeed, vLLM or Hugging Face -> spec path of the same
option."""

EXAMPLES: dict[str, str] = {
    "name": "name: my-run",
    "model": "model: llama-3-70b",
    "cluster": "cluster: {node: dgx-h100, nodes: 4}",
    "job": "job: {sequence_length: 8192, global_batch: 1024}",
    "job.traffic": "traffic: {input_tokens: 1000, output_tokens: 500, concurrency: 64}",
    "job.sequence_length": "sequence_length: 8192",
    "job.global_batch": "global_batch: 1024",
}
"""Spec path of a missing key -> example line, shown as the fix."""


def unknown_key(location: ErrorLocation) -> Finding:
    """Return the finding for an unknown key (X01), with the most likely intended key.

    ``location.annotation`` is the pydantic model that does not have the key.
    """
    from parc.compiler.spec.schema import fields

    parent, key = location.parent, location.key
    other_kind = _explain_wrong_job_kind(location)
    if other_kind is not None:
        return other_kind
    model = model_of(location.annotation)
    valid = tuple(model.model_fields) if model else ()
    prefix = f"{parent}." if parent else ""
    # Suggest the option of another tool first, then the same key elsewhere, then similar keys here.
    elsewhere = (path for path in fields() if path.rpartition(".")[2] == key)
    meant = [FOREIGN_KEYS[key.lower()]] if key.lower() in FOREIGN_KEYS else []
    meant = meant or sorted(elsewhere, key=lambda path: (path.count("."), path))[:3]
    meant = meant or [f"{prefix}{name}" for name in did_you_mean(key, valid)]
    listed = f"valid keys: {', '.join(valid)}"
    # A long list would hide the suggestion.
    if len(valid) > _MAX_LISTED_KEYS:
        listed = f"`parc explain {re.sub(_INDEX, '[]', parent)}` lists the valid keys"
    return Finding(
        f"unknown key {key[:60]}" + (f" in {parent}" if parent else ""),
        label=f"did you mean {' or '.join(meant)}?" if meant else "this key does not exist",
        help=listed,
        fix=f"{meant[0]}: {_yaml_text(location.value)}" if meant else f"remove {prefix}{key[:60]}",
    )


def _explain_wrong_job_kind(location: ErrorLocation) -> Finding | None:
    """Return a finding if the key is valid only for another kind of job; otherwise None.

    Examples are a key of training jobs in a serving job, and the reverse.
    """
    from parc.compiler.spec.schema import serving_fields, training_fields

    path = re.sub(_INDEX, "[]", location.path)
    # If both are False, the key exists in neither kind of job and is a plain mistake.
    trains, serves = path in training_fields(), path in serving_fields()
    if not (trains or serves):
        return None
    kinds = "pretrain or finetune" if trains else "serve"
    this = "a serving job" if trains else "a training job"
    return Finding(
        f"{location.path} is not a key of {this}",
        label=f"this key is valid only if job.kind is {kinds}",
        help=f"`parc explain {location.parent or 'job'}` lists the valid keys",
        fix=f"remove {location.path}",
        causes=(Cause("job.kind", "job.kind is set here"),),
    )


def missing_key(location: ErrorLocation) -> Finding:
    """Return the finding for a missing required key (X08).

    ``location.annotation`` is the type of the missing key.
    """
    parent, key = location.parent, location.key
    return Finding(
        f"{key} is missing" + (f" in {parent}" if parent else ""),
        label=f"{key} must be {expected(location.annotation)}",
        fix=(f"{parent}." if parent else "") + EXAMPLES.get(location.path, f"{key}: ..."),
    )


def _yaml_text(value: Any) -> str:
    """Return a number, a bool or a single word as written in YAML; ``...`` for any other value."""
    if isinstance(value, bool):
        return str(value).lower()
    plain = isinstance(value, int | float) or (isinstance(value, str) and value.isidentifier())
    return str(value)[:60] if plain else "..."
