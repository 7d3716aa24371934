"""Layers of linear attention and Mamba in a serving step: seconds beside their projections.

A decoding request reads and writes its state in every such layer, whatever its context; prompts run
in chunks, as in training (``recurrence.py``), with the rates of serving kernels. Which engine rows
that was held against is said in docs/cost-model.md.
"""

from __future__ import annotations

from parc.compiler.cost.counts.recurrent_state import state_bytes
from parc.compiler.cost.kernels.recurrence import recurrence
from parc.compiler.cost.serving.deployment import Deployment

RECURRENT_KERNELS = 6
"""Norm, projection in (the narrow second one of linear attention runs beside it), convolution,
recurrence, gated norm, projection out."""


def recurrent_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """One layer: states of ``decode`` requests, chunks of ``prefill`` prompt tokens."""
    model, layout, rate = deployment.model, deployment.layout, deployment.memory_rate
    state = state_bytes(model, deployment.setup.engine, layout.tp)
    seconds = 2 * decode * state / rate
    kinds = (kind for kind in model.kinds if kind.mixer in ("linear", "mamba"))
    part = next((found for kind in kinds if (found := recurrence(model, kind))), None)
    if part is None or not prefill:
        return seconds
    tokens = prefill / layout.tp
    moved = part.scanned_bytes + part.streamed_bytes
    return seconds + tokens * (part.flops / deployment.attention_rate + moved / rate)
