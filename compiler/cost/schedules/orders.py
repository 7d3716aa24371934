"""Action tables of GPipe, 1F1B and interleaved 1F1B.

Sources: GPipe, arXiv:1811.06965, section 2.3; 1F1B and interleaving, Narayanan et al. 2021
(arXiv:2104.04473), section 2.2. The order with groups of micro-batches is that of Megatron-Core
(pipeline_parallel/schedules.py, get_schedule_table and get_pp_rank_microbatches).
"""

from __future__ import annotations

from itertools import chain

from parc.compiler.cost.schedules.formulas import interleaved_warmup
from parc.compiler.cost.schedules.table import (
    Action,
    PipelineShape,
    RankActions,
    Table,
    loop_owners,
)


def gpipe(shape: PipelineShape) -> Table:
    """Return the table of GPipe: all forwards, then all backwards in the same order."""
    batches = range(shape.micro_batches)
    rows = (
        tuple(Action(rank, "F", i) for i in batches) + tuple(Action(rank, "B", i) for i in batches)
        for rank in range(shape.ranks)
    )
    return Table(tuple(rows), loop_owners(shape.ranks, 1), shape.ranks)


def one_f_one_b(shape: PipelineShape) -> Table:
    """Return the table of 1F1B: p - 1 - r warm-up forwards, then forward and backward in turn."""
    rows = []
    for rank in range(shape.ranks):
        batches = range(shape.micro_batches)
        forwards = [Action(rank, "F", i) for i in batches]
        backwards = [Action(rank, "B", i) for i in batches]
        rows.append(alternate(forwards, backwards, shape.ranks - 1 - rank))
    return Table(tuple(rows), loop_owners(shape.ranks, 1), shape.ranks)


def interleaved(shape: PipelineShape) -> Table:
    """Return the table of interleaved 1F1B with ``shape.chunks`` chunks per rank.

    A group of ``shape.group_size`` micro-batches passes all chunks before the next group starts.
    """
    order, back = forward_visits(shape), backward_visits(shape)
    p = shape.ranks
    rows = []
    for rank in range(p):
        forwards = [Action(chunk * p + rank, "F", i) for chunk, i in order]
        backwards = [Action(chunk * p + rank, "B", i) for chunk, i in back]
        rows.append(alternate(forwards, backwards, interleaved_warmup(shape, rank)))
    return Table(tuple(rows), loop_owners(p, shape.chunks), p * shape.chunks)


def forward_visits(shape: PipelineShape) -> list[tuple[int, int]]:
    """Return the (chunk, micro-batch) pairs of a rank in the order of its forwards."""
    return [
        (chunk, micro_batch)
        for first in range(0, shape.micro_batches, shape.group_size)
        for chunk in range(shape.chunks)
        for micro_batch in range(first, min(first + shape.group_size, shape.micro_batches))
    ]


def backward_visits(shape: PipelineShape) -> list[tuple[int, int]]:
    """Return the (chunk, micro-batch) pairs in the order of the backwards.

    The order is that of the forwards, but each group passes the chunks from last to first.
    """
    return [(shape.chunks - 1 - chunk, i) for chunk, i in forward_visits(shape)]


def alternate(forwards: list[Action], backwards: list[Action], warmup: int) -> RankActions:
    """Return ``warmup`` forwards, then forward and backward in turn, then the last backwards."""
    steady = max(len(forwards) - warmup, 0)
    pairs = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return (*forwards[:warmup], *pairs, *backwards[steady:])
