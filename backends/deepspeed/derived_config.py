"""Functions that compute values of ``ds_config.json``; flags.yaml refers to them by name.

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
