"""Action tables of the pipeline schedules: the order of forwards and backwards on every rank.

Sources of GPipe, 1F1B and interleaved 1F1B: GPipe, arXiv:1811.06965, section 2.3; Narayanan et al.
2021 (arXiv:2104.04473), section 2.2. The order with groups of micro-batches is that of
Megatron-Core (pipeline_parallel/schedules.py, get_schedule_table and get_pp_rank_microbatches).

Source of the zero-bubble schedules, which split the backward pass in two: Qi et al. 2024
(arXiv:2401.10241), sections 2 and 6. The tables are those of torch.distributed.pipelining
(InterleavedZeroBubble, ZBVZeroBubble).

Sources of DualPipe and DualPipeV, which overlap forwards with backwards: DeepSeek-V3 report
(arXiv:2412.19437), section 3.2.1, and the program in github.com/deepseek-ai/DualPipe. The table of
DualPipeV equals that of torch.distributed.pipelining. A rank of DualPipe runs the program of
DualPipeV on half the ranks, with the second copy of the model in place of the second stage.
"""

from __future__ import annotations

from collections import deque
from itertools import chain

from parc.compiler.cost.schedules.formulas import interleaved_warmup_forwards
from parc.compiler.cost.schedules.table import (
    Action,
    ActionTable,
    Computation,
    OverlappedPair,
    PipelineShape,
    RankActions,
    stage_ranks_in_loop,
    stage_ranks_in_v_form,
)


def gpipe_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of GPipe.

    Each rank runs all forwards, then all backwards in the same order.
    """
    batches = range(shape.micro_batches)
    rows = (
        tuple(Action(rank, "F", i) for i in batches) + tuple(Action(rank, "B", i) for i in batches)
        for rank in range(shape.ranks)
    )
    return ActionTable(tuple(rows), stage_ranks_in_loop(shape.ranks, 1), shape.ranks)


def one_f_one_b_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of 1F1B.

    After the warm-up forwards, each rank alternates between one forward and one backward. Rank r of
    p ranks has p - 1 - r warm-up forwards.
    """
    rows = []
    for rank in range(shape.ranks):
        batches = range(shape.micro_batches)
        forwards = [Action(rank, "F", i) for i in batches]
        backwards = [Action(rank, "B", i) for i in batches]
        rows.append(alternate_forward_backward(forwards, backwards, shape.ranks - 1 - rank))
    return ActionTable(tuple(rows), stage_ranks_in_loop(shape.ranks, 1), shape.ranks)


def interleaved_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of interleaved 1F1B with ``shape.chunks`` chunks per rank.

    A group of ``shape.group_size`` micro-batches passes all chunks before the next group starts.
    """
    order, back = forward_order(shape), backward_order(shape)
    p = shape.ranks
    rows = []
    for rank in range(p):
        forwards = [Action(chunk * p + rank, "F", i) for chunk, i in order]
        backwards = [Action(chunk * p + rank, "B", i) for chunk, i in back]
        rows.append(
            alternate_forward_backward(
                forwards, backwards, interleaved_warmup_forwards(shape, rank)
            )
        )
    return ActionTable(tuple(rows), stage_ranks_in_loop(p, shape.chunks), p * shape.chunks)


def forward_order(shape: PipelineShape) -> list[tuple[int, int]]:
    """Return (chunk, micro-batch) for each forward of a rank, in the order of execution.

    Each group of micro-batches passes the chunks of the rank from first to last.
    """
    return [
        (chunk, micro_batch)
        for first in range(0, shape.micro_batches, shape.group_size)
        for chunk in range(shape.chunks)
        for micro_batch in range(first, min(first + shape.group_size, shape.micro_batches))
    ]


def backward_order(shape: PipelineShape) -> list[tuple[int, int]]:
    """Return (chunk, micro-batch) for each backward of a rank, in the order of execution.

    The order is that of the forwards, except that each group of micro-batches passes the chunks of
    the rank from last to first.
    """
    return [(shape.chunks - 1 - chunk, i) for chunk, i in forward_order(shape)]


def alternate_forward_backward(
    forwards: list[Action], backwards: list[Action], warmup: int
) -> RankActions:
    """Return the actions of a rank that alternates between forwards and backwards after a warm-up.

    The result starts with ``warmup`` forwards and ends with the remaining backwards.
    """
    # Each steady step has one forward and one backward; the remaining backwards are the cool-down.
    steady = max(len(forwards) - warmup, 0)
    pairs = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return (*forwards[:warmup], *pairs, *backwards[steady:])


def zb_h1_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of schedule ZB-H1, also called ZB1P.

    ZB-H1 needs as much memory as 1F1B and fills the cool-down with weight gradients. With p ranks,
    v chunks per rank and g micro-batches per group, rank r has (v - 1) g + p - 1 - r warm-up
    forwards and delays each weight gradient by r steps.
    """
    order, back = forward_order(shape), backward_order(shape)
    p = shape.ranks
    rows = []
    for rank in range(p):
        forwards = [Action(chunk * p + rank, "F", i) for chunk, i in order]
        inputs = [Action(chunk * p + rank, "I", i) for chunk, i in back]
        weights = [Action(chunk * p + rank, "W", i) for chunk, i in back]
        # One forward per later rank; interleaved 1F1B has two (torch, InterleavedZeroBubble).
        warmup = min((shape.chunks - 1) * shape.group_size + p - 1 - rank, len(forwards))
        steady = _delay_weight_gradients(forwards[warmup:], inputs, weights, rank)
        rows.append((*forwards[:warmup], *steady))
    return ActionTable(tuple(rows), stage_ranks_in_loop(p, shape.chunks), p * shape.chunks)


def _delay_weight_gradients(
    forwards: list[Action], inputs: list[Action], weights: list[Action], delay: int
) -> RankActions:
    """Return the actions of a rank after the warm-up, with delayed weight gradients.

    Each step has a forward (as long as there are any), an input gradient and a weight gradient. The
    weight gradient of a micro-batch runs ``delay`` steps after the input gradient of that
    micro-batch; the remaining weight gradients follow the last step.
    """
    steps = []
    for k, gradient in enumerate(inputs):
        forward = forwards[k : k + 1]
        weight = weights[k - delay : k - delay + 1] if k >= delay else []
        steps.append((*forward, gradient, *weight))
    remaining = weights[max(len(inputs) - delay, 0) :]
    return (*chain.from_iterable(steps), *remaining)


def zb_v_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of ZB-V, which needs as much memory as 1F1B.

    Each rank has two stages; a micro-batch passes down the ranks and back up. For fewer than 2p - 1
    micro-batches on p ranks, the table is that of 2p - 1 micro-batches, without the actions of the
    micro-batches that do not exist.
    """
    rows = (_zb_v_actions_of_rank(shape, rank) for rank in range(shape.ranks))
    return ActionTable(tuple(rows), stage_ranks_in_v_form(shape.ranks), 2 * shape.ranks)


def _zb_v_actions_of_rank(shape: PipelineShape, rank: int) -> RankActions:
    """Return the actions of one rank in ZB-V, in order of execution."""
    p = shape.ranks
    # torch's ZBVZeroBubble pads short steps in the same way and drops the actions afterwards.
    m = max(2 * p - 1, shape.micro_batches)
    line = _ActionList(rank, 2 * p - 1 - rank)
    # Order of torch's ZBVZeroBubble; a word is a computation (F, I, W) and one of the rank's
    # stages.
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
    """Growing list of the actions of one rank that has two stages.

    For each stage and computation, the list counts which micro-batch is next.
    """

    def __init__(self, first: int, second: int) -> None:
        """Create an empty list for a rank that has the stages ``first`` and ``second``."""
        self.stages = (first, second)
        self.count = {computation + index: 0 for computation in "FIW" for index in "01"}
        self.actions: list[Action] = []

    def add(self, *words: str) -> None:
        """Append one action per word to the list.

        A word such as ``F0`` has a letter for the computation, F (forward), I (input gradient) or W
        (weight gradient), and a digit for the stage: 0 for the first stage of the rank, 1 for the
        second. The action is that of the next micro-batch.
        """
        computations: dict[str, Computation] = {"F": "F", "I": "I", "W": "W"}
        for word in words:
            stage = self.stages[int(word[1])]
            self.actions.append(Action(stage, computations[word[0]], self.count[word]))
            self.count[word] += 1


def dualpipe_v_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of DualPipeV.

    Each rank has two stages; a micro-batch passes down the ranks and back up. A step needs at least
    two micro-batches per rank.
    """
    p = shape.ranks
    batches = range(shape.micro_batches)
    rows = (
        _DualPipeRank(((rank, batches), (2 * p - 1 - rank, batches)), p - 1 - rank).actions(rank)
        for rank in range(p)
    )
    return ActionTable(tuple(rows), stage_ranks_in_v_form(p), 2 * p)


def dualpipe_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of DualPipe.

    There are two copies of the model, and micro-batches enter the two copies at opposite ends of
    the pipeline. With p ranks, stage s of the second copy has number p + s, is on rank p - 1 - s,
    and processes the second half of the micro-batches. The number of ranks and the number of
    micro-batches must be even, and there must be at least two micro-batches per rank.
    """
    p, half = shape.ranks, shape.micro_batches // 2
    # Each direction of the pipeline processes half of the micro-batches.
    down, up = range(half), range(half, 2 * half)
    rows = []
    for rank in range(p):
        ends = ((rank, down), (2 * p - 1 - rank, up))
        # Stage 0 of a rank has the direction whose micro-batches enter at the nearer end.
        near, far = ends if rank < p // 2 else (ends[1], ends[0])
        depth = min(rank, p - 1 - rank)
        rows.append(_DualPipeRank((near, far), p // 2 - 1 - depth).actions(depth))
    return ActionTable(tuple(rows), stage_ranks_in_v_form(p), p)


class _DualPipeRank:
    """Actions of one rank in DualPipe or DualPipeV."""

    def __init__(self, stages: tuple[tuple[int, range], tuple[int, range]], above: int) -> None:
        """Create an empty list of the actions of one rank.

        ``stages`` contains (stage, numbers of the micro-batches) for each of the two stages of the
        rank. ``above`` is the distance in ranks from this rank to the rank at which the two
        directions of the pipeline meet.
        """
        self.stages = stages
        self.above = above
        self.items: list[Action | OverlappedPair] = []
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self.weights: deque[Action] = deque()

    def actions(self, depth: int) -> RankActions:
        """Return all actions of the rank, in order of execution.

        ``depth`` is the distance in ranks from this rank to the nearest rank at which micro-batches
        enter the pipeline.
        """
        self._append_warm_up(depth)
        self._append_overlapped_pairs(depth)
        self._append_cool_down(depth)
        return tuple(self.items)

    def _append_warm_up(self, depth: int) -> None:
        """Append the forwards of the warm-up and the first backwards.

        Three patterns are repeated one after the other: F0, then F0 F1, then I1 W1 F1. F is a
        forward, I an input gradient, W a weight gradient. The digit selects one of the two stages
        of the rank.
        """
        for _ in range(2 * self.above):
            self.items.append(self._next_forward(0))
        for _ in range(depth + 1):
            self.items += [self._next_forward(0), self._next_forward(1)]
        for _ in range(self.above):
            self._append_split_backward(1)
            self.items += [self.weights.popleft(), self._next_forward(1)]

    def _append_overlapped_pairs(self, depth: int) -> None:
        """Append pairs of a forward and a backward that overlap, until no forward is left.

        The forward of a pair is on one stage of the rank, the backward on the other stage.
        """
        # The rank at which the two directions of the pipeline meet runs its first forward and
        # backward one after the other, to shorten the bubble (DualPipe, dualpipe.py, step 4).
        steady = len(self.stages[0][1]) - 2 * (self.above + depth + 1) + depth + 1
        for k in range(steady):
            together = OverlappedPair(self._next_forward(0), self._next_backward(1))
            self.items += together if k == 0 and self.above == 0 else [together]
            self.items.append(OverlappedPair(self._next_forward(1), self._next_backward(0)))
        for _ in range(self.above):
            self.items.append(self._next_backward(1))
            self.items.append(OverlappedPair(self._next_forward(1), self._next_backward(0)))

    def _append_cool_down(self, depth: int) -> None:
        """Append the remaining backwards and the delayed weight gradients.

        The first of these backwards are full backwards. The later ones are split into input
        gradient and weight gradient.
        """
        split_from = depth + 1  # of the 2 (depth + 1) backwards, the second half is split
        for k in range(2 * (depth + 1)):
            index = 1 - k % 2
            if k >= split_from:
                self._append_split_backward(index)
            else:
                self.items.append(self._next_backward(index))
        for _ in range(self.above):
            self.items.append(self.weights.popleft())
            self._append_split_backward(0)
        self.items += self.weights

    def _next_forward(self, index: int) -> Action:
        """Return the next forward of the rank's stage number ``index`` (0 or 1)."""
        return self._next_action(index, "F", self.forwards)

    def _next_backward(self, index: int) -> Action:
        """Return the next full backward of the rank's stage number ``index`` (0 or 1)."""
        return self._next_action(index, "B", self.backwards)

    def _append_split_backward(self, index: int) -> None:
        """Append the next input gradient of a stage and queue the weight gradient for later.

        ``index`` is 0 for the first stage of the rank and 1 for the second.
        """
        gradient = self._next_action(index, "I", self.backwards)
        self.items.append(gradient)
        self.weights.append(Action(gradient.stage, "W", gradient.micro_batch))

    def _next_action(self, index: int, computation: Computation, count: list[int]) -> Action:
        """Return the next action of type ``computation`` on the rank's stage ``index`` (0 or 1).

        ``count`` contains the number of micro-batches that have passed each of the two stages. The
        function increases the number of this stage by one.
        """
        stage, batches = self.stages[index]
        count[index] += 1
        return Action(stage, computation, batches[count[index] - 1])
