"""Action tables of the zero-bubble schedules, which split the backward pass in two.

Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv:2401.10241), sections 2 and 6; the
tables are those of torch.distributed.pipelining (InterleavedZeroBubble, ZBVZeroBubble).
"""

from __future__ import annotations

from itertools import chain

from parc.compiler.cost.schedules.orders import backward_visits, forward_visits
from parc.compiler.cost.schedules.table import (
    Action,
    Kind,
    Row,
    Shape,
    Table,
    loop_owners,
    v_owners,
)


def zb_h1(shape: Shape) -> Table:
    """Hand-made schedule H1, also called ZB1P: 1F1B's memory, weight gradients fill the tail.

    Warm-up is (v - 1) g + p - 1 - r forwards; rank r holds back r weight gradients.
    """
    order, back = forward_visits(shape), backward_visits(shape)
    p = shape.ranks
    rows = []
    for rank in range(p):
        forwards = [Action(chunk * p + rank, "F", i) for chunk, i in order]
        inputs = [Action(chunk * p + rank, "I", i) for chunk, i in back]
        weights = [Action(chunk * p + rank, "W", i) for chunk, i in back]
        warmup = min((shape.chunks - 1) * shape.run + p - 1 - rank, len(forwards))
        steady = _with_weights(forwards[warmup:], inputs, weights, rank)
        rows.append((*forwards[:warmup], *steady))
    return Table(tuple(rows), loop_owners(p, shape.chunks), p * shape.chunks)


def _with_weights(
    forwards: list[Action], inputs: list[Action], weights: list[Action], held: int
) -> Row:
    """F I a step while forwards last, then I; from step ``held`` on each adds the oldest W."""
    steps = []
    for k, gradient in enumerate(inputs):
        forward = forwards[k : k + 1]
        weight = weights[k - held : k - held + 1] if k >= held else []
        steps.append((*forward, gradient, *weight))
    left = weights[max(len(inputs) - held, 0) :]
    return (*chain.from_iterable(steps), *left)


def zb_v(shape: Shape) -> Table:
    """Two stages a rank in V form: 1F1B's memory, no bubble when F = I = W.

    The order is made for at least 2p - 1 micro-batches; with fewer the missing ones drop out.
    """
    rows = (_zb_v_row(shape, rank) for rank in range(shape.ranks))
    return Table(tuple(rows), v_owners(shape.ranks), 2 * shape.ranks)


def _zb_v_row(shape: Shape, rank: int) -> Row:
    """Warm-up, steady state and cool-down of one rank."""
    p = shape.ranks
    m = max(2 * p - 1, shape.micro_batches)
    line = Tally(rank, 2 * p - 1 - rank)
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


class Tally:
    """Writes the actions of one rank, and counts the micro-batches of each kind and stage."""

    def __init__(self, first: int, second: int) -> None:
        """``first`` and ``second``: stages of the rank, called 0 and 1 in the words of ``add``."""
        self.stages = (first, second)
        self.count = {kind + place: 0 for kind in "FIW" for place in "01"}
        self.actions: list[Action] = []

    def add(self, *words: str) -> None:
        """Append the next micro-batch of each word: ``F0``, ``I1``, ``W0``."""
        kinds: dict[str, Kind] = {"F": "F", "I": "I", "W": "W"}
        for word in words:
            stage = self.stages[int(word[1])]
            self.actions.append(Action(stage, kinds[word[0]], self.count[word]))
            self.count[word] += 1
