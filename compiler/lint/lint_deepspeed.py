"""A config of DeepSpeed: the batch, precision, ZeRO, and keys that it would not read.

Keys: https://www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.importers.deepspeed_json import BATCH
from parc.compiler.lint.more import More
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.reading import Reading

TOP = (
    *BATCH,
    *("optimizer", "scheduler", "fp16", "bf16", "bfloat16", "amp", "torch_autocast"),
    *("zero_optimization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    *("gradient_clipping", "prescale_gradients", "gradient_predivide_factor"),
    *("sparse_gradients", "communication_data_type", "data_types", "disable_allgather"),
    *("seq_parallel_communication_data_type", "sequence_parallel_size", "tensor_parallel"),
    *("steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown"),
    *("activation_checkpointing", "aio", "tensorboard", "wandb", "csv_monitor", "comet"),
    *("flops_profiler", "autotuning", "elasticity", "checkpoint", "comms_logger", "pipeline"),
    *("data_efficiency", "curriculum_learning", "progressive_layer_drop", "eigenvalue"),
    *("compression_training", "sparse_attention", "hybrid_engine", "nebula", "compile"),
    *("dataloader_drop_last", "use_data_before_expert_parallelism", "graph_harvesting"),
)
ZERO = (
    *("stage", "allgather_partitions", "allgather_bucket_size", "overlap_comm", "reduce_scatter"),
    *("reduce_bucket_size", "contiguous_gradients", "offload_param", "offload_optimizer"),
    *("sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance"),
    *("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "elastic_checkpoint"),
    *("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"),
    *("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients"),
    *("zero_quantized_nontrainable_weights", "ignore_unused_parameters", "round_robin_gradients"),
    *("load_from_fp32_weights", "legacy_stage1", "cpu_offload", "cpu_offload_params"),
    *("mics_shard_size", "mics_hierarchical_params_gather", "memory_efficient_linear"),
    *(
        "param_persistence_threshold",
        "model_persistence_threshold",
        "use_multi_rank_bucket_allreduce",
    ),
    *(
        "pipeline_loading_checkpoint",
        "override_module_apply",
        "leaf_module",
        "log_trace_cache_warnings",
    ),
)
TYPO = 0.82
"""How like a key another one must be to be a misspelling: programs add keys of their own."""
ONLY_3 = ("offload_param", "zero_hpz_partition_size", "zero_quantized_weights")
NOTHING: tuple[Any, ...] = (None, False, 0, 1, "none", {})


def lint_deepspeed(text: str, name: str, more: More, sink: Sink) -> None:
    """B02, B03, I02, R04, R14, R16, X01: all that the file alone can show."""
    root = read_document(Reading(text, name, sink))
    if root is None or not root.wants(dict):
        return
    _keys(root, TOP, sink)
    zero = root.mapping("zero_optimization")
    if zero is not None:
        _keys(zero, ZERO, sink)
        _stage(zero, sink)
    _formats(root, sink)
    _batch(root, more.gpus, sink)


def is_deepspeed(text: str) -> bool:
    """Whether ``text`` is such a config."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        tree = json.loads(text)
    except ValueError:
        return any(f'"{key}"' in text for key in (*BATCH, "zero_optimization"))
    return isinstance(tree, Mapping) and bool({*BATCH, "zero_optimization"} & tree.keys())


def _keys(node: Node, known: tuple[str, ...], sink: Sink) -> None:
    for key in node.value:
        near = [] if key in known else get_close_matches(str(key), known, 1, TYPO)
        if near:
            finding = Finding(
                f"DeepSpeed reads no key {str(key)[:60]!r}, and says nothing",
                label="unknown key",
                help=f"did you mean {near[0]}?",
                fix=near[0],
            )
            sink.report("X01", finding, span=_at(node, key))


def _at(node: Node, key: str) -> Span:
    child = node.child(key)
    return child.span if child is not None else node.span


def _number(node: Node, key: str, sink: Sink) -> int | None:
    """A whole number above 0; None where it is absent or ``auto``; I02 for anything else."""
    value = node.value.get(key)
    if value in (None, "auto"):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    finding = Finding(f"{key} is {str(value)[:40]!r}, expected a whole number above 0 or auto")
    sink.report("I02", finding, span=_at(node, key))
    return None


def _batch(root: Node, gpus: int | None, sink: Sink) -> None:
    """train_batch_size = micro-batch x accumulation x data-parallel ranks (runtime/config.py)."""
    present = [key for key in BATCH if key in root.value]
    if not {"train_batch_size", "train_micro_batch_size_per_gpu"} & {*present}:
        finding = Finding(
            "neither train_batch_size nor train_micro_batch_size_per_gpu is given",
            help="give any two of the batch, the micro-batch and the accumulation steps",
        )
        sink.report("B03", finding, span=root.span)
        return
    batch, micro, steps = (_number(root, key, sink) for key in BATCH)
    if batch is None or micro is None:
        return
    step = micro * (steps or 1)
    wrong = batch % step != 0 if gpus is None or steps is None else batch != step * gpus
    if not wrong:
        return
    ranks = f" * {gpus}" if gpus is not None and steps is not None else ""
    finding = Finding(
        f"train_batch_size {batch} is no {micro} x {steps or 1}{ranks.replace('*', 'x')}",
        label=f"{batch} != {step}{ranks} = {step * gpus}"
        if ranks and gpus
        else f"{batch} % ({micro} * {steps or 1}) = {batch % step}, must be 0",
        help="train_batch_size = micro-batch x accumulation steps x data-parallel ranks",
        fix=f"train_batch_size: {step * gpus}" if ranks and gpus else "",
    )
    sink.report("B02", finding, span=_at(root, "train_batch_size"))


def _formats(root: Node, sink: Sink) -> None:
    on = [key for key in ("bf16", "fp16", "amp") if _enabled(root, key)]
    if "bf16" in on and "fp16" in on:
        finding = Finding("bf16 and fp16 are both enabled", label="only one of the two can be on")
        sink.report("R04", finding, span=_at(root, "fp16"))
    zero = root.mapping("zero_optimization")
    if "amp" in on and zero is not None and zero.value.get("stage"):
        finding = Finding("amp and ZeRO do not go together", fix="bf16 in place of amp")
        sink.report("R16", finding, span=_at(root, "amp"))


def _enabled(root: Node, key: str) -> bool:
    section = root.mapping(key)
    return section is not None and section.value.get("enabled") is True


def _stage(zero: Node, sink: Sink) -> None:
    stage = zero.value.get("stage", 0)
    if stage == "auto":
        return
    if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage <= 3:
        finding = Finding(f"ZeRO stage {str(stage)[:20]}, there are 0 to 3")
        sink.report("I02", finding, span=_at(zero, "stage"))
        return
    for key in ONLY_3:
        value = zero.value.get(key)
        away = isinstance(value, dict) and value.get("device", "cpu") == "none"
        if stage < 3 and value not in NOTHING and not away:
            finding = Finding(
                f"{key} does nothing at ZeRO stage {stage}",
                label="needs stage 3",
                fix="stage: 3",
            )
            sink.report("R14", finding, span=_at(zero, key))
