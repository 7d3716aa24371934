"""Seconds of linear attention and Mamba in a serving step, without their projections.

A decoding request reads and writes its state in each such layer, independent of its context.
Prompts run in chunks as in training (``cost/kernels/recurrence.py``), at the rates of serving
kernels. docs/cost-model.md lists the engine measurements against which this was checked.
"""

from __future__ import annotations

from parc.compiler.cost.counts.cache import state_bytes
from parc.compiler.cost.kernels.recurrence import recurrence
from parc.compiler.cost.serving.deployment import Deployment

RECURRENT_KERNELS = 6
"""Kernels per layer: norm, input projection (the narrow second one of linear attention runs in
parallel), convolution, recurrence, gated norm, output projection."""


def recurrent_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """Return the seconds of one layer for ``decode`` requests and ``prefill`` prompt tokens."""
    model, layout, rate = deployment.model, deployment.layout, deployment.memory_rate
    state = state_bytes(model, deployment.engine, layout.tp)
    seconds = 2 * decode * state / rate
    kinds = (kind for kind in model.kinds if kind.mixer in ("linear", "mamba"))
    part = next((found for kind in kinds if (found := recurrence(model, kind))), None)
    if part is None or not prefill:
        return seconds
    tokens = prefill / layout.tp
    moved = part.scanned_bytes + part.streamed_bytes
    return seconds + tokens * (part.flops / deployment.attention_rate + moved / rate)
