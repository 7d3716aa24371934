"""Functions that compute values of fsdp/config.json; fields.yaml refers to them by name."""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard_sizes
from parc.compiler.ir import Layout, Problem


def wrapper_name(problem: Problem, layout: Layout) -> str:
    """Return the wrapper that the emitted code applies to the model: "ddp", "fsdp" or "hsdp"."""
    replicate, _ = replicate_and_shard_sizes(layout)
    # DDP cannot wrap the DTensor parameters of tensor parallelism, so tp > 1 uses fully_shard even
    # without sharding.
    if layout.zero_stage == 0 and layout.tp == 1:
        return "ddp"
    return "hsdp" if replicate > 1 else "fsdp"


def reshard_after_forward(problem: Problem, layout: Layout) -> bool:
    """Return True if FSDP2 frees gathered weights after each forward pass (ZeRO-3).

    Return False if the weights stay gathered until the backward pass.
    """
    return layout.zero_stage == 3
