"""Values of fsdp/config.json that are computed; one function a name of fields.yaml."""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard
from parc.compiler.ir import Layout, Problem


def strategy(problem: Problem, layout: Layout) -> str:
    """ddp, fsdp or hsdp: what ``apply`` wraps the model in."""
    replicate, _ = replicate_and_shard(layout)
    if layout.zero_stage == 0 and layout.tp == 1:
        return "ddp"
    return "hsdp" if replicate > 1 else "fsdp"


def reshard_after_forward(problem: Problem, layout: Layout) -> bool:
    """Whether weights are let go after the forward pass: ZeRO-3; at stage 2 they stay."""
    return layout.zero_stage == 3


def checkpointing(problem: Problem, layout: Layout) -> str:
    """none, or full: every layer runs forward again in the backward pass."""
    return layout.recompute.granularity


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Format of weights and activations in forward and backward."""
    return problem.job.precision
