"""Numbers of layers per model chunk that make the slowest pipeline rank as fast as possible.

The layers are in model order, and chunk c of the model runs on rank c mod pp. Some chunks have work
besides layers: the loss, and multi-token prediction layers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from parc.compiler.ir.frozen import frozen

PRECISION = 1e-4
"""Relative distance between the time of the slowest rank and the smallest possible time."""
ROUNDING = 1e-9


@frozen(slots=False)  # without slots, so that sums can be cached
class StageWork:
    """Work of one micro-batch that is divided over the chunks of a pipeline."""

    pp: int
    layers: tuple[float, ...]
    """Seconds of each layer of the model."""
    others: tuple[float, ...]
    """Seconds of each chunk besides its layers."""
    least: tuple[int, ...]
    """Smallest number of layers of each chunk."""

    @cached_property
    def ends(self) -> list[float]:
        """Seconds of the first n layers of the model, for each n from 0."""
        return list(accumulate(self.layers, initial=0.0))

    @cached_property
    def shortest(self) -> float:
        """Seconds of the shortest layer."""
        return min(self.layers)

    @cached_property
    def others_of_ranks(self) -> list[float]:
        """Seconds of the chunks of each rank besides their layers."""
        return [sum(self.others[rank :: self.pp]) for rank in range(self.pp)]

    def slowest_seconds(self, counts: Sequence[int]) -> float:
        """Return the seconds of the slowest rank if the chunks have ``counts`` layers."""
        ends = self.ends
        seconds, at = [0.0] * self.pp, 0
        for chunk, (count, other) in enumerate(zip(counts, self.others, strict=True)):
            seconds[chunk % self.pp] += ends[at + count] - ends[at] + other
            at += count
        return max(seconds)


def balanced_counts(work: StageWork, most: Sequence[int]) -> list[tuple[int, ...]]:
    """Return numbers of layers per chunk with a small time of the slowest rank, simplest first.

    The first result differs from an even split only on the first and the last rank, if this is
    possible. The others have the smallest time of the slowest rank, to ``PRECISION``: without
    interleaving for layers of any length, with interleaving for layers of equal length. With
    interleaving there are two of them: either the chunk of the loss alone has fewer layers, or all
    chunks of its rank.

    Args:
        work: work that is divided.
        most: largest number of layers of each rank, because of its memory.
    """
    found = [_counts_with_other_ends(work, most)]
    # Without interleaving, a rank has one chunk, and both ways give the same numbers.
    ways = (False, True) if len(work.others) > work.pp else (False,)
    found += [_smallest_maximum(work, most, is_spread=one) for one in ways]
    return list(dict.fromkeys(counts for counts in found if counts is not None))


def _counts_with_other_ends(work: StageWork, most: Sequence[int]) -> tuple[int, ...] | None:
    """Return the best split whose middle ranks have equal numbers of layers; None without one.

    Every rank divides its layers evenly over its chunks. Of splits with equally long stages, the
    one with most layers on the last rank is returned, because it is the closest to an even one.
    """
    candidates = (
        counts
        for ranks in _equal_middle_ranks(len(work.layers), work.pp, len(work.others) // work.pp)
        if all(count <= limit for count, limit in zip(ranks, most, strict=True))
        and (counts := _spread_over_chunks(work, ranks)) is not None
    )
    return min(candidates, key=work.slowest_seconds, default=None)


def _equal_middle_ranks(layers: int, pp: int, vpp: int) -> Iterator[tuple[int, ...]]:
    """Yield the layers per rank for each number of layers of the last rank, largest first.

    The numbers are multiples of ``vpp``, and the last rank has at most as many layers as the others
    have on average.
    """
    if layers % vpp:
        return
    for last in range(layers // vpp // pp, -1, -1):
        rest = layers // vpp - last
        each = -(-rest // (pp - 1))
        first = rest - each * (pp - 2)
        if first > 0:
            yield tuple(vpp * count for count in (first, *[each] * (pp - 2), last))


def _spread_over_chunks(work: StageWork, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """Return the layers per chunk if each rank divides its layers evenly; None if one has too few.

    The numbers of layers per rank are multiples of the number of chunks per rank.
    """
    vpp = len(work.others) // work.pp
    counts = tuple(count // vpp for count in ranks) * vpp
    few = any(count < least for count, least in zip(counts, work.least, strict=True))
    return None if few else counts


def _smallest_maximum(
    work: StageWork, most: Sequence[int], *, is_spread: bool
) -> tuple[int, ...] | None:
    """Return the layers per chunk with the fastest slowest rank; None if there is no valid split.

    The time of the slowest rank is bisected. With ``is_spread``, all chunks of a rank have fewer
    layers if one of them has other work; otherwise only this chunk has.
    """
    whole = sum(work.layers) + sum(work.others)
    low, high = whole / work.pp, whole
    best = _fill_chunks(work, most, high, is_spread)
    if best is None:
        return None
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        counts = _fill_chunks(work, most, middle, is_spread)
        if counts is None:
            low = middle
        else:
            # The bound is often far above what the chunks then need.
            best, high = counts, min(middle, work.slowest_seconds(counts))
    return best


def _fill_chunks(
    work: StageWork, most: Sequence[int], limit: float, is_spread: bool
) -> tuple[int, ...] | None:
    """Return the layers per chunk if each rank takes at most ``limit`` seconds; None if impossible.

    Each chunk, in model order, has as many layers as the limits of its rank allow.
    """
    pp, vpp = work.pp, len(work.others) // work.pp
    ends, limit = work.ends, limit * (1 + ROUNDING)
    own = [limit - other for other in work.others_of_ranks]
    if not _may_hold_all_layers(work, most, own):
        return None
    seconds, layers, past = [0.0] * pp, [0] * pp, [0.0] * pp
    counts, at, left = [], 0, len(work.layers) - sum(work.least)
    for chunk, least in enumerate(work.least):
        rank, turn = chunk % pp, chunk // pp + 1
        past[rank] += work.others[chunk]
        # The share of the first chunks of the rank grows with each chunk, so that rounding one of
        # them down leaves a layer to the next one.
        share = own[rank] * turn / vpp
        if not is_spread:
            share = min(limit * turn / vpp - past[rank], own[rank])
        count = bisect_right(ends, share - seconds[rank] + ends[at]) - 1 - at
        # ``left``: layers that the following chunks do not need. Comparisons, because this loop
        # runs often and calls of min and max take most of its time.
        count = least if count < least else count
        count = least + left if count > least + left else count
        free = most[rank] - layers[rank]
        count = free if count > free else count
        seconds[rank] += ends[at + count] - ends[at]
        layers[rank] += count
        at += count
        left -= count - least
        if count < least or seconds[rank] > own[rank]:
            return None
        counts.append(count)
    return None if left else tuple(counts)


def _may_hold_all_layers(work: StageWork, most: Sequence[int], own: Sequence[float]) -> bool:
    """Return False if the ranks cannot have all layers, even if all layers were the shortest ones.

    ``own`` contains the seconds that the layers of each rank may take.
    """
    # Rounding errors must not cost a layer.
    each = work.shortest / (1 + ROUNDING)
    layers = [min(limit, int(seconds / each)) for limit, seconds in zip(most, own, strict=True)]
    return sum(layers) >= len(work.layers)
