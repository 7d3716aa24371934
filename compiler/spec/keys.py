"""Findings about keys: the unknown one and what was meant, the missing one and an example."""

from __future__ import annotations

import re
from typing import Any

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.spec.annotations import ErrorLocation, expected, model_of
from parc.compiler.spec.nearest import did_you_mean

_FEW = 12
"""So many legal keys are listed; of a longer list only near ones."""

_INDEX = r"\[\d+\]"

OTHER_WORDS: dict[str, str] = {
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
"""Names of Megatron-LM, DeepSpeed, vLLM and Hugging Face -> where PARC has the same thing."""

EXAMPLES: dict[str, str] = {
    "name": "name: my-run",
    "model": "model: llama-3-70b",
    "cluster": "cluster: {node: dgx-h100, nodes: 4}",
    "job": "job: {sequence_length: 8192, global_batch: 1024}",
    "job.traffic": "traffic: {input_tokens: 1000, output_tokens: 500, concurrency: 64}",
    "job.sequence_length": "sequence_length: 8192",
    "job.global_batch": "global_batch: 1024",
}
"""Missing key -> a line that would do."""


def unknown_key(place: ErrorLocation) -> Finding:
    """X01: ``place.annotation`` is the model that does not have the key."""
    from parc.compiler.spec.schema import fields

    above, key = place.above, place.key
    foreign = _of_other_kind(place)
    if foreign is not None:
        return foreign
    model = model_of(place.annotation)
    legal = tuple(model.model_fields) if model else ()
    prefix = f"{above}." if above else ""
    elsewhere = (path for path in fields() if path.rpartition(".")[2] == key)
    meant = [OTHER_WORDS[key.lower()]] if key.lower() in OTHER_WORDS else []
    meant = meant or sorted(elsewhere, key=lambda path: (path.count("."), path))[:3]
    meant = meant or [f"{prefix}{name}" for name in did_you_mean(key, legal)]
    listed = f"legal here: {', '.join(legal)}"
    if len(legal) > _FEW:
        listed = f"`parc explain {re.sub(_INDEX, '[]', above)}` lists the legal keys"
    return Finding(
        f"unknown key {key[:60]}" + (f" in {above}" if above else ""),
        label=f"did you mean {' or '.join(meant)}?" if meant else "no such key",
        help=listed,
        fix=f"{meant[0]}: {_shown(place.value)}" if meant else f"remove {prefix}{key[:60]}",
    )


def _of_other_kind(place: ErrorLocation) -> Finding | None:
    """A key of training jobs in one that serves, or the reverse; None for any other key."""
    from parc.compiler.spec.schema import serving_fields, training_fields

    path = re.sub(_INDEX, "[]", place.path)
    trains, serves = path in training_fields(), path in serving_fields()
    if not (trains or serves):
        return None
    kinds = "pretrain and finetune" if trains else "serve"
    said = "serve" if trains else "one that trains"
    return Finding(
        f"{place.path} is a key of another kind of job",
        label=f"for job.kind {kinds}",
        help=f"this job is {said}; `parc explain {place.above or 'job'}` lists its keys",
        fix=f"remove {place.path}",
        causes=(Cause("job.kind", "the kind of job is said here"),),
    )


def missing_key(place: ErrorLocation) -> Finding:
    """X08: ``place.annotation`` is the type that the missing key takes."""
    above, key = place.above, place.key
    return Finding(
        f"{key} is missing" + (f" in {above}" if above else ""),
        label=f"{key} takes {expected(place.annotation)}",
        fix=(f"{above}." if above else "") + EXAMPLES.get(place.path, f"{key}: ..."),
    )


def _shown(value: Any) -> str:
    """A plain value as it would be written; ``...`` for others."""
    if isinstance(value, bool):
        return str(value).lower()
    plain = isinstance(value, int | float) or (isinstance(value, str) and value.isidentifier())
    return str(value)[:60] if plain else "..."
