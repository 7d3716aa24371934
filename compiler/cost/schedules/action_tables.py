"""Action tables of the pipeline schedules.

GPipe, 1F1B and interleaved 1F1B.

Sources: GPipe, arXiv:1811.06965, section 2.3; 1F1B and interleaving, Narayanan et al. 2021
(arXiv:2104.04473), section 2.2. The order with groups of micro-batches is that of Megatron-Core
(pipeline_parallel/schedules.py, get_schedule_table and get_pp_rank_microbatches).

Zero-bubble schedules, which split the backward pass in two.

Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv:2401.10241), sections 2 and 6; the
tables are those of torch.distributed.pipelining (InterleavedZeroBubble, ZBVZeroBubble).

DualPipe and DualPipeV, which overlap forwards with backwards.

Sources: DeepSeek-V3 report (arXiv:2412.19437), section 3.2.1, and the program in
github.com/deepseek-ai/DualPipe. The table of DualPipeV equals that of
torch.distributed.pipelining. A rank of DualPipe runs the program of DualPipeV on half the ranks,
with the second copy of the model in place of the second stage.
"""

from __future__ import annotations

from collections import deque
from itertools import chain

from parc.compiler.cost.schedules.formulas import interleaved_warmup
from parc.compiler.cost.schedules.table import (
    Action,
    Computation,
    Pair,
    PipelineShape,
    RankActions,
    Table,
    loop_owners,
    v_owners,
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


def dualpipe_v(shape: PipelineShape) -> Table:
    """Return the table of DualPipeV: two stages per rank in V form; requires m >= 2p."""
    p = shape.ranks
    batches = range(shape.micro_batches)
    rows = (
        _RankProgram(((rank, batches), (2 * p - 1 - rank, batches)), p - 1 - rank).actions(rank)
        for rank in range(p)
    )
    return Table(tuple(rows), v_owners(p), 2 * p)


def dualpipe(shape: PipelineShape) -> Table:
    """Return the table of DualPipe; requires even p, even m, and m >= 2p.

    Two copies of the model are fed from both ends. Stage s of the second copy has number p + s, is
    on rank p - 1 - s, and processes the second half of the micro-batches.
    """
    p, half = shape.ranks, shape.micro_batches // 2
    down, up = range(half), range(half, 2 * half)
    rows = []
    for rank in range(p):
        ends = ((rank, down), (2 * p - 1 - rank, up))
        near, far = ends if rank < p // 2 else (ends[1], ends[0])
        depth = min(rank, p - 1 - rank)
        rows.append(_RankProgram((near, far), p // 2 - 1 - depth).actions(depth))
    return Table(tuple(rows), v_owners(p), p)


class _RankProgram:
    """DualPipe's eight steps on one rank."""

    def __init__(self, lanes: tuple[tuple[int, range], tuple[int, range]], above: int) -> None:
        """Start an empty program.

        ``lanes`` are the two stages of the rank with their micro-batches; ``above`` is the number
        of ranks between this rank and the rank at which both lanes meet.
        """
        self.lanes = lanes
        self.above = above
        self.items: list[Action | Pair] = []
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self.weights: deque[Action] = deque()

    def actions(self, depth: int) -> RankActions:
        """Return all actions of the rank ``depth`` ranks behind the entry of micro-batches."""
        self._warm_up(depth)
        self._overlap(depth)
        self._cool_down(depth)
        return tuple(self.items)

    def _warm_up(self, depth: int) -> None:
        """Append F0, then F0 F1, then I1 W1 F1."""
        for _ in range(2 * self.above):
            self.items.append(self._forward(0))
        for _ in range(depth + 1):
            self.items += [self._forward(0), self._forward(1)]
        for _ in range(self.above):
            self._split(1)
            self.items += [self.weights.popleft(), self._forward(1)]

    def _overlap(self, depth: int) -> None:
        """Append pairs F0 B1 and F1 B0 until the forwards end.

        The rank at which the lanes meet runs its first F0 and B1 one after the other: DualPipe's
        program does so to shorten the bubble (dualpipe.py, step 4).
        """
        steady = len(self.lanes[0][1]) - 2 * (self.above + depth + 1) + depth + 1
        for k in range(steady):
            together = Pair(self._forward(0), self._backward(1))
            self.items += together if k == 0 and self.above == 0 else [together]
            self.items.append(Pair(self._forward(1), self._backward(0)))
        for _ in range(self.above):
            self.items.append(self._backward(1))
            self.items.append(Pair(self._forward(1), self._backward(0)))

    def _cool_down(self, depth: int) -> None:
        """Append rounds of B1 B0, the later half split into I and W, then the delayed W."""
        split_from = depth + 1  # of the 2 (depth + 1) backwards, the second half is split
        for k in range(2 * (depth + 1)):
            lane = 1 - k % 2
            if k >= split_from:
                self._split(lane)
            else:
                self.items.append(self._backward(lane))
        for _ in range(self.above):
            self.items.append(self.weights.popleft())
            self._split(0)
        self.items += self.weights

    def _forward(self, lane: int) -> Action:
        return self._next(lane, "F", self.forwards)

    def _backward(self, lane: int) -> Action:
        return self._next(lane, "B", self.backwards)

    def _split(self, lane: int) -> None:
        """Append the gradient of the input and queue the gradient of the weights."""
        gradient = self._next(lane, "I", self.backwards)
        self.items.append(gradient)
        self.weights.append(Action(gradient.stage, "W", gradient.micro_batch))

    def _next(self, lane: int, computation: Computation, count: list[int]) -> Action:
        stage, batches = self.lanes[lane]
        count[lane] += 1
        return Action(stage, computation, batches[count[lane] - 1])
