"""Values of ``ds_config.json`` that are more than a field of the plan; None leaves a key out."""

from __future__ import annotations

from parc.backends.registry import front_of
from parc.compiler.ir import Layout, Problem

AIO_BLOCK_BYTES = 1 << 20
AIO_QUEUE_DEPTH = 32
AIO_THREADS = 4
"""Blocks, requests in flight and threads a rank, as DeepSpeed's own NVMe tutorial tunes them."""


def uses_autotp(problem: Problem, layout: Layout) -> bool:
    """Whether DeepSpeed cuts the tensors itself; in a pipeline and around experts the code does."""
    return layout.tp > 1 and layout.pp == 1 and problem.model.experts is None


def train_batch(problem: Problem, layout: Layout) -> int | None:
    """The global batch; with AutoTP left out, for DeepSpeed multiplies it with all ranks.

    Source: deepspeed/runtime/config.py, ``_batch_assertion``: without an mpu the batch must be
    micro-batch x accumulation x world, and AutoTP brings none.
    """
    return None if uses_autotp(problem, layout) else problem.job.global_batch


def accumulation_steps(problem: Problem, layout: Layout) -> int:
    """Micro-batches of a step; those of a pipeline too."""
    return layout.micro_batches(problem.job.global_batch)


def print_interval(problem: Problem, layout: Layout) -> int | None:
    """DeepSpeed prints every step; Accelerate puts a value of its own in this place."""
    return None if front_of(problem) == "accelerate" else 1


def bf16(problem: Problem, layout: Layout) -> bool | None:
    """Weights and activations in bf16."""
    return True if problem.job.precision == "bf16" else None


def fp16(problem: Problem, layout: Layout) -> bool | None:
    """Weights and activations in fp16, with a dynamic loss scale."""
    return True if problem.job.precision == "fp16" else None


def accumulation_type(problem: Problem, layout: Layout) -> str | None:
    """Type in which gradients are summed; without ZeRO only that of the model exists."""
    if problem.job.precision != "bf16" or layout.zero_stage == 0:
        return None
    return problem.job.gradient_precision


def overlap(problem: Problem, layout: Layout) -> bool | None:
    """Reduce while the backward pass runs: stages 2 and 3, for 1 reduces once a step."""
    return True if layout.zero_stage >= 2 else None


def optimizer_device(problem: Problem, layout: Layout) -> str | None:
    """Where the optimizer runs, if not in the GPU."""
    return _away(layout.offload.optimizer)


def optimizer_path(problem: Problem, layout: Layout) -> str | None:
    """Folder of the optimizer's state on NVMe."""
    return layout.offload.nvme_path if layout.offload.optimizer == "nvme" else None


def optimizer_pinned(problem: Problem, layout: Layout) -> bool | None:
    """Page-locked buffers: twice the rate of others over PCIe."""
    return True if _away(layout.offload.optimizer) else None


def parameter_device(problem: Problem, layout: Layout) -> str | None:
    """Where weights wait, if not in the GPU."""
    return _away(layout.offload.parameters)


def parameter_path(problem: Problem, layout: Layout) -> str | None:
    """Folder of the weights on NVMe."""
    return layout.offload.nvme_path if layout.offload.parameters == "nvme" else None


def parameter_pinned(problem: Problem, layout: Layout) -> bool | None:
    """Page-locked buffers, as for the optimizer."""
    return True if _away(layout.offload.parameters) else None


def _away(device: str) -> str | None:
    return None if device == "none" else device


def hpz(problem: Problem, layout: Layout) -> int | None:
    """Ranks of one secondary copy of the weights."""
    return layout.zero_plus.hpz if layout.zero_plus.hpz > 1 else None


def quantized_weights(problem: Problem, layout: Layout) -> bool | None:
    """Gather weights in 8 bit."""
    return layout.zero_plus.quantized_weights or None


def quantized_gradients(problem: Problem, layout: Layout) -> bool | None:
    """Reduce gradients in 4 bit."""
    return layout.zero_plus.quantized_gradients or None


def _on_nvme(layout: Layout) -> bool:
    return "nvme" in (layout.offload.optimizer, layout.offload.parameters)


def aio_block(problem: Problem, layout: Layout) -> int | None:
    """Bytes of one request to the NVMe."""
    return AIO_BLOCK_BYTES if _on_nvme(layout) else None


def aio_depth(problem: Problem, layout: Layout) -> int | None:
    """Requests in flight."""
    return AIO_QUEUE_DEPTH if _on_nvme(layout) else None


def aio_threads(problem: Problem, layout: Layout) -> int | None:
    """Threads that submit them."""
    return AIO_THREADS if _on_nvme(layout) else None


def autotp(problem: Problem, layout: Layout) -> int | None:
    """Tensor-parallel ranks that DeepSpeed itself sets up."""
    return layout.tp if uses_autotp(problem, layout) else None


def sequence_ranks(problem: Problem, layout: Layout) -> int | None:
    """Ulysses: ranks that share a sequence."""
    return layout.cp if layout.cp > 1 else None


def data_ranks(problem: Problem, layout: Layout) -> int | None:
    """Beside ``sequence_parallel_size``: without it DeepSpeed builds no groups of sequences."""
    return layout.dp if layout.cp > 1 else None


def pipeline_recompute(problem: Problem, layout: Layout) -> int | None:
    """Layers of a block that the pipeline's stages recompute."""
    if layout.pp == 1 or layout.recompute.granularity == "none":
        return None
    return layout.recompute.layers or 1


def plain_recompute(problem: Problem, layout: Layout) -> bool | None:
    """The section that a program hands to ``deepspeed.checkpointing``: whole inputs are kept.

    Models of transformers, which Accelerate trains, recompute by torch's own way instead.
    """
    if layout.pp > 1 or layout.recompute.granularity == "none" or front_of(problem) == "accelerate":
        return None
    return False
