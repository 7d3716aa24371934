"""Memory model of torchtitan's trainer."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.torch.memory import fsdp2
from parc.compiler.ir import ProgramMemory


def torchtitan() -> ProgramMemory:
    """Return torchtitan, uncompiled; its loss computes an eighth of the sequence at a time.

    The hidden states are copied into parts and their gradient is added up in fp32; the output
    projection has 16-bit weights, a 16-bit gradient and its fp32 sum (components/loss.py,
    ChunkedLossWrapper).
    """
    return replace(
        fsdp2(),
        name="torchtitan",
        activation_copies=1.0,
        last_product=True,
        fused_projection=True,
        keeps_reduced=True,
        loss_parts=8,
        head_input_bytes=10.0,
        head_unit_bytes=8.0,
    )
