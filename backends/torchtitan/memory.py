"""Memory model of torchtitan's trainer."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.torch.memory import fsdp2_memory
from parc.compiler.ir import ProgramMemory


def torchtitan_memory() -> ProgramMemory:
    """Return the memory model of torchtitan's trainer without compilation.

    Compared with ``fsdp2_memory``, mainly the loss differs: it processes an eighth of the sequence
    at a time, copies the hidden states in parts, and sums their gradients in fp32. The output
    projection has 16-bit weights, a 16-bit gradient and an fp32 sum of gradients
    (components/loss.py, ChunkedLossWrapper).
    """
    return replace(
        fsdp2_memory(),
        name="torchtitan",
        activation_copies=1.0,
        last_product=True,
        fused_projection=True,
        keeps_reduced=True,
        loss_parts=8,
        head_input_bytes=10.0,
        head_unit_bytes=8.0,
    )
