"""Estimates of the bubble and of the chunks in flight of a pipeline schedule, for the search.

They use the closed formulas of ``formulas.py``, which tests compare with the action tables.
"""

from __future__ import annotations

from functools import cache, lru_cache

from parc.compiler.cost.schedules.action_tables import backward_order, forward_order
from parc.compiler.cost.schedules.formulas import (
    EqualStages,
    chunks_in_flight,
    interleaved_warmup_forwards,
)
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageSeconds
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.ir import Schedule

FULL_BUBBLE: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved")
"""Schedules in which a rank is idle for p - 1 forwards and p - 1 backwards of a chunk, with p
ranks."""
MAX_GROUPS = 3
"""Number of groups of micro-batches that are simulated to find the peak number of layers in flight.
More groups have the same peak, because the steady state repeats; tests compare the result with that
of longer steps."""


@cache
def bubble_relative_to_1f1b(schedule: Schedule, pp: int, repeated: bool) -> float:
    """Return the idle time of a pipeline rank, divided by that of a rank under 1F1B.

    The ratio is 1 for GPipe, 1F1B and interleaving, and smaller for zero-bubble schedules. It
    applies to steps of at least 2 ``pp`` micro-batches. ``repeated`` is True if the backward pass
    recomputes the forward pass of the layers.
    """
    # Zero-bubble schedules fill part of the bubble with weight gradients. Forward, input gradient
    # and weight gradient are assumed to take equally long.
    if schedule in FULL_BUBBLE or pp == 1:
        return 1.0
    # Relative times suffice, because the result is a ratio.
    stage = StageSeconds(1.0, 2.0 if repeated else 1.0, 1.0)
    shape = PipelineShape(pp, 2 * pp, 2 if schedule in ("zb-v", "dualpipe-v") else 1)
    seconds = SCHEDULES[schedule].makespan_seconds(shape, EqualStages(stage))
    # All ranks work equally long; the remaining time of the step is idle.
    work = shape.micro_batches * shape.chunks * stage.total
    return (seconds - work) / ((pp - 1) * stage.total)


def peak_chunks_in_flight(schedule: Schedule, stage: int, shape: PipelineShape) -> int:
    """Return the peak number of chunks whose activations pipeline rank ``stage`` stores.

    Zero-bubble schedules store the activations of a chunk until its weight gradient is computed.
    For ZB-V the result is an upper bound, because the last ranks store fewer chunks in steps of few
    micro-batches.
    """
    if schedule in ("1f1b", "interleaved"):
        return chunks_in_flight(stage, shape.ranks, shape.chunks, shape.micro_batches)
    if schedule == "zb-v":
        return min(2 * shape.micro_batches, 2 * shape.ranks)
    peak = SCHEDULES[schedule].in_flight(shape, stage)
    # A rank cannot store more than all chunks of the step, which short steps would exceed.
    return min(peak, shape.micro_batches * shape.chunks)


def micro_batches_in_flight(
    schedule: Schedule, stage: int, shape: PipelineShape, chunks: tuple[int, ...] = ()
) -> float:
    """Return the peak number of micro-batches whose activations pipeline rank ``stage`` stores.

    The number can be a fraction: a chunk with a third of the layers of the rank adds a third of a
    micro-batch. ``chunks`` contains the number of layers of each chunk of the rank, or is empty if
    all chunks have equal length. Only 1F1B and interleaving take ``chunks`` into account.
    """
    if schedule in ("1f1b", "interleaved"):
        return interleaved_micro_batches_in_flight(
            stage, shape.ranks, shape.chunks, shape.micro_batches, chunks
        )
    return peak_chunks_in_flight(schedule, stage, shape) / shape.chunks


def interleaved_micro_batches_in_flight(
    stage: int, pp: int, vpp: int, micro_batches: int, chunks: tuple[int, ...] = ()
) -> float:
    """Return the peak number of micro-batches whose activations an interleaved 1F1B rank stores.

    ``stage`` is the pipeline rank and ``vpp`` the number of chunks per rank; with one chunk, the
    schedule is plain 1F1B. ``chunks`` contains the number of layers of each chunk of the rank, or
    is empty if all chunks have equal length.
    """
    if vpp == 1 or not sum(chunks):
        return chunks_in_flight(stage, pp, vpp, micro_batches) / vpp
    return _peak_layers_in_flight(stage, pp, min(micro_batches, MAX_GROUPS * pp), chunks) / sum(
        chunks
    )


@lru_cache(maxsize=4096)
def _peak_layers_in_flight(stage: int, pp: int, micro_batches: int, chunks: tuple[int, ...]) -> int:
    """Return the peak number of layers whose activations a rank stores at the same time.

    The order of chunks is that of Megatron's interleaved schedule. ``chunks`` contains the number
    of layers of each chunk of the rank.
    """
    # If chunks differ, their order matters: the first chunks of a rank are stored longest, and a
    # last chunk that contains only the loss stores nothing.
    shape = PipelineShape(pp, micro_batches, len(chunks))
    forwards = [chunks[chunk] for chunk, _ in forward_order(shape)]
    backwards = [chunks[chunk] for chunk, _ in backward_order(shape)]
    warmup = interleaved_warmup_forwards(shape, stage)
    stored = peak = sum(forwards[:warmup])
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        peak = max(peak, stored + forward)
        stored += forward - backward
    return peak
