"""Computed values of ``ds_config.json``; flags.yaml refers to the functions by name.

None leaves the key out.
"""

from __future__ import annotations

from parc.backends.registry import front_of
from parc.compiler.ir import Layout, Problem

AIO_BLOCK_BYTES = 1 << 20
AIO_QUEUE_DEPTH = 32
AIO_THREADS = 4
"""Request size, requests in flight and threads per rank, from DeepSpeed's NVMe offload tutorial."""


def uses_autotp(problem: Problem, layout: Layout) -> bool:
    """Return True if DeepSpeed's AutoTP splits the tensors.

    With a pipeline or experts, AutoTP does not apply, and the program splits them.
    """
    return layout.tp > 1 and layout.pp == 1 and problem.model.experts is None


def train_batch(problem: Problem, layout: Layout) -> int | None:
    """Return the global batch, or None with AutoTP, because DeepSpeed would reject it.

    Source: deepspeed/runtime/config.py, ``_batch_assertion``: without an mpu the batch must equal
    micro-batch x accumulation x world size, and AutoTP provides no mpu.
    """
    return None if uses_autotp(problem, layout) else problem.job.global_batch


def accumulation_steps(problem: Problem, layout: Layout) -> int:
    """Return the micro-batches per step; DeepSpeed's pipeline uses the same key."""
    return layout.micro_batches(problem.job.global_batch)


def print_interval(problem: Problem, layout: Layout) -> int | None:
    """Return 1 to print every step; None under Accelerate, which sets this key itself."""
    return None if front_of(problem) == "accelerate" else 1


def bf16(problem: Problem, layout: Layout) -> bool | None:
    """Return True if weights and activations are bf16."""
    return True if problem.job.precision == "bf16" else None


def fp16(problem: Problem, layout: Layout) -> bool | None:
    """Return True if weights and activations are fp16; the loss scale is dynamic by default."""
    return True if problem.job.precision == "fp16" else None


def accumulation_type(problem: Problem, layout: Layout) -> str | None:
    """Return the type in which gradients are accumulated.

    None without ZeRO, where DeepSpeed supports only the type of the weights.
    """
    if problem.job.precision != "bf16" or layout.zero_stage == 0:
        return None
    return problem.job.gradient_precision


def overlap(problem: Problem, layout: Layout) -> bool | None:
    """Return True for stages 2 and 3: gradients are reduced while the backward pass runs.

    Stage 1 reduces once per step, after the last backward pass.
    """
    return True if layout.zero_stage >= 2 else None


def optimizer_device(problem: Problem, layout: Layout) -> str | None:
    """Return the device of the optimizer state, or None for the GPU."""
    return _offload_device(layout.offload.optimizer)


def optimizer_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder of the optimizer state if it is on NVMe."""
    return layout.offload.nvme_path if layout.offload.optimizer == "nvme" else None


def optimizer_pinned(problem: Problem, layout: Layout) -> bool | None:
    """Return True for offload: page-locked buffers reach about twice the rate over PCIe."""
    return True if _offload_device(layout.offload.optimizer) else None


def parameter_device(problem: Problem, layout: Layout) -> str | None:
    """Return the device on which weights are stored between uses, or None for the GPU."""
    return _offload_device(layout.offload.parameters)


def parameter_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder of the weights if they are on NVMe."""
    return layout.offload.nvme_path if layout.offload.parameters == "nvme" else None


def parameter_pinned(problem: Problem, layout: Layout) -> bool | None:
    """Return True for offload: page-locked buffers, as for the optimizer."""
    return True if _offload_device(layout.offload.parameters) else None


def _offload_device(device: str) -> str | None:
    return None if device == "none" else device


def hpz(problem: Problem, layout: Layout) -> int | None:
    """Return the ranks that share one secondary copy of the weights, if above 1."""
    return layout.zero_plus.hpz if layout.zero_plus.hpz > 1 else None


def quantized_weights(problem: Problem, layout: Layout) -> bool | None:
    """Return True if weights are gathered in 8 bit."""
    return layout.zero_plus.quantized_weights or None


def quantized_gradients(problem: Problem, layout: Layout) -> bool | None:
    """Return True if gradients are reduced in 4 bit."""
    return layout.zero_plus.quantized_gradients or None


def _on_nvme(layout: Layout) -> bool:
    return "nvme" in (layout.offload.optimizer, layout.offload.parameters)


def aio_block(problem: Problem, layout: Layout) -> int | None:
    """Return the bytes per NVMe request."""
    return AIO_BLOCK_BYTES if _on_nvme(layout) else None


def aio_depth(problem: Problem, layout: Layout) -> int | None:
    """Return the number of NVMe requests in flight."""
    return AIO_QUEUE_DEPTH if _on_nvme(layout) else None


def aio_threads(problem: Problem, layout: Layout) -> int | None:
    """Return the number of threads that submit NVMe requests."""
    return AIO_THREADS if _on_nvme(layout) else None


def autotp(problem: Problem, layout: Layout) -> int | None:
    """Return the tensor parallel size if AutoTP splits the tensors."""
    return layout.tp if uses_autotp(problem, layout) else None


def sequence_ranks(problem: Problem, layout: Layout) -> int | None:
    """Return the number of ranks that share a sequence (Ulysses), if above 1."""
    return layout.cp if layout.cp > 1 else None


def data_ranks(problem: Problem, layout: Layout) -> int | None:
    """Return dp with Ulysses: DeepSpeed creates sequence groups only if both sizes are set."""
    return layout.dp if layout.cp > 1 else None


def pipeline_recompute(problem: Problem, layout: Layout) -> int | None:
    """Return the layers per recomputed block of a pipeline stage."""
    if layout.pp == 1 or layout.recompute.granularity == "none":
        return None
    return layout.recompute.layers or 1


def plain_recompute(problem: Problem, layout: Layout) -> bool | None:
    """Return False, to store unpartitioned inputs, if the program uses ``deepspeed.checkpointing``.

    None under Accelerate: models of transformers recompute with torch's own checkpointing.
    """
    if layout.pp > 1 or layout.recompute.granularity == "none" or front_of(problem) == "accelerate":
        return None
    return False
