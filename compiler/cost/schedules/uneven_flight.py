"""Micro-batches in flight on a rank whose virtual stages hold unequal numbers of layers.

``schedules.chunks_in_flight`` counts chunks; where they differ, it matters which of them wait. The
order is that of Megatron's interleaved schedule (``schedule_orders``), so the peak is read off it:
the first chunks of a rank wait longest, an empty last one (the loss alone) holds nothing.
"""

from __future__ import annotations

from functools import lru_cache

from parc.compiler.cost.schedules.in_flight import chunks_in_flight, interleaved_warmup
from parc.compiler.cost.schedules.orders import backward_visits, forward_visits
from parc.compiler.cost.schedules.shares import held_chunks
from parc.compiler.cost.schedules.table import Shape
from parc.compiler.ir import Schedule

ROUNDS = 3
"""Groups of micro-batches after which the steady state repeats itself."""


def held_batches(
    schedule: Schedule, stage: int, shape: Shape, chunks: tuple[int, ...] = ()
) -> float:
    """``batches_in_flight`` of any schedule; others than Megatron's take their chunks as equal."""
    if schedule in ("1f1b", "interleaved"):
        return batches_in_flight(stage, shape.ranks, shape.chunks, shape.micro_batches, chunks)
    return held_chunks(schedule, stage, shape) / shape.chunks


def batches_in_flight(
    stage: int, pp: int, vpp: int, micro_batches: int, chunks: tuple[int, ...] = ()
) -> float:
    """Whole micro-batches that a rank keeps at its peak; ``chunks``: layers of unequal chunks."""
    if vpp == 1 or not sum(chunks):
        return chunks_in_flight(stage, pp, vpp, micro_batches) / vpp
    return _layers_in_flight(stage, pp, min(micro_batches, ROUNDS * pp), chunks) / sum(chunks)


@lru_cache(maxsize=4096)
def _layers_in_flight(stage: int, pp: int, micro_batches: int, chunks: tuple[int, ...]) -> int:
    """Most layers whose activations wait at once."""
    shape = Shape(pp, micro_batches, len(chunks))
    forwards = [chunks[chunk] for chunk, _ in forward_visits(shape)]
    backwards = [chunks[chunk] for chunk, _ in backward_visits(shape)]
    warmup = interleaved_warmup(shape, stage)
    held = most = sum(forwards[:warmup])
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        most = max(most, held + forward)
        held += forward - backward
    return most
