"""The nouns of pipeline schedules: who computes what, in which order.

A *stage* is one piece of the model in the order of its layers; a rank may hold several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]
"""Forward, full backward, gradient of the input, gradient of the weights; B is I then W."""


class Action(NamedTuple):
    """One stage computes one micro-batch; prints as torch.distributed.pipelining does: ``3F0``."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        """Stage, kind, micro-batch."""
        return f"{self.stage}{self.kind}{self.micro_batch}"


class Pair(NamedTuple):
    """A forward and a full backward of one rank that run together, to hide communication."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        """Both halves, the forward first."""
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Row = tuple[Action | Pair, ...]
"""What one rank does, in order."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that fix an action table."""

    ranks: int
    """Pipeline ranks, p."""
    micro_batches: int
    """Micro-batches of one step, m; DualPipe: both directions together."""
    chunks: int = 1
    """Stages a rank, v; schedules of V form and DualPipe have 2 whatever is said here."""
    group: int = 0
    """Micro-batches that a rank runs through one chunk in a row; 0: as many as ranks."""

    @property
    def run(self) -> int:
        """``group``, with its default put in, and no longer than the step."""
        return min(self.group or self.ranks, self.micro_batches)


@dataclass(frozen=True, slots=True)
class Table:
    """The action table of all ranks."""

    rows: tuple[Row, ...]
    owners: tuple[int, ...]
    """Rank that holds each stage."""
    depth: int
    """Stages of the model. Twice as many ``owners`` mean two copies of it, fed from both ends."""

    def actions(self, rank: int) -> Iterator[Action]:
        """Actions of ``rank`` one by one; of a pair the forward comes first."""
        for item in self.rows[rank]:
            if isinstance(item, Pair):
                yield from item
            else:
                yield item

    def __str__(self) -> str:
        """A line a rank."""
        return "\n".join(" ".join(map(str, row)) for row in self.rows)


def loop_owners(ranks: int, chunks: int) -> tuple[int, ...]:
    """Chunk c of rank r is stage c p + r, as in the interleaved schedule."""
    return tuple(range(ranks)) * chunks


def v_owners(ranks: int) -> tuple[int, ...]:
    """Rank r holds stages r and 2p - 1 - r: the model runs down the ranks and back up."""
    return (*range(ranks), *reversed(range(ranks)))
