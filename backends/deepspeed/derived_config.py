"""Functions that compute values of ``ds_config.json`` and ``train.json``; flags.yaml names them.

A function that returns None leaves the key out.
"""

from __future__ import annotations

from parc.backends.registry import launching_wrapper
from parc.compiler.ir import Layout, Problem

AIO_BLOCK_BYTES = 1 << 20
# DeepSpeed's defaults are a queue depth of 8 and one thread (intra_op_parallelism).
AIO_QUEUE_DEPTH = 32
AIO_THREADS = 4
"""Threads per rank that submit NVMe transfers. These three values are from DeepSpeed's tutorial on
NVMe offload."""
MIN_WARMUP_STEPS = 2
"""Shortest warm-up in steps; DeepSpeed replaces smaller values by 2 (runtime/lr_schedules.py)."""
SCHEDULERS = {"cosine": "WarmupCosineLR", "linear": "WarmupDecayLR", "constant": "WarmupLR"}
"""``job.lr_decay`` -> DeepSpeed's scheduler; PARC rejects other decays (E11)."""


def uses_autotp(problem: Problem, layout: Layout) -> bool:
    """Return True if DeepSpeed's AutoTP splits the weights over tensor-parallel ranks.

    With a pipeline or with experts, AutoTP does not apply, and the training program splits the
    weights.
    """
    return layout.tp > 1 and layout.pp == 1 and problem.model.experts is None


def train_batch(problem: Problem, layout: Layout) -> int | None:
    """Return the global batch size in samples; None with AutoTP.

    With AutoTP, DeepSpeed would reject the correct size, because DeepSpeed counts tensor-parallel
    ranks as replicas. Without an ``mpu`` object, which AutoTP does not provide, DeepSpeed requires
    batch = micro-batch x accumulation x world size (deepspeed/runtime/config.py,
    ``_batch_assertion``).
    """
    # With AutoTP, DeepSpeed would count every tensor-parallel rank as a replica and expect a batch
    # that is tp times too large.
    return None if uses_autotp(problem, layout) else problem.job.global_batch


def accumulation_steps(problem: Problem, layout: Layout) -> int:
    """Return the number of micro-batches per step.

    DeepSpeed's pipeline engine reads the same key, ``gradient_accumulation_steps``.
    """
    return layout.micro_batches(problem.job.global_batch)


def print_interval(problem: Problem, layout: Layout) -> int | None:
    """Return 1, so that every step is printed; None under Accelerate.

    Accelerate sets the key ``steps_per_print`` itself.
    """
    return None if launching_wrapper(problem) == "accelerate" else 1


def bf16_enabled(problem: Problem, layout: Layout) -> bool | None:
    """Return True if the job trains in bf16, else None."""
    return True if problem.job.precision == "bf16" else None


def fp16_enabled(problem: Problem, layout: Layout) -> bool | None:
    """Return True if the job trains in fp16, else None.

    In fp16, DeepSpeed scales the loss dynamically by default.
    """
    return True if problem.job.precision == "fp16" else None


def accumulation_type(problem: Problem, layout: Layout) -> str | None:
    """Return the data type in which gradients are accumulated; None for DeepSpeed's default.

    The default is used for fp16, and for ZeRO stage 0, which supports only the type of the weights.
    """
    if problem.job.precision != "bf16" or layout.zero_stage == 0:
        return None
    return problem.job.gradient_precision


def overlap_communication(problem: Problem, layout: Layout) -> bool | None:
    """Return True for ZeRO stages 2 and 3, else None.

    These stages reduce gradients during the backward pass; stage 1 reduces gradients once per step,
    after the last backward pass.
    """
    return True if layout.zero_stage >= 2 else None


def optimizer_device(problem: Problem, layout: Layout) -> str | None:
    """Return the device of the offloaded optimizer state, "cpu" or "nvme"; None without offload."""
    return _offload_device(layout.offload.optimizer)


def optimizer_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder for the optimizer state if the state is offloaded to NVMe, else None."""
    return layout.offload.nvme_path if layout.offload.optimizer == "nvme" else None


def optimizer_pin_memory(problem: Problem, layout: Layout) -> bool | None:
    """Return True to use page-locked buffers if the optimizer state is offloaded, else None.

    Page-locked buffers reach about twice the rate over PCIe.
    """
    return True if _offload_device(layout.offload.optimizer) else None


def parameter_device(problem: Problem, layout: Layout) -> str | None:
    """Return the device of the offloaded weights, "cpu" or "nvme"; None without offload."""
    return _offload_device(layout.offload.parameters)


def parameter_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder for the weights if the weights are offloaded to NVMe, else None."""
    return layout.offload.nvme_path if layout.offload.parameters == "nvme" else None


def parameter_pin_memory(problem: Problem, layout: Layout) -> bool | None:
    """Return True to use page-locked buffers if the weights are offloaded, else None.

    Page-locked buffers reach about twice the rate over PCIe.
    """
    return True if _offload_device(layout.offload.parameters) else None


def _offload_device(device: str) -> str | None:
    return None if device == "none" else device


def hpz_ranks(problem: Problem, layout: Layout) -> int | None:
    """Return the number of ranks that share one secondary copy of the weights (ZeRO++ hpZ).

    None if hpZ is off.
    """
    # 1 is DeepSpeed's default and means no secondary copy, so the key can be omitted.
    return layout.zero_plus.hpz if layout.zero_plus.hpz > 1 else None


def quantized_weights(problem: Problem, layout: Layout) -> bool | None:
    """Return True if ZeRO++ gathers the weights in 8 bit, else None."""
    return layout.zero_plus.quantized_weights or None


def quantized_gradients(problem: Problem, layout: Layout) -> bool | None:
    """Return True if ZeRO++ reduces the gradients in 4 bit, else None."""
    return layout.zero_plus.quantized_gradients or None


def aio_block_bytes(problem: Problem, layout: Layout) -> int | None:
    """Return the size in bytes of each transfer to or from NVMe; None without offload to NVMe."""
    return AIO_BLOCK_BYTES if layout.offload.uses_nvme else None


def aio_queue_depth(problem: Problem, layout: Layout) -> int | None:
    """Return the maximum number of unfinished NVMe transfers; None without offload to NVMe."""
    return AIO_QUEUE_DEPTH if layout.offload.uses_nvme else None


def aio_threads(problem: Problem, layout: Layout) -> int | None:
    """Return the number of threads that submit NVMe transfers; None without offload to NVMe."""
    return AIO_THREADS if layout.offload.uses_nvme else None


def autotp_size(problem: Problem, layout: Layout) -> int | None:
    """Return the tensor parallel size if DeepSpeed's AutoTP splits the weights, else None."""
    return layout.tp if uses_autotp(problem, layout) else None


def sequence_ranks(problem: Problem, layout: Layout) -> int | None:
    """Return the number of ranks that share one sequence (Ulysses); None without Ulysses."""
    return layout.cp if layout.cp > 1 else None


def data_ranks(problem: Problem, layout: Layout) -> int | None:
    """Return the data parallel size with Ulysses, else None.

    DeepSpeed creates sequence groups only if ``sequence_parallel_size`` and ``data_parallel_size``
    are both set.
    """
    # With sequence_parallel_size only, the batch check uses world / sp, but the engine still trains
    # with dp = world and creates no sequence mesh (observed with 16 ranks).
    return layout.dp if layout.cp > 1 else None


def pipeline_recompute_interval(problem: Problem, layout: Layout) -> int | None:
    """Return the number of layers per recomputed block of a pipeline stage.

    None without a pipeline or without recomputation.
    """
    if layout.pp == 1 or layout.recompute.granularity == "none":
        return None
    # DeepSpeed's default, 0, would recompute nothing.
    return layout.recompute.layers or 1


def partition_activations(problem: Problem, layout: Layout) -> bool | None:
    """Return False for the config key ``partition_activations``, or None to omit the key.

    With False, ``deepspeed.checkpointing`` stores the whole inputs of recomputed layers on each
    rank. PARC omits the key if nothing is recomputed or the plan has a pipeline. PARC also omits
    the key under Accelerate, where models of transformers recompute with torch's own checkpointing.
    """
    # The key that DeepSpeed reads is partition_activations; its help text has
    # partitioned_activations, which is silently ignored.
    if (
        layout.pp > 1
        or layout.recompute.granularity == "none"
        or launching_wrapper(problem) == "accelerate"
    ):
        return None
    return False


def gathers_weights_on_save(problem: Problem, layout: Layout) -> bool | None:
    """Return True if ZeRO-3 must gather its weights when the program saves them; else None.

    Without this key, DeepSpeed cannot save partitioned weights in the format of Hugging Face.
    """
    return True if layout.zero_stage == 3 and problem.job.checkpoint_dir else None


def routed_layers(problem: Problem, layout: Layout) -> list[int] | None:
    """Return the 0-based indices of the layers with experts; None for a dense model."""
    experts = problem.model.experts
    return [n for n, routed in enumerate(experts.pattern) if routed] if experts else None


def data_parallel_size(problem: Problem, layout: Layout) -> int:
    """Return the data parallel size, the size of the data axis in ``train.json``."""
    return layout.dp


def stage_layers(problem: Problem, layout: Layout) -> list[int]:
    """Return the number of decoder layers of each pipeline stage, first stage first."""
    return [layout.split.stage_layers(stage) for stage in range(layout.pp)]


def recomputes_layers(problem: Problem, layout: Layout) -> bool:
    """Return True if the program recomputes all layers in the backward pass."""
    return layout.recompute.granularity == "full"


def betas(problem: Problem, layout: Layout) -> list[float]:
    """Return [beta1, beta2] of the Adam optimizer."""
    return [problem.job.adam_beta1, problem.job.adam_beta2]


def scheduler_class(problem: Problem, layout: Layout) -> str:
    """Return the class name of DeepSpeed's learning-rate scheduler for ``job.lr_decay``."""
    return SCHEDULERS[problem.job.lr_decay]


def total_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the length of the learning-rate schedule in steps; None for a constant rate.

    The length always exceeds the shortest warm-up that DeepSpeed supports.
    """
    # WarmupLR has no end, so its constructor has no total_num_steps.
    constant = problem.job.lr_decay == "constant"
    return None if constant else max(problem.job.lr_decay_steps, MIN_WARMUP_STEPS + 1)


def warmup_steps(problem: Problem, layout: Layout) -> int:
    """Return the number of warm-up steps, at least ``MIN_WARMUP_STEPS``.

    The spec can set a shorter warm-up, for example as a fraction of a short run.
    """
    return max(MIN_WARMUP_STEPS, problem.job.warmup_steps)


def warmup_peak_rate(problem: Problem, layout: Layout) -> float | None:
    """Return the learning rate at the end of the warm-up; None for cosine decay.

    The cosine scheduler uses the learning rate of the optimizer. The other schedulers would use
    0.001 without this key (deepspeed/runtime/lr_schedules.py).
    """
    return None if problem.job.lr_decay == "cosine" else problem.job.learning_rate


def min_learning_rate_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the final learning rate divided by the peak rate; None unless the decay is a cosine.

    Linear decay always ends at 0.
    """
    job = problem.job
    cosine = job.lr_decay == "cosine"
    # 12 digits, so that the emitted value is 0.1 rather than 0.09999999999999999
    return float(f"{job.min_learning_rate / job.learning_rate:.12g}") if cosine else None
