"""Settings of a plan that torchtitan reads from ``torchtitan/parc_titan.py``.

Source of the defaults: torchtitan 0.3.0, config/configs.py, components/optimizer/,
components/checkpoint.py, hf_datasets/text_datasets.py, models/common/rope.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parc.backends.shared.verify_torch import read_mesh_settings, read_recompute_settings
from parc.backends.torchtitan.verify_module import CALLED, LOAD, STAGES, CodeExpression
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.device_mesh import MeshSizes
from parc.compiler.verify.verify_settings import (
    EmittedSettings,
    product_of_numbers,
    translate_name,
)

AXES = {
    "pp": "parallelism.pipeline_parallel_degree",
    "dp_replicate": "parallelism.data_parallel_replicate_degree",
    "dp_shard": "parallelism.data_parallel_shard_degree",
    "cp": "parallelism.context_parallel_degree",
    "tp": "parallelism.tensor_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
}
"""Axis of the mesh -> setting."""
CALLS = {
    "": "Trainer.Config",
    "loss": "ChunkedLossWrapper.Config",
    "loss.loss_fn": "CrossEntropyLoss.Config",
    "optimizer": "default_adamw",
    "lr_scheduler": "LRSchedulersContainer.Config",
    "dataloader": "HuggingFaceTextDataLoader.Config",
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "checkpoint": "CheckpointManager.Config",
    "debug": "DebugConfig",
}
"""Section -> the class or function that the module calls to create its settings."""
FORMATS = {"bfloat16": "bf16", "float32": "fp32"}
SCHEDULES = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "zb-h1",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}
V_SHAPED = ("zb-v", "dualpipe-v")
"""Schedules in which rank r runs the stages r and 2 pp - 1 - r."""
RECOMPUTE = {"SelectiveAC.Config": "selective", "FullAC.Config": "full"}
DEFAULT_TOKENIZER = "./assets/hf"
"""Folder that PARC emits if the job names no tokenizer."""
TEST_TOKENIZER = "./tests/assets/tokenizer"
"""Folder that torchtitan uses if the config names none."""


def read_run_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    """Yield all settings of the training run; those of the model are read elsewhere."""
    for section, name in CALLS.items():
        yield from settings.require(f"{section}.{CALLED}".lstrip("."), CodeExpression(name))
    yield from settings.require("model_spec", CodeExpression("spec"))
    vocabulary = CodeExpression("spec.model.vocab_size")
    yield from settings.require("loss.loss_fn.global_vocab_size", vocabulary)
    yield from _sharding_settings(settings, sizes)
    yield from _stage_settings(settings, sizes)
    yield from _batch_settings(settings, sizes)
    yield from _training_settings(settings, sizes)
    yield from _optimizer_settings(settings)
    yield from _file_settings(settings)
    kind = settings.get(f"activation_checkpoint.{CALLED}")
    if kind is None:
        yield from settings.require("activation_checkpoint", None)
    granularity = RECOMPUTE.get(repr(kind), repr(kind)) if kind is not None else "none"
    yield from read_recompute_settings(settings, granularity, "activation_checkpoint")


def _sharding_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    """Yield the sizes of the device mesh, the ZeRO stage, and related settings."""
    for setting in AXES.values():
        settings.get(setting)
    path = "parallelism.fsdp_reshard_after_forward"
    reshard = settings.get(path, "default")
    if reshard == "default":
        reshard = "never" if sizes.pp > 1 else "always"
    stage = translate_name({"always": 3, "never": 2}, reshard)
    alone = sizes.dp_shard == 1 and stage == 2
    yield settings.derive("layout.zero_stage", stage, path, lambda plan: alone and plan == 0)
    yield from read_mesh_settings(settings, sizes, AXES, 0 if alone else 3)
    path = "parallelism.enable_sequence_parallel"
    yield settings.derive_from("layout.sequence_parallel", path, True)
    # torchtitan gathers keys and values; without cp the value has no effect.
    lone = sizes.cp == 1
    yield settings.derive("layout.cp_comm", "all_gather", AXES["cp"], lambda plan: lone)


def _stage_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    """Yield the pipeline schedule, vpp, and the model chunks of each pipeline stage."""
    path = "parallelism.pipeline_parallel_schedule"
    name = settings.get(path, "1F1B")
    schedule = translate_name(SCHEDULES, name) if sizes.pp > 1 else "1f1b"
    yield settings.derive("layout.schedule", schedule, path)
    if sizes.pp == 1:
        yield settings.derive("layout.vpp", 1)
        if "model.n_layers" in settings:
            chunks = _model_chunks([settings.get("model.n_layers")], 1, schedule)
            yield settings.derive("layout.split.chunks", chunks, "model.n_layers")
        return
    yield from settings.require(f"{STAGES}.{CALLED}", CodeExpression("stages"))
    counts = settings.get(f"{STAGES}.0")
    if not _is_split(counts) or len(counts) % sizes.pp:
        yield settings.unexpected_setting(f"{STAGES}.0")
        return
    yield settings.derive("layout.vpp", len(counts) // sizes.pp, STAGES)
    chunks = _model_chunks(counts, sizes.pp, schedule)
    yield settings.derive("layout.split.chunks", chunks, f"{STAGES}.0")
    if "model.n_layers" in settings and sum(counts) != settings.get("model.n_layers"):
        yield settings.unexpected_setting(f"{STAGES}.0")


def _is_split(counts: Any) -> bool:
    return isinstance(counts, list) and bool(counts) and all(type(one) is int for one in counts)


def _model_chunks(counts: list[Any], pp: int, schedule: str) -> list[list[dict[str, Any]]]:
    """Return the model chunks of each pipeline rank.

    ``counts`` contains the number of layers of each virtual stage, in model order.
    """
    stages, first = [], 0
    for number, layers in enumerate(counts):
        ends = {"embedding": number == 0, "loss": number == len(counts) - 1}
        stages.append({"first_layer": first, "layers": layers, "mtp_layers": 0} | ends)
        first += layers
    if schedule in V_SHAPED:
        return [[stages[rank], stages[-1 - rank]] for rank in range(pp)]
    return [stages[rank::pp] for rank in range(pp)]


def _batch_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    """Yield the micro-batch size, the number of micro-batches, and the global batch size.

    With a pipeline, a rank loads all its sequences of a step at once, and torch splits them into
    micro-batches.
    """
    local = settings.positive_integer("training.local_batch_size", 8)
    total = settings.positive_integer("training.global_batch_size")
    micro, path = local, "training.local_batch_size"
    replicas = sizes.dp_replicate * sizes.dp_shard
    if sizes.pp > 1:
        path = "parallelism.pipeline_parallel_microbatch_size"
        micro = settings.positive_integer(path, 1)
        yield settings.derive("problem.job.global_batch", local * replicas, path)
    yield settings.derive("layout.micro_batch", micro, path)
    yield settings.derive("problem.job.global_batch", total, "training.global_batch_size")
    yield settings.derive("layout.micro_batches", total / (micro * replicas), path)


def _training_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    yield settings.derive_from("problem.job.sequence_length", "training.seq_len", 2048)
    yield settings.derive_from("problem.job.steps", "training.steps", 10000)
    for setting, field, default in (
        ("mixed_precision_param", "precision", "bfloat16"),
        ("mixed_precision_reduce", "gradient_precision", "float32"),
    ):
        name = settings.get(f"training.{setting}", default)
        yield settings.derive(
            f"problem.job.{field}", translate_name(FORMATS, name), f"training.{setting}"
        )
    # CUDA graphs support neither pipelines nor the all-to-all of experts.
    graphs = "training.disable_cuda_graphs"
    yield from settings.require(graphs, sizes.pp > 1 or sizes.ep > 1, False)
    norm = settings.get("training.max_norm", 1.0)
    # 0 would scale all gradients to 0.
    clipping = 0 if norm == float("inf") else "all gradients to 0" if norm == 0 else norm
    yield settings.derive("problem.job.gradient_clipping", clipping, "training.max_norm")
    yield settings.derive_from("problem.job.seed", "debug.seed")


def _optimizer_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    peak = settings.get("optimizer.lr", 8e-4)
    yield settings.derive("problem.job.learning_rate", peak, "optimizer.lr")
    yield settings.derive_from("problem.job.adam_epsilon", "optimizer.eps", 1e-8)
    yield settings.derive_from("problem.job.weight_decay", "optimizer.weight_decay", 0.1)
    betas = settings.get("optimizer.betas", (0.9, 0.95))
    pair = betas if isinstance(betas, tuple | list) and len(betas) == 2 else (betas, betas)
    for number, beta in enumerate(pair, start=1):
        yield settings.derive(f"problem.job.adam_beta{number}", beta, "optimizer.betas")
    yield settings.derive_from("problem.job.warmup_steps", "lr_scheduler.warmup_steps", 200)
    total = settings.get("lr_scheduler.total_steps")
    yield settings.derive("problem.job.lr_decay_steps", total, "lr_scheduler.total_steps")
    least = settings.get("lr_scheduler.min_lr_factor", 0.0)
    path = "lr_scheduler.min_lr_factor"
    yield settings.derive("problem.job.min_learning_rate", product_of_numbers(least, peak), path)
    ratio, path = settings.get("lr_scheduler.decay_ratio"), "lr_scheduler.decay_ratio"
    decay = settings.get("lr_scheduler.decay_type", "linear")
    if decay == "linear" and ratio is not None:
        decay = "wsd" if ratio else "constant"
    elif ratio is not None:
        yield settings.unexpected_setting(path)
    yield settings.derive("problem.job.lr_decay", decay, "lr_scheduler.decay_type")
    if decay == "wsd":
        yield settings.derive("problem.job.wsd_decay_steps", product_of_numbers(ratio, total), path)


def _file_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the settings that name files: tokenizer, training data and checkpoints."""
    path = "hf_assets_path"
    folder = settings.get(path, TEST_TOKENIZER)
    yield settings.derive(
        "problem.job.tokenizer_model",
        folder,
        path,
        lambda plan: plan is None and folder == DEFAULT_TOKENIZER,
    )
    yield from settings.require("dataloader.dataset", "c4", "c4_test")
    data = settings.get("dataloader.dataset_path")
    path = "dataloader.dataset_path"
    yield settings.derive("problem.job.data", [] if data is None else [data], path)
    save, load = settings.get("checkpoint.folder"), settings.get(LOAD)
    yield settings.derive("problem.job.checkpoint_dir", save, "checkpoint.folder")
    yield settings.derive("problem.job.load_dir", load, LOAD)
    yield from _start_settings(settings, load)
    yield from settings.require("checkpoint.enable", bool(save or load), False)
    yield settings.derive_from("problem.job.checkpoint_interval", "checkpoint.interval", 500)


def _start_settings(settings: EmittedSettings, load: Any) -> Iterator[DerivedSetting]:
    """Yield the kind of the job, which decides what the run takes from the checkpoint ``load``.

    A fine-tuning run takes the weights alone. A pretraining run takes the optimizer and the step
    too, unless the files are weights in the format of Hugging Face.
    """
    path = "checkpoint.initial_load_model_only"
    kind = "finetune" if load is not None and settings.get(path) is True else "pretrain"
    yield settings.derive("problem.job.kind", kind, path)
    detected = ["checkpoint.initial_load_in_hf"] if load is not None else []
    detected += [path] if load is not None and kind == "pretrain" else []
    for name in detected:
        called = CodeExpression("in_hugging_face_format")
        yield from settings.require(f"{name}.{CALLED}", called)
        yield from settings.require(f"{name}.0", load)
