"""Settings that DeepSpeed reads from ``ds_config.json``, with its own defaults.

Source: deepspeed 0.19.8, runtime/config.py, runtime/constants.py, runtime/zero/config.py,
runtime/zero/offload_config.py, runtime/lr_schedules.py, runtime/swap_tensor/aio_config.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.deepspeed.verify_groups import DeepSpeedTopology
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.verify_settings import (
    EmittedSettings,
    product_of_numbers,
    translate_name,
)

SHORTEST_WARMUP = 2
"""Shortest warm-up in steps; DeepSpeed lengthens a shorter one to this number (lr_schedules.py)."""
SHORTEST_SCHEDULE = 3
"""Shortest schedule in steps that PARC emits: one step longer than the shortest warm-up. A schedule
of 0 decaying steps never reaches the peak rate."""
DECAYS = {"WarmupCosineLR": "cosine", "WarmupDecayLR": "linear", "WarmupLR": "constant"}
COSINE_FLOOR = 0.0001
"""Default of cos_min_ratio."""
DEFAULT_PEAK = 0.001
"""Default of warmup_max_lr in WarmupDecayLR, and of the optimizer's rate."""
NVME = {
    "aio.block_size": (1 << 20, 1 << 20),
    "aio.queue_depth": (32, 8),
    "aio.intra_op_parallelism": (4, 1),
}
"""Setting of the NVMe queue -> (PARC's value, default)."""


def read_config_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology, has_starter: bool
) -> Iterator[DerivedSetting]:
    """Yield the settings in ``ds_config.json`` of a job with the given topology.

    Args:
        settings: settings of ``ds_config.json``.
        topology: parallel sizes, from ``train.json`` or the file of the framework that starts
            DeepSpeed.
        has_starter: True if another framework, such as Accelerate, starts DeepSpeed.
    """
    yield from _batch_settings(settings, topology)
    yield from _optimizer_settings(settings)
    yield from _schedule_settings(settings)
    yield from _precision_settings(settings)
    yield from _zero_settings(settings)
    yield from _offload_settings(settings)
    yield from _parallel_settings(settings, topology)
    yield from _recompute_settings(settings, topology)
    # Accelerate sets steps_per_print itself.
    yield from settings.require("steps_per_print", None if has_starter else 1)
    yield from settings.unread_settings()


def _batch_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology
) -> Iterator[DerivedSetting]:
    """Yield the micro-batch size, the accumulation steps and the global batch size.

    With AutoTP, ``train_batch_size`` must be absent, because DeepSpeed's check of this key counts
    all ranks instead of all replicas.
    """
    micro, steps = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    size, count = settings.positive_integer(micro), settings.positive_integer(steps)
    yield settings.derive("layout.micro_batch", size, micro)
    yield settings.derive("layout.micro_batches", count, steps)
    yield settings.derive("problem.job.global_batch", size * count * topology.data, steps)
    if "train_batch_size" in settings:
        yield settings.derive_from("problem.job.global_batch", "train_batch_size")


def _optimizer_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    kind = settings.get("optimizer.type")
    if not isinstance(kind, str) or kind.lower() != "adamw":
        yield settings.unexpected_setting("optimizer.type")
    for setting, field, default in (
        ("lr", "learning_rate", DEFAULT_PEAK),
        ("eps", "adam_epsilon", 1e-8),
        ("weight_decay", "weight_decay", 0.0),
    ):
        yield settings.derive_from(f"problem.job.{field}", f"optimizer.params.{setting}", default)
    betas = settings.get("optimizer.params.betas", [0.9, 0.999])
    pair = betas if isinstance(betas, list) and len(betas) == 2 else [betas, betas]
    for number, beta in enumerate(pair, start=1):
        yield settings.derive(f"problem.job.adam_beta{number}", beta, "optimizer.params.betas")
    yield settings.derive_from("problem.job.gradient_clipping", "gradient_clipping", 1.0)


def _schedule_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    kind = settings.get("scheduler.type")
    decay = translate_name(DECAYS, kind)
    yield settings.derive("problem.job.lr_decay", decay, "scheduler.type")
    warmup = settings.get("scheduler.params.warmup_num_steps", 1000)
    yield settings.derive(
        "problem.job.warmup_steps",
        warmup,
        "scheduler.params.warmup_num_steps",
        lambda plan: warmup == SHORTEST_WARMUP and plan < warmup,
    )
    yield from settings.require("scheduler.params.warmup_type", "linear", "log")
    if decay != "constant":
        total = settings.get("scheduler.params.total_num_steps")
        yield settings.derive(
            "problem.job.lr_decay_steps",
            total,
            "scheduler.params.total_num_steps",
            lambda plan: total == SHORTEST_SCHEDULE and plan < total,
        )
    if decay == "cosine":
        peak = settings.get("optimizer.params.lr", DEFAULT_PEAK)
        ratio = settings.get("scheduler.params.cos_min_ratio", COSINE_FLOOR)
        path = "scheduler.params.cos_min_ratio"
        yield settings.derive(
            "problem.job.min_learning_rate", product_of_numbers(ratio, peak), path
        )
    else:
        path = "scheduler.params.warmup_max_lr"
        yield settings.derive_from("problem.job.learning_rate", path, DEFAULT_PEAK)
    if decay == "linear":
        yield settings.derive("problem.job.min_learning_rate", 0, "scheduler.type")


def _precision_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the formats of weights and gradients.

    Without ``grad_accum_dtype``, gradients have the format of the weights (``get_data_types``).
    """
    kinds = [name for name in ("bf16", "fp16") if settings.get(f"{name}.enabled", False) is True]
    # DeepSpeed rejects both at once.
    precision = "+".join(kinds) or "fp32"
    yield settings.derive("problem.job.precision", precision, f"{(kinds or ['bf16'])[0]}.enabled")
    for name in {"bf16", "fp16"} - set(kinds):
        # train.py creates the weights in the format of a section that exists, enabled or not.
        if name in settings:
            yield settings.unexpected_setting(f"{name}.enabled")
    gradients = settings.get("data_types.grad_accum_dtype", precision)
    yield settings.derive(
        "problem.job.gradient_precision",
        gradients,
        "data_types.grad_accum_dtype",
        # The plan has no name for 16-bit gradients with fp16: R04 requires fp32 there.
        lambda plan: gradients == "fp16" and plan == "fp32",
    )


def _zero_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    stage = settings.get("zero_optimization.stage", 0)
    yield settings.derive("layout.zero_stage", stage, "zero_optimization.stage")
    gathers = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    if stage == 3:  # the program saves whole weights only if it saves checkpoints
        saves = settings.get(gathers, False)
        yield settings.derive(
            "problem.job.checkpoint_dir", saves or None, gathers, lambda plan: bool(plan) is saves
        )
    overlap = settings.get("zero_optimization.overlap_comm")
    if (stage == 3 if overlap is None else overlap) is not (stage in (2, 3)):
        yield settings.unexpected_setting("zero_optimization.overlap_comm")
    for setting, field, default in (
        ("zero_hpz_partition_size", "hpz", 1),
        ("zero_quantized_weights", "quantized_weights", False),
        ("zero_quantized_gradients", "quantized_gradients", False),
    ):
        yield settings.derive_from(
            f"layout.zero_plus.{field}", f"zero_optimization.{setting}", default
        )


def _offload_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    folders = {}
    for section, field in (("offload_optimizer", "optimizer"), ("offload_param", "parameters")):
        place = f"zero_optimization.{section}"
        device = settings.get(f"{place}.device", "none")
        yield settings.derive(f"layout.offload.{field}", device, f"{place}.device")
        if device == "nvme":
            folders[f"{place}.nvme_path"] = settings.get(f"{place}.nvme_path")
        if device != "none":
            # Versions differ in the default.
            yield from settings.require(f"{place}.pin_memory", True)
    for setting, folder in folders.items():
        yield settings.derive("layout.offload.nvme_path", folder, setting)
    if folders:
        for setting, (value, default) in NVME.items():
            yield from settings.require(setting, value, default)


def _parallel_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology
) -> Iterator[DerivedSetting]:
    """Yield the parallel sizes in ``ds_config.json``; ``train.json`` has the other sizes."""
    autotp = settings.get("tensor_parallel.autotp_size", 1)
    if autotp != 1 or (topology.model > 1 and topology.pipe == 1 and not topology.has_experts):
        yield settings.derive("layout.tp", autotp, "tensor_parallel.autotp_size")
        if "train_batch_size" in settings:
            yield settings.unexpected_setting("train_batch_size")
    sequence = settings.get("sequence_parallel_size", 1)
    yield settings.derive("layout.cp", sequence, "sequence_parallel_size")
    # DeepSpeed creates groups for sequences only if both sizes are set.
    if sequence != 1 or "data_parallel_size" in settings:
        yield settings.derive_from("layout.dp", "data_parallel_size")


def _recompute_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology
) -> Iterator[DerivedSetting]:
    interval = "pipeline.activation_checkpoint_interval"
    layers = settings.get(interval, 0) if topology.pipe > 1 else 0
    if topology.pipe > 1:
        found = ("full", "uniform", layers) if layers else ("none", None, None)
        for name, value in zip(("granularity", "method", "layers"), found, strict=True):
            yield settings.derive(f"layout.recompute.{name}", value, interval)
    yield from settings.require("activation_checkpointing.partition_activations", False, False)
