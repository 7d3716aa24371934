"""Action tables of DualPipe and DualPipeV: forwards and backwards that overlap each other.

Sources: DeepSeek-V3 report (arXiv:2412.19437) section 3.2.1 and the program in
github.com/deepseek-ai/DualPipe; DualPipeV equals torch.distributed.pipelining's table. A rank of
DualPipe runs the program of DualPipeV on half the ranks, with the second copy of the model in
the place of the second stage.
"""

from __future__ import annotations

from collections import deque

from parc.compiler.cost.schedules.table import Action, Kind, Pair, Row, Shape, Table, v_owners


def dualpipe_v(shape: Shape) -> Table:
    """Two stages a rank in V form; needs m >= 2p."""
    p = shape.ranks
    batches = range(shape.micro_batches)
    rows = (
        _Program(((rank, batches), (2 * p - 1 - rank, batches)), p - 1 - rank).row(rank)
        for rank in range(p)
    )
    return Table(tuple(rows), v_owners(p), 2 * p)


def dualpipe(shape: Shape) -> Table:
    """Two copies of the model, fed from both ends; needs p and m even and m >= 2p.

    Stage s of the second copy is number p + s and sits on rank p - 1 - s; it sees the second
    half of the micro-batches.
    """
    p, half = shape.ranks, shape.micro_batches // 2
    down, up = range(half), range(half, 2 * half)
    rows = []
    for rank in range(p):
        ends = ((rank, down), (2 * p - 1 - rank, up))
        near, far = ends if rank < p // 2 else (ends[1], ends[0])
        depth = min(rank, p - 1 - rank)
        rows.append(_Program((near, far), p // 2 - 1 - depth).row(depth))
    return Table(tuple(rows), v_owners(p), p)


class _Program:
    """The eight steps of one rank; ``lanes`` are its two stages with their micro-batches.

    ``above`` is the number of ranks between this one and the turn, where both lanes meet.
    """

    def __init__(self, lanes: tuple[tuple[int, range], tuple[int, range]], above: int) -> None:
        self.lanes = lanes
        self.above = above
        self.items: list[Action | Pair] = []
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self.weights: deque[Action] = deque()

    def row(self, depth: int) -> Row:
        """All steps of the rank that is ``depth`` ranks from where micro-batches enter."""
        self._warm_up(depth)
        self._overlap(depth)
        self._cool_down(depth)
        return tuple(self.items)

    def _warm_up(self, depth: int) -> None:
        """F0, then F0 F1, then I1 W1 F1."""
        for _ in range(2 * self.above):
            self.items.append(self._forward(0))
        for _ in range(depth + 1):
            self.items += [self._forward(0), self._forward(1)]
        for _ in range(self.above):
            self._split(1)
            self.items += [self.weights.popleft(), self._forward(1)]

    def _overlap(self, depth: int) -> None:
        """F0 with B1, F1 with B0, until the forwards end; the turn starts without overlap."""
        steady = len(self.lanes[0][1]) - 2 * (self.above + depth + 1) + depth + 1
        for k in range(steady):
            together = Pair(self._forward(0), self._backward(1))
            self.items += together if k == 0 and self.above == 0 else [together]
            self.items.append(Pair(self._forward(1), self._backward(0)))
        for _ in range(self.above):
            self.items.append(self._backward(1))
            self.items.append(Pair(self._forward(1), self._backward(0)))

    def _cool_down(self, depth: int) -> None:
        """B1 B0, the later half of them split, their weight gradients last."""
        split_from = depth + 1  # halves of the depth + 1 rounds of B1 B0
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
        """The input's gradient now, the weights' gradient later."""
        gradient = self._next(lane, "I", self.backwards)
        self.items.append(gradient)
        self.weights.append(Action(gradient.stage, "W", gradient.micro_batch))

    def _next(self, lane: int, kind: Kind, count: list[int]) -> Action:
        stage, batches = self.lanes[lane]
        count[lane] += 1
        return Action(stage, kind, batches[count[lane] - 1])
