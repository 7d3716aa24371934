"""Action tables of DualPipe and DualPipeV, which overlap forwards with backwards.

Sources: DeepSeek-V3 report (arXiv:2412.19437), section 3.2.1, and the program in
github.com/deepseek-ai/DualPipe. The table of DualPipeV equals that of
torch.distributed.pipelining. A rank of DualPipe runs the program of DualPipeV on half the ranks,
with the second copy of the model in place of the second stage.
"""

from __future__ import annotations

from collections import deque

from parc.compiler.cost.schedules.table import (
    Action,
    Computation,
    Pair,
    PipelineShape,
    RankActions,
    Table,
    v_owners,
)


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
