"""Candidate orders by boxes: neighbours along some axes share a switch.

A box is a set of node ranks that takes a factor of every digit (``rank_boxes``). A beam search
scores the shapes of boxes level by level, from the narrowest switches to the widest, by the traffic
that leaves a switch filled with such boxes. That costs far less than evaluating whole orders, so
only the orders of the best shapes are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from parc.compiler.placement.order.messages import NodeMessages
from parc.compiler.placement.order.packing import bin_levels, pack
from parc.compiler.placement.order.placement_problem import PlacementProblem
from parc.compiler.placement.order.rank_boxes import BoxShape, box_shapes, sequence

BEAM = 6
"""Shapes that are kept from level to level."""
SAMPLES = 3
"""Bins that are scored per shape: the first, the middle and the last."""
STEPS = 400_000
"""Approximate number of messages that are counted to score the shapes of one level."""
FEWEST_SHAPES = 8
"""Shapes that are scored at any size of the job."""


@dataclass(frozen=True, slots=True)
class BoxOrder:
    """An order of hosts by nested boxes."""

    nested: tuple[BoxShape, ...]
    """Shape per level of ``packing.bin_levels``, the narrowest level first."""
    place: tuple[int, ...]
    """Site of every node rank."""


def box_orders(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> Iterator[BoxOrder]:
    """Yield orders by boxes, the most promising shapes first; the same place may come twice.

    A shape is scored by the seconds that a switch full of such boxes exposes or, with ``by_bytes``,
    by the bytes that leave it. Each shape is packed with its remaining digits in both directions,
    into switches in tree order and the largest first, and without blocks.
    """
    digits = problem.digits
    outward = tuple(range(len(digits)))
    for nested in _beam_search(problem, messages, by_bytes):
        sizes = [prod(shape) for shape in nested]
        for axes, largest in product((outward, outward[::-1]), (False, True)):
            ranks = sequence(digits, _factors(nested), axes)
            yield BoxOrder(nested, tuple(pack(problem.sites, ranks, sizes, largest)))
        ranks = sequence(digits, _factors(nested), outward)
        yield BoxOrder(nested, tuple(pack(problem.sites, ranks, ())))


def _beam_search(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> list[tuple[BoxShape, ...]]:
    """Return the best nested shapes, one per level; a shape contains those of narrower levels.

    Ties are broken by the larger box, then by the shape itself.
    """
    digits = problem.digits
    kept: list[tuple[BoxShape, ...]] = [()]
    for level in range(len(bin_levels(problem.sites))):
        capacity = _largest_bin(problem, level)
        steps = SAMPLES * (capacity + problem.nodes // 8) * max(len(messages), 1) * len(kept)
        most = max(FEWEST_SHAPES, STEPS // steps)
        scored = []
        for nested in kept:
            inner = nested[-1] if nested else (1,) * len(digits)
            outer = tuple(size // part for size, part in zip(digits, inner, strict=True))
            for factor in _largest(box_shapes(outer, max(capacity // prod(inner), 1)), most):
                shape = tuple(a * b for a, b in zip(inner, factor, strict=True))
                score = _score(problem, (*nested, shape), messages, level)
                scored.append((score, nested, shape))
        scored.sort(key=lambda row: (row[0][by_bytes], -prod(row[2]), row[1:]))
        kept = [(*nested, shape) for _, nested, shape in scored[:BEAM]]
    return kept


def _largest(found: list[BoxShape], most: int) -> list[BoxShape]:
    """Return the ``most`` shapes with the most node ranks."""
    return sorted(found, key=lambda shape: (-prod(shape), shape))[:most]


def _largest_bin(problem: PlacementProblem, level: int) -> int:
    """Return the number of hosts in the largest bin of a level."""
    hosts: dict[int, int] = {}
    for number, size in zip(bin_levels(problem.sites)[level], problem.sites.sizes, strict=True):
        hosts[number] = hosts.get(number, 0) + size
    return max(hosts.values())


def _score(
    problem: PlacementProblem,
    nested: tuple[BoxShape, ...],
    messages: Sequence[NodeMessages],
    level: int,
) -> tuple[float, float]:
    """Return the (seconds, bytes) of the fullest of a few bins filled with boxes of the last shape.

    The bins are as large as the largest one of the level. A few of them are enough, because all
    boxes of one shape send alike except at the ends of pipelines.
    """
    sites = problem.sites
    capacity = min(_largest_bin(problem, level), problem.nodes)
    ranks = sequence(problem.digits, _factors(nested), range(len(problem.digits)))
    tier = level - sites.multi_host_domains
    rate = capacity * sites.nic_bytes_per_s if tier < 0 else max(sites.tiers[tier].bytes_per_s)
    box = prod(nested[-1])
    last = problem.nodes - capacity
    starts = {0, last // 2 // box * box, last}
    worst = most = 0.0
    for start in sorted(starts)[:SAMPLES]:
        inside = set(ranks[start : start + capacity])
        spent = sent = 0.0
        for one, floor in zip(messages, problem.nic_seconds, strict=True):
            own = one.unit_bytes * one.leaving(inside)
            sent += own
            spent += one.exposure * max(own / rate, 0.0 if sites.multi_host_domains else floor)
        worst, most = max(worst, spent), max(most, sent)
    return worst, most


def _factors(nested: tuple[BoxShape, ...]) -> list[BoxShape]:
    """Return each shape divided by the shape of the next narrower level."""
    found, last = [], (1,) * len(nested[0]) if nested else ()
    for shape in nested:
        found.append(tuple(a // b for a, b in zip(shape, last, strict=True)))
        last = shape
    return found
