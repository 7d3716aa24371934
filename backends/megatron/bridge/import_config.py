"""Import of layout and job from a YAML file of Megatron-Bridge's ConfigContainer.

The file contains overrides of a recipe, or all fields, as in PARC's own files. A field that it
lacks has the value of the recipe, so that the spec does not get it.
"""

from __future__ import annotations

import re
from typing import Any

from parc.backends.megatron.launch_files.import_sharding import STAGES
from parc.backends.shared.field_table import field_table
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.formats import BackendImporters
from parc.compiler.topology.readers.document import DocumentNode, leaves_by_path, read_document
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

NUMBERS = {
    "model.tensor_model_parallel_size": "layout.tp",
    "model.pipeline_model_parallel_size": "layout.pp",
    "model.virtual_pipeline_model_parallel_size": "layout.vpp",
    "model.context_parallel_size": "layout.cp",
    "model.expert_model_parallel_size": "layout.ep",
    "model.expert_tensor_parallel_size": "layout.etp",
    "model.num_layers_in_first_pipeline_stage": "layout.first_stage_layers",
    "model.num_layers_in_last_pipeline_stage": "layout.last_stage_layers",
    "model.recompute_num_layers": "layout.recompute.layers",
    "train.micro_batch_size": "layout.micro_batch",
    "model.seq_length": "job.sequence_length",
    "dataset.seq_length": "job.sequence_length",
    "train.global_batch_size": "job.global_batch",
    "train.train_iters": "job.steps",
    "optimizer.lr": "job.learning_rate",
    "optimizer.min_lr": "job.min_learning_rate",
    "optimizer.weight_decay": "job.weight_decay",
    "optimizer.adam_beta1": "job.adam_beta1",
    "optimizer.adam_beta2": "job.adam_beta2",
    "optimizer.adam_eps": "job.adam_epsilon",
    "optimizer.clip_grad": "job.gradient_clipping",
    "scheduler.lr_decay_iters": "job.lr_decay_steps",
    "scheduler.lr_wsd_decay_iters": "job.wsd_decay_steps",
    "scheduler.lr_warmup_iters": "job.warmup_steps",
    "scheduler.lr_warmup_fraction": "job.warmup_steps",
    "rng.seed": "job.seed",
    "dataset.random_seed": "job.seed",
    "checkpoint.save_interval": "job.checkpoint_interval",
}
"""Field -> field of the spec with the same number."""
SWITCHES = {
    "model.sequence_parallel": "layout.sequence_parallel",
    "model.account_for_embedding_in_pipeline_split": "layout.count_embedding",
    "model.account_for_loss_in_pipeline_split": "layout.count_loss",
    "model.cross_entropy_loss_fusion": "job.fused_loss",
    "comm_overlap.tp_comm_overlap": "job.tp_overlap",
    "comm_overlap.overlap_moe_expert_parallel_comm": "job.moe_overlap",
    "checkpoint.async_save": "job.async_checkpoint",
}
"""Field -> switch of the spec."""
TEXTS = {
    "model.hf_model_id": "model",
    "model.pipeline_model_parallel_layout": "layout.pipeline_layout",
    "model.recompute_granularity": "layout.recompute.granularity",
    "model.recompute_method": "layout.recompute.method",
    "tokenizer.tokenizer_type": "job.tokenizer",
    "tokenizer.tokenizer_model": "job.tokenizer_model",
    "checkpoint.save": "job.checkpoint_dir",
    "checkpoint.load": "job.load_dir",
    "checkpoint.pretrained_checkpoint": "job.load_dir",
}
"""Field -> text of the spec; the last field in this table wins."""
LISTS = {"model.recompute_modules": "layout.recompute.modules", "dataset.data_path": "job.data"}
"""Field -> list of texts of the spec."""
PRECISIONS: dict[str, dict[str, str]] = {
    "bf16_mixed": {"precision": "bf16"},
    "fp16_mixed": {"precision": "fp16"},
    "bf16_with_fp8_delayed_scaling_mixed": {"precision": "fp8", "fp8_recipe": "delayed"},
    "bf16_with_fp8_current_scaling_mixed": {"precision": "fp8", "fp8_recipe": "tensorwise"},
    "bf16_with_fp8_subchannel_scaling_mixed": {"precision": "fp8", "fp8_recipe": "blockwise"},
    "bf16_with_mxfp8_mixed": {"precision": "mxfp8"},
    "bf16_with_nvfp4_mixed": {"precision": "nvfp4"},
}
"""Name of a recipe of training/mixed_precision.py -> fields of ``job``."""
WORDS: dict[str, tuple[str, dict[Any, Any]]] = {
    "model.cp_comm_type": (
        "layout.cp_comm",
        {"p2p": "p2p", "allgather": "all_gather", "a2a": "a2a", "a2a+p2p": "a2a+p2p"},
    ),
    "ddp.use_distributed_optimizer": ("layout.zero_stage", {True: 1, False: 0}),
    "ddp.data_parallel_sharding_strategy": ("layout.zero_stage", STAGES),
    "dist.use_tp_pp_dp_mapping": (
        "layout.order",
        {True: "tp-cp-ep-pp-dp", False: "tp-cp-ep-dp-pp"},
    ),
    "scheduler.lr_decay_style": (
        "job.lr_decay",
        {
            **{one: one for one in ("constant", "linear", "cosine", "inverse-square-root")},
            "WSD": "wsd",
        },
    ),
    "model.moe_flex_dispatcher_backend": (
        "job.moe_dispatcher",
        {"deepep": "deepep", "hybridep": "hybridep"},
    ),
    "model.moe_token_dispatcher_type": ("job.moe_dispatcher", {"alltoall": "alltoall"}),
    "optimizer.exp_avg_dtype": (
        "job.moment_precision",
        {"torch.bfloat16": "bf16", "torch.float32": "fp32"},
    ),
    "mixed_precision.grad_reduce_in_fp32": (
        "job.gradient_precision",
        {True: "fp32", False: "bf16"},
    ),
}
"""Field -> (field of the spec, value -> value of the spec)."""

READ = frozenset((*NUMBERS, *SWITCHES, *TEXTS, *LISTS, *WORDS))
"""Fields that set a field of the spec."""
DISPATCHER = "model.moe_token_dispatcher_type"
STRATEGY = "ddp.data_parallel_sharding_strategy"
FSDP = ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")
"""Switches of Megatron-FSDP; one is sufficient. Only with it has ``STRATEGY`` an effect."""


def read_bridge_yaml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec fields that a file of Megatron-Bridge sets; None if the text is unusable.

    Fields without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    leaves = leaves_by_path(root)
    # run_config.yaml of a checkpoint also names the class of each section.
    found = {field: node for field, node in leaves.items() if not field.endswith("_target_")}
    _read_precision(found, reading)
    # With this type, another field names the library.
    if DISPATCHER in found and found[DISPATCHER].value == "flex":
        del found[DISPATCHER]
    if STRATEGY in found and not any(one in found and found[one].value is True for one in FSDP):
        del found[STRATEGY]
    for field in (*NUMBERS, *SWITCHES, *TEXTS, *LISTS, *WORDS):
        if field in found and _read_field(field, found[field], reading):
            del found[field]
    _simplify(reading.spec)
    _report_rest(found, reading)
    if not reading.spec and reading.is_valid:
        reading.report_error("I02", "this file sets no field of a spec", root.span)
    return reading.fragment()


def _report_rest(nodes: dict[str, DocumentNode], reading: Reading) -> None:
    """Report unused fields; one note lists the fields that PARC sets by its own rules."""
    # The named model has the sizes of the file.
    named = isinstance(reading.spec.get("model"), str)
    own = {row.setting for row in field_table("parc.backends.megatron.bridge").rows} - READ
    rest = [one for one in nodes if one in READ or not (named and one.startswith("model."))]
    chosen = [one for one in rest if one in own and not one.startswith("model.")]
    if chosen:
        reading.notes.append(f"chosen by PARC, so not carried over: {', '.join(chosen)}")
    for field in rest:
        if field not in chosen:
            hint = "set the matching field of the spec, if any"
            reading.leave_out(f"{field}: {nodes[field].value}", nodes[field].span, hint)


def _read_field(field: str, node: DocumentNode, reading: Reading) -> bool:
    """Set the field of the spec; return False if the spec cannot have the value."""
    value = node.value
    if field in LISTS:
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
            return False
        return _set(reading, LISTS[field], words, node)
    if field in WORDS:
        path, names = WORDS[field]
        known = isinstance(value, str | bool) and value in names
        return known and _set(reading, path, names[value], node)
    kind: type | tuple[type, ...] = str
    if field in SWITCHES:
        kind = bool
    elif field in NUMBERS:
        kind = (int, float)
    if not isinstance(value, kind) or (field in NUMBERS and isinstance(value, bool)):
        return False
    return _set(reading, (NUMBERS | SWITCHES | TEXTS)[field], value, node)


def _set(reading: Reading, path: str, value: Any, node: DocumentNode) -> bool:
    *sections, name = path.split(".")
    place = reading.spec
    for section in sections:
        place = place.setdefault(section, {})
    place[name] = value
    reading.spans[path] = node.span
    return True


def _read_precision(nodes: dict[str, DocumentNode], reading: Reading) -> None:
    """Set ``job.precision`` from the name of a recipe, or from the formats of GEMMs."""
    node = nodes.get("mixed_precision")
    if node is not None and str(node.value).replace("-", "_") in PRECISIONS:
        del nodes["mixed_precision"]
        for name, value in PRECISIONS[str(node.value).replace("-", "_")].items():
            _set(reading, f"job.{name}", value, node)
        return
    values = {
        field: nodes[f"mixed_precision.{field}"]
        for field in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4")
        if f"mixed_precision.{field}" in nodes
    }
    for field, precision in (("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "fp8"), ("fp4", "nvfp4")):
        if field in values and values[field].value:
            _set(reading, "job.precision", precision, values[field])
    recipe = values.get("fp8_recipe")
    if recipe is not None and reading.spec.get("job", {}).get("precision") == "fp8":
        if recipe.value == "mxfp8":
            _set(reading, "job.precision", "mxfp8", recipe)
        elif recipe.value in ("tensorwise", "delayed", "blockwise"):
            _set(reading, "job.fp8_recipe", recipe.value, recipe)
    if reading.spec.get("job", {}).get("precision") == "fp16":
        # With fp16 weights, gradients are never reduced in bf16.
        nodes.pop("mixed_precision.grad_reduce_in_fp32", None)
    for field in values:
        del nodes[f"mixed_precision.{field}"]


def _simplify(spec: dict[str, Any]) -> None:
    """Write recomputation as a word if only its granularity is set, and drop repeated paths."""
    job, layout = spec.get("job", {}), spec.get("layout", {})
    recompute = layout.get("recompute", {})
    if list(recompute) == ["granularity"]:
        layout["recompute"] = recompute["granularity"]
    # A run resumes from its own checkpoints anyway.
    if job.get("load_dir") is not None and job.get("load_dir") == job.get("checkpoint_dir"):
        del job["load_dir"]


SECTIONS = frozenset(
    (
        *("model", "train", "validation", "optimizer", "ddp", "scheduler", "dataset", "logger"),
        *("tokenizer", "checkpoint", "dist", "rng", "rerun_state_machine", "ft", "straggler"),
        *("nvrx_straggler", "profiling", "peft", "comm_overlap", "mixed_precision", "_target_"),
        *("tensor_inspect", "inprocess_restart", "optimizer_config_override_provider"),
    )
)
"""Fields of ConfigContainer (training/config.py)."""
_KEY = re.compile(r"^([A-Za-z_]\w*)[ \t]*:", re.M)
"""Matches a key at the top of a YAML file."""


def _is_config_container(text: str) -> bool:
    """Return True if the top of a YAML file has only fields of ConfigContainer.

    NeMo 1 (``trainer``, ``exp_manager``), FlagScale (``system``) and others also set the parallel
    sizes under ``model``.
    """
    return SECTIONS.issuperset(_KEY.findall(text))


IMPORTERS = BackendImporters(
    {
        "megatron-bridge-yaml": FileFormat(
            read_bridge_yaml,
            "YAML fields of Megatron-Bridge's ConfigContainer",
            (r"(?m)^[ \t]+(tensor|pipeline|context)_model_parallel_size[ \t]*:",),
            confirms=_is_config_container,
        )
    }
)
