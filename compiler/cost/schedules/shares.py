"""What a pipeline schedule makes of equal stages: how much of them idles, how much is held.

Both by the closed forms of ``schedule_formulas`` and ``schedules``, which tests hold to the action
tables of the schedules.
"""

from __future__ import annotations

from functools import cache

from parc.compiler.cost.schedules.formulas import Even
from parc.compiler.cost.schedules.in_flight import chunks_in_flight
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageSeconds
from parc.compiler.cost.schedules.table import Shape
from parc.compiler.ir import Schedule

PLAIN: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved")
"""Schedules that idle (p - 1) forwards and backwards of a chunk."""


@cache
def idle_share(schedule: Schedule, pp: int, repeated: bool) -> float:
    """Idle time of a pipeline rank over (p - 1) forwards and backwards of a chunk.

    1 for GPipe, 1F1B and interleaving. Zero-bubble schedules fill part of it with weight gradients:
    here forward, input gradient and weight gradient take equally long, and ``repeated`` layers run
    forward again before the input gradient. Holds from 2 p micro-batches on; with fewer these
    schedules idle more.
    """
    if schedule in PLAIN or pp == 1:
        return 1.0
    stage = StageSeconds(1.0, 2.0 if repeated else 1.0, 1.0)
    shape = Shape(pp, 2 * pp, 2 if schedule in ("zb-v", "dualpipe-v") else 1)
    seconds = SCHEDULES[schedule].makespan_seconds(shape, Even(stage))
    work = shape.micro_batches * shape.chunks * stage.total
    return (seconds - work) / ((pp - 1) * stage.total)


def held_chunks(schedule: Schedule, stage: int, shape: Shape) -> int:
    """Chunks whose activations a pipeline rank holds at most.

    Zero-bubble schedules hold a chunk until its weight gradient, on every rank alike; the last
    ranks of a short step hold fewer, which is left out (``schedules.zb_v_in_flight``).
    """
    if schedule in ("1f1b", "interleaved"):
        return chunks_in_flight(stage, shape.ranks, shape.chunks, shape.micro_batches)
    if schedule == "zb-v":
        return min(2 * shape.micro_batches, 2 * shape.ranks)
    held = SCHEDULES[schedule].in_flight(shape, stage)
    return min(held, shape.micro_batches * shape.chunks)
