"""Step time of interleaved 1F1B if the chunks of a rank, or of different ranks, differ in length.

Chunks differ in length because of the loss, of the embedding, of dense first layers, and of layer
counts that are not divisible. The slowest rank then does not determine the time of the step: while
all ranks run their first chunks, the rank with the longest first chunk is the slowest, and another
rank is the slowest while all ranks run their second chunks.

Notation: p ranks, v chunks per rank, m micro-batches. Slot k of a rank is its forward k and the
backward that follows. Every dependency of the order of Megatron-Core leads from slot k of rank r to
a slot of the same or of a neighboring rank whose value of k + r is larger by exactly 1. All ranks
therefore advance together, one diagonal k + r at a time, and one pass over the diagonals gives the
time of the step without an event queue. Tests compare it with the event simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil, inf
from operator import add
from typing import NamedTuple

from parc.compiler.cost.schedules.simulation import StageCosts
from parc.compiler.cost.schedules.table import PipelineShape

EVALUATED_GROUPS = 3
"""Minimum number of groups of p micro-batches that are evaluated; each further group adds as much
time as the last of them."""
EVALUATED_CHUNKS = 8
"""Chunks per rank that are evaluated in addition to ``EVALUATED_GROUPS``, because groups of few
chunks reach the steady state later. With random chunks, the error is below 1 % of the step."""


class CriticalPath(NamedTuple):
    """Chain of dependent computations and hops, which bounds the time of a step from below."""

    per_micro_batch: float
    """Seconds per micro-batch of the step."""
    once: float
    """Seconds per step, without hops; may be negative."""
    hops: int

    def seconds(self, micro_batches: int, hop_seconds: float) -> float:
        """Return the time in seconds of the computations and hops of this path."""
        return micro_batches * self.per_micro_batch + self.once + self.hops * hop_seconds


def critical_paths(ranks: int, chunk_seconds: Sequence[float]) -> list[CriticalPath]:
    """Return chains of dependent computations; a step takes at least as long as the longest.

    There are two chains per rank that is slower than all later ranks. Both pass all micro-batches
    on this rank. They reach the rank with the first micro-batch in the first chunk or in the last
    chunk, and leave the rank in the same chunk.

    Args:
        ranks: Pipeline ranks.
        chunk_seconds: Forward plus backward of one micro-batch on each chunk, in model order.
    """
    before = [0.0, *accumulate(chunk_seconds)]
    last = len(chunk_seconds) - ranks
    slowest = -1.0
    paths = []
    for rank in reversed(range(ranks)):
        whole = sum(chunk_seconds[rank::ranks])
        if whole <= slowest:
            continue
        slowest = whole
        paths.append(CriticalPath(whole, before[rank], 2 * rank))
        # The second chain passes all chunks of the model before the last one of the rank, and
        # misses as many micro-batches as there are ranks on each earlier chunk of the rank.
        missed = ranks * (whole - chunk_seconds[last + rank])
        paths.append(CriticalPath(whole, before[last + rank] - missed, 2 * (last + rank)))
    return paths


def least_interleaved_seconds(shape: PipelineShape, costs: StageCosts) -> float:
    """Return a lower bound of ``unequal_interleaved_seconds`` that is fast to compute.

    The bound is within 1 % if only the first or the last chunk of the model has another length.
    """
    paths = critical_paths(shape.ranks, [chunk.total for chunk in costs.stages])
    return max([path.seconds(shape.micro_batches, costs.hop_seconds) for path in paths])


def is_in_groups_of_ranks(ranks: int, chunks: int, micro_batches: int) -> bool:
    """Return True if the functions of this module apply to interleaved 1F1B with these sizes.

    The number of micro-batches must be a multiple of the number of ranks.
    """
    return ranks > 1 and chunks > 1 and micro_batches > 0 and micro_batches % ranks == 0


def unequal_interleaved_seconds(shape: PipelineShape, costs: StageCosts) -> float:
    """Return the time in seconds of an interleaved 1F1B step with chunks of any length.

    The result is exact for steps of few micro-batches (``EVALUATED_GROUPS``).

    Args:
        shape: Sizes for which ``is_in_groups_of_ranks`` returns True, with the default group size.
        costs: Seconds of the chunks of the model, in model order.
    """
    groups = shape.micro_batches // shape.ranks
    evaluated = min(groups, EVALUATED_GROUPS + ceil(EVALUATED_CHUNKS / shape.chunks))
    seconds, last_group = _diagonal_seconds(shape.ranks, evaluated, costs)
    # A rank that is slower by little may determine the time only after the evaluated groups.
    least = least_interleaved_seconds(shape, costs)
    return max(seconds + (groups - evaluated) * last_group, least)


# Cached, because the search evaluates some layouts several times.
@lru_cache(maxsize=256)
def _diagonal_seconds(p: int, groups: int, costs: StageCosts) -> tuple[float, float]:
    """Return the seconds of a step of ``groups`` x ``p`` micro-batches, and of its last group.

    The seconds of the last group are the growth of the step time per group in the steady state.
    """
    forward = [chunk.forward for chunk in costs.stages]
    backward = [chunk.backward for chunk in costs.stages]
    depth, hop = len(forward), costs.hop_seconds
    slots = groups * depth
    # The first backward of rank r is in slot 2 (p - 1 - r) + (v - 1) p.
    delay = depth - p + 2 * (p - 1)
    # Times at which each rank ends the forward and the backward of its slot on this diagonal.
    ahead, done = [0.0] * p, [0.0] * p
    # Seconds of the chunk that each rank runs, and of the hop before it; -inf without dependency.
    forwards, backwards, hop_in, hop_back = [0.0] * p, [0.0] * p, [-inf] * p, [-inf] * p
    ends = []
    for diagonal in range(slots + delay):
        # On each diagonal one rank starts another forward chunk, and one another backward chunk.
        rank = diagonal % p
        slot, chunk = diagonal - rank, (diagonal - rank) % depth + rank
        is_run = slot < slots
        forwards[rank] = forward[chunk] if is_run else 0.0
        hop_in[rank] = hop if is_run and chunk else -inf
        rank = (-diagonal - 2) % p
        slot = diagonal + rank - delay
        chunk, is_run = depth - p - slot % depth + rank, 0 <= slot < slots
        backwards[rank] = backward[chunk] if is_run else 0.0
        hop_back[rank] = hop if is_run and chunk < depth - 1 else -inf
        # Maps of whole lists, because a loop over the ranks takes four times as long.
        arrived = map(add, (ahead[-1], *ahead[:-1]), hop_in)
        ahead = list(map(add, map(max, done, arrived), forwards))
        arrived = map(add, (*done[1:], done[0]), hop_back)
        done = list(map(add, map(max, ahead, arrived), backwards))
        if diagonal in (slots - depth - 1, slots - 1):
            ends.append(max(done))
    return max(done), ends[-1] - ends[0]
