"""Types of pipeline schedules: sizes, actions, and the action table of all ranks.

A *stage* is one piece of the model, numbered in the order of its layers. A rank may run several
stages; they are called its *chunks*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from parc.compiler.ir.frozen import frozen

Computation = Literal["F", "B", "I", "W"]
"""F: forward; B: full backward; I: gradient of the input; W: gradient of the weights. A full
backward consists of I, then W."""


class Action(NamedTuple):
    """Computation of one micro-batch on one stage.

    As text, in the notation of torch.distributed.pipelining, ``3F0`` is the forward of micro-batch
    0 on stage 3.
    """

    stage: int
    computation: Computation
    micro_batch: int

    def __str__(self) -> str:
        """Return this action in torch's notation.

        For example, ``3F0`` is the forward of micro-batch 0 on stage 3.
        """
        return f"{self.stage}{self.computation}{self.micro_batch}"


class OverlappedPair(NamedTuple):
    """Forward and full backward that a rank runs at the same time, to hide communication."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        """Return the forward action and the backward action of this pair in torch's notation."""
        return f"({self.forward};{self.backward})OVERLAP_F_B"


RankActions = tuple[Action | OverlappedPair, ...]
"""Actions of one rank, in order."""


class PipelineShape(NamedTuple):
    """Sizes that determine an action table."""

    ranks: int
    """Pipeline ranks, p."""
    micro_batches: int
    """Micro-batches per step, m. For DualPipe, both directions of the pipeline are counted."""
    chunks: int = 1
    """Stages per rank, v. V-shaped schedules and DualPipe always have two stages per rank and
    ignore this number."""
    group: int = 0
    """Consecutive micro-batches that a rank runs through one chunk; 0 for the number of ranks."""

    @property
    def group_size(self) -> int:
        """Return the number of consecutive micro-batches that a rank runs through one chunk (g).

        The default is the number of ranks. The number is at most that of the micro-batches in the
        step.
        """
        # Megatron-Core's default group (microbatch_group_size_per_vp_stage) is the pipeline size.
        return min(self.group or self.ranks, self.micro_batches)


@frozen
class ActionTable:
    """Actions of all ranks in one step, listed per rank in order of execution."""

    rows: tuple[RankActions, ...]
    owners: tuple[int, ...]
    """Rank of each stage."""
    depth: int
    """Number of stages of the model. If ``owners`` is twice as long, there are two copies of the
    model, fed from both ends of the pipeline."""

    def actions(self, rank: int) -> Iterator[Action]:
        """Yield the actions of ``rank`` in order.

        The forward of an overlapped pair is yielded before the backward.
        """
        for item in self.rows[rank]:
            if isinstance(item, OverlappedPair):
                yield from item
            else:
                yield item

    def __str__(self) -> str:
        """Return this table as text, with one line of actions per rank."""
        return "\n".join(" ".join(map(str, row)) for row in self.rows)


def stage_ranks_in_loop(ranks: int, chunks: int) -> tuple[int, ...]:
    """Return the rank of each stage if stages are assigned to the ranks in turn (interleaving).

    With p ranks, chunk c of rank r is stage c p + r.
    """
    return tuple(range(ranks)) * chunks


def stage_ranks_in_v_form(ranks: int) -> tuple[int, ...]:
    """Return the rank of each stage if every micro-batch passes down the ranks and back up.

    With p ranks, rank r has the stages r and 2p - 1 - r.
    """
    return (*range(ranks), *reversed(range(ranks)))
