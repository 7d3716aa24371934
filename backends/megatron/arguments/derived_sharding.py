"""Functions that compute flags of sharded data parallelism; None omits a flag."""

from __future__ import annotations

from parc.backends.megatron.capabilities import FSDP_STAGES, uses_fsdp
from parc.compiler.ir import Layout, Problem


def distributed_optimizer(problem: Problem, layout: Layout) -> bool:
    """Return True to use the distributed optimizer: ZeRO-1, and a part of Megatron-FSDP."""
    return layout.zero_stage > 0


def optimizer_copies(problem: Problem, layout: Layout) -> int | None:
    """Return the number of replicas of the sharded state; None for a single replica."""
    copies = layout.dp_replicate
    return copies if distributed_optimizer(problem, layout) and copies > 1 else None


def megatron_fsdp(problem: Problem, layout: Layout) -> bool:
    """Return True to shard gradients or weights, which only Megatron-FSDP can."""
    return uses_fsdp(layout)


def sharding_strategy(problem: Problem, layout: Layout) -> str | None:
    """Return the strategy of Megatron-FSDP; None without Megatron-FSDP.

    The default of the flag is "no_shard" in version 0.17, and "optim_grads_params" since 0.18.
    """
    return FSDP_STAGES.get(layout.zero_stage)


def shards_at_start(problem: Problem, layout: Layout) -> bool:
    """Return True to create the weights shard by shard.

    Otherwise each rank would first create all weights of its stage, which may not fit on the GPU.
    """
    return layout.zero_stage == 3


def main_gradient_format(problem: Problem, layout: Layout) -> str | None:
    """Return "fp32" if Megatron-FSDP accumulates and reduces gradients in fp32.

    None for the format of the weights, which is the default, and without Megatron-FSDP.
    """
    wide = problem.job.gradient_precision == "fp32" and problem.job.precision != "fp16"
    return "fp32" if wide and uses_fsdp(layout) else None


def separate_gradients(problem: Problem, layout: Layout) -> bool:
    """Return True if another kernel than the GEMM adds weight gradients to their sum.

    The fused addition to the buffers of Megatron-FSDP would need TransformerEngine 2.10.
    """
    return uses_fsdp(layout)


def checkpoint_format(problem: Problem, layout: Layout) -> str:
    """Return the format of checkpoints; Megatron-FSDP has its own one."""
    return "fsdp_dtensor" if uses_fsdp(layout) else "torch_dist"
