"""Types of pipeline schedules: sizes, actions, and the action table of all ranks.

A *stage* is one piece of the model, numbered in the order of its layers. A rank may run several
stages; they are called its *chunks*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Computation = Literal["F", "B", "I", "W"]
"""F: forward; B: full backward; I: gradient of the input; W: gradient of the weights. B is I, then
W."""


class Action(NamedTuple):
    """Computation of one micro-batch on one stage.

    As text, in the notation of torch.distributed.pipelining, ``3F0`` is the forward of micro-batch
    0 on stage 3.
    """

    stage: int
    computation: Computation
    micro_batch: int

    def __str__(self) -> str:
        """Return stage, computation and micro-batch without separators, for example ``3F0``."""
        return f"{self.stage}{self.computation}{self.micro_batch}"


class OverlappedPair(NamedTuple):
    """Forward and full backward that a rank runs at the same time, to hide communication."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        """Return both actions in torch's notation, the forward first."""
        return f"({self.forward};{self.backward})OVERLAP_F_B"


RankActions = tuple[Action | OverlappedPair, ...]
"""Actions of one rank, in order."""


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """Sizes that determine an action table."""

    ranks: int
    """Pipeline ranks, p."""
    micro_batches: int
    """Micro-batches per step, m; for DualPipe the sum of both directions."""
    chunks: int = 1
    """Stages per rank, v. Ignored by V-shaped schedules and DualPipe, which always have 2."""
    group: int = 0
    """Consecutive micro-batches that a rank runs through one chunk; 0: as many as ranks."""

    @property
    def group_size(self) -> int:
        """Return the number of consecutive micro-batches that a rank runs through one chunk (g).

        The default is the number of ranks. The result never exceeds the micro-batches of the step.
        """
        # Megatron-Core's default group (microbatch_group_size_per_vp_stage) is the pipeline size.
        return min(self.group or self.ranks, self.micro_batches)


@dataclass(frozen=True, slots=True)
class ActionTable:
    """Actions of all ranks in one step, in the order in which each rank runs them."""

    rows: tuple[RankActions, ...]
    owners: tuple[int, ...]
    """Rank of each stage."""
    depth: int
    """Number of stages of the model. If ``owners`` is twice as long, there are two copies of the
    model, fed from both ends of the pipeline."""

    def actions(self, rank: int) -> Iterator[Action]:
        """Yield the actions of ``rank`` in order; an overlapped pair yields its forward first."""
        for item in self.rows[rank]:
            if isinstance(item, OverlappedPair):
                yield from item
            else:
                yield item

    def __str__(self) -> str:
        """Return one line of actions per rank."""
        return "\n".join(" ".join(map(str, row)) for row in self.rows)


def stage_ranks_in_loop(ranks: int, chunks: int) -> tuple[int, ...]:
    """Return the rank of each stage if stages are assigned to the ranks in turn (interleaving).

    With p ranks, stage c p + r is chunk c of rank r.
    """
    return tuple(range(ranks)) * chunks


def stage_ranks_in_v_form(ranks: int) -> tuple[int, ...]:
    """Return the rank of each stage if a micro-batch passes down the ranks and back up.

    With p ranks, rank r has the stages r and 2p - 1 - r.
    """
    return (*range(ranks), *reversed(range(ranks)))
