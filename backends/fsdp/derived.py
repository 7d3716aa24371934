"""Computed values of fsdp/config.json; fields.yaml refers to the functions by name."""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard
from parc.compiler.ir import Layout, Problem


def strategy(problem: Problem, layout: Layout) -> str:
    """Return ddp, fsdp or hsdp, the wrapper that ``apply`` uses; tp > 1 always uses FSDP2."""
    replicate, _ = replicate_and_shard(layout)
    if layout.zero_stage == 0 and layout.tp == 1:
        return "ddp"
    return "hsdp" if replicate > 1 else "fsdp"


def reshard_after_forward(problem: Problem, layout: Layout) -> bool:
    """Return True for ZeRO-3, which frees gathered weights after the forward pass."""
    return layout.zero_stage == 3


def checkpointing(problem: Problem, layout: Layout) -> str:
    """Return ``"full"`` if the backward pass recomputes every layer, else ``"none"``."""
    return layout.recompute.granularity


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Return the format of weights and activations in the forward and backward pass."""
    return problem.job.precision
