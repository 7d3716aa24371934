"""Action tables of the zero-bubble schedules, which split the backward pass in two.

Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv:2401.10241), sections 2 and 6; the
tables are those of torch.distributed.pipelining (InterleavedZeroBubble, ZBVZeroBubble).
"""

from __future__ import annotations

from itertools import chain

from parc.compiler.cost.schedules.orders import backward_visits, forward_visits
from parc.compiler.cost.schedules.table import (
    Action,
    Computation,
    PipelineShape,
    RankActions,
    Table,
    loop_owners,
    v_owners,
)


def zb_h1(shape: PipelineShape) -> Table:
    """Return the table of schedule H1, also called ZB1P.

    It needs the memory of 1F1B and fills the cool-down with weight gradients. Warm-up is
    (v - 1) g + p - 1 - r forwards; rank r delays its weight gradients by r steps.
    """
    order, back = forward_visits(shape), backward_visits(shape)
    p = shape.ranks
    rows = []
    for rank in range(p):
        forwards = [Action(chunk * p + rank, "F", i) for chunk, i in order]
        inputs = [Action(chunk * p + rank, "I", i) for chunk, i in back]
        weights = [Action(chunk * p + rank, "W", i) for chunk, i in back]
        warmup = min((shape.chunks - 1) * shape.group_size + p - 1 - rank, len(forwards))
        steady = _delay_weight_gradients(forwards[warmup:], inputs, weights, rank)
        rows.append((*forwards[:warmup], *steady))
    return Table(tuple(rows), loop_owners(p, shape.chunks), p * shape.chunks)


def _delay_weight_gradients(
    forwards: list[Action], inputs: list[Action], weights: list[Action], delay: int
) -> RankActions:
    """Return the steps F I W, with each W ``delay`` steps after its I.

    Steps have no F once the forwards end; the remaining W follow the last step.
    """
    steps = []
    for k, gradient in enumerate(inputs):
        forward = forwards[k : k + 1]
        weight = weights[k - delay : k - delay + 1] if k >= delay else []
        steps.append((*forward, gradient, *weight))
    remaining = weights[max(len(inputs) - delay, 0) :]
    return (*chain.from_iterable(steps), *remaining)


def zb_v(shape: PipelineShape) -> Table:
    """Return the table of ZB-V: two stages per rank in V form, the memory of 1F1B.

    There is no bubble if F = I = W. The order is defined for at least 2p - 1 micro-batches; for
    fewer, the actions of the missing ones are removed.
    """
    rows = (_zb_v_row(shape, rank) for rank in range(shape.ranks))
    return Table(tuple(rows), v_owners(shape.ranks), 2 * shape.ranks)


def _zb_v_row(shape: PipelineShape, rank: int) -> RankActions:
    """Return warm-up, steady state and cool-down of one rank."""
    p = shape.ranks
    m = max(2 * p - 1, shape.micro_batches)
    line = _ActionList(rank, 2 * p - 1 - rank)
    for _ in range(2 * (p - rank) - 1):
        line.add("F0")
    for _ in range(rank):
        line.add("F1", "F0")
    for _ in range(p - rank):
        line.add("F1", "I1", "W1")
    while line.count["F1"] < m:
        if line.count["F0"] < m:
            line.add("F0")
        line.add("I0", "W0", "F1", "I1", "W1")
    for _ in range(rank):
        line.add("I0", "I1")
    for _ in range(p - rank):
        line.add("I0", "W0")
    for word in ("W1", "W0"):
        line.add(*[word] * (m - line.count[word]))
    return tuple(item for item in line.actions if item.micro_batch < shape.micro_batches)


class _ActionList:
    """Actions of one rank so far, and the next micro-batch per computation and stage."""

    def __init__(self, first: int, second: int) -> None:
        """Start an empty list; ``add`` calls the stages ``first`` and ``second`` 0 and 1."""
        self.stages = (first, second)
        self.count = {computation + index: 0 for computation in "FIW" for index in "01"}
        self.actions: list[Action] = []

    def add(self, *words: str) -> None:
        """Append the next micro-batch of each word, such as ``F0``, ``I1`` or ``W0``."""
        computations: dict[str, Computation] = {"F": "F", "I": "I", "W": "W"}
        for word in words:
            stage = self.stages[int(word[1])]
            self.actions.append(Action(stage, computations[word[0]], self.count[word]))
            self.count[word] += 1
