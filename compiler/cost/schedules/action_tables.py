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
    """Return the action table of GPipe: all forwards, then all backwards in the same order."""
    batches = range(shape.micro_batches)
    rows = (
        tuple(Action(rank, "F", i) for i in batches) + tuple(Action(rank, "B", i) for i in batches)
        for rank in range(shape.ranks)
    )
    return ActionTable(tuple(rows), stage_ranks_in_loop(shape.ranks, 1), shape.ranks)


def one_f_one_b_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of 1F1B: warm-up forwards, then one forward and one backward in turn.

    Rank r of p ranks has p - 1 - r warm-up forwards.
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
    """Return the (chunk, micro-batch) pairs of a rank in the order of its forwards."""
    return [
        (chunk, micro_batch)
        for first in range(0, shape.micro_batches, shape.group_size)
        for chunk in range(shape.chunks)
        for micro_batch in range(first, min(first + shape.group_size, shape.micro_batches))
    ]


def backward_order(shape: PipelineShape) -> list[tuple[int, int]]:
    """Return the (chunk, micro-batch) pairs of a rank in the order of its backwards.

    The order is that of the forwards, but each group passes the chunks from last to first.
    """
    return [(shape.chunks - 1 - chunk, i) for chunk, i in forward_order(shape)]


def alternate_forward_backward(
    forwards: list[Action], backwards: list[Action], warmup: int
) -> RankActions:
    """Return ``warmup`` forwards, then forwards and backwards in turn, then the last backwards."""
    # Each steady step has one forward and one backward; the remaining backwards are the cool-down.
    steady = max(len(forwards) - warmup, 0)
    pairs = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return (*forwards[:warmup], *pairs, *backwards[steady:])


def zb_h1_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of schedule ZB-H1, also called ZB1P.

    ZB-H1 needs the memory of 1F1B and fills the cool-down with weight gradients. With p ranks, v
    chunks per rank and g micro-batches per group, rank r has (v - 1) g + p - 1 - r warm-up forwards
    and delays its weight gradients by r steps.
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

    Each step has a forward (until the forwards end), an input gradient and a weight gradient. The
    weight gradient of a micro-batch runs ``delay`` steps after its input gradient; the remaining
    weight gradients follow the last step.
    """
    steps = []
    for k, gradient in enumerate(inputs):
        forward = forwards[k : k + 1]
        weight = weights[k - delay : k - delay + 1] if k >= delay else []
        steps.append((*forward, gradient, *weight))
    remaining = weights[max(len(inputs) - delay, 0) :]
    return (*chain.from_iterable(steps), *remaining)


def zb_v_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of ZB-V, which needs the memory of 1F1B.

    Each rank has two stages; a micro-batch passes down the ranks and back up. There is no bubble if
    forward, input gradient and weight gradient take equally long. A step of fewer than 2p - 1
    micro-batches on p ranks has the order of a step of 2p - 1, without the missing micro-batches.
    """
    rows = (_zb_v_actions_of_rank(shape, rank) for rank in range(shape.ranks))
    return ActionTable(tuple(rows), stage_ranks_in_v_form(shape.ranks), 2 * shape.ranks)


def _zb_v_actions_of_rank(shape: PipelineShape, rank: int) -> RankActions:
    """Return the actions of one rank in ZB-V: warm-up, steady state and cool-down."""
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
    """Growing list of the actions of one rank, with the next micro-batch of each computation."""

    def __init__(self, first: int, second: int) -> None:
        """Create an empty list of the actions of two stages.

        In the words of ``add``, such as ``F1``, digit 0 means stage ``first`` and digit 1 stage
        ``second``.
        """
        self.stages = (first, second)
        self.count = {computation + index: 0 for computation in "FIW" for index in "01"}
        self.actions: list[Action] = []

    def add(self, *words: str) -> None:
        """Append one action per word, such as ``F0``: the next forward on the first stage.

        The letter is F (forward), I (input gradient) or W (weight gradient); the digit selects one
        of the two stages.
        """
        computations: dict[str, Computation] = {"F": "F", "I": "I", "W": "W"}
        for word in words:
            stage = self.stages[int(word[1])]
            self.actions.append(Action(stage, computations[word[0]], self.count[word]))
            self.count[word] += 1


def dualpipe_v_table(shape: PipelineShape) -> ActionTable:
    """Return the action table of DualPipeV.

    Each rank has two stages; a micro-batch passes down the ranks and back up. There must be at
    least twice as many micro-batches as ranks.
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

    With p ranks and m micro-batches, p and m must be even and m >= 2p. There are two copies of the
    model, and micro-batches enter them at opposite ends of the pipeline. Stage s of the second copy
    has number p + s, is on rank p - 1 - s, and processes the second half of the micro-batches.
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
    """Actions of one rank in the eight steps of DualPipe's program."""

    def __init__(self, stages: tuple[tuple[int, range], tuple[int, range]], above: int) -> None:
        """Create an empty list of the actions of one rank.

        ``stages`` has (stage, micro-batches) for the two stages of the rank. ``above`` is the
        distance in ranks from this rank to the rank at which the two directions of the pipeline
        meet.
        """
        self.stages = stages
        self.above = above
        self.items: list[Action | OverlappedPair] = []
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self.weights: deque[Action] = deque()

    def actions(self, depth: int) -> RankActions:
        """Return all actions of the rank, in the order in which the rank runs them.

        ``depth`` is the distance of the rank from the rank where its micro-batches enter.
        """
        self._append_warm_up(depth)
        self._append_overlapped_pairs(depth)
        self._append_cool_down(depth)
        return tuple(self.items)

    def _append_warm_up(self, depth: int) -> None:
        """Append the forwards of the warm-up and the first backwards.

        Each of the patterns F0, then F0 F1, then I1 W1 F1 is repeated. F is a forward, I an input
        gradient, W a weight gradient; the digit selects one of the two stages of the rank.
        """
        for _ in range(2 * self.above):
            self.items.append(self._next_forward(0))
        for _ in range(depth + 1):
            self.items += [self._next_forward(0), self._next_forward(1)]
        for _ in range(self.above):
            self._append_split_backward(1)
            self.items += [self.weights.popleft(), self._next_forward(1)]

    def _append_overlapped_pairs(self, depth: int) -> None:
        """Append overlapped pairs of a forward and a backward until the forwards end.

        A forward of one stage of the rank overlaps with a backward of its other stage.
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
        """Append the last backwards of both stages in turn, then the delayed weight gradients.

        The later half of the backwards is split into input gradient and weight gradient.
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
        """Append the next input gradient of a stage and queue its weight gradient for later.

        ``index`` is 0 or 1 for the first or the second stage of the rank.
        """
        gradient = self._next_action(index, "I", self.backwards)
        self.items.append(gradient)
        self.weights.append(Action(gradient.stage, "W", gradient.micro_batch))

    def _next_action(self, index: int, computation: Computation, count: list[int]) -> Action:
        """Return the next ``computation`` of the rank's stage number ``index`` (0 or 1).

        ``count`` has the number of micro-batches so far of the two stages; that of this stage is
        increased by one.
        """
        stage, batches = self.stages[index]
        count[index] += 1
        return Action(stage, computation, batches[count[index] - 1])
