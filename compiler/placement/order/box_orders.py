"""Boxes of ranks, and orders of hosts built from them.

Node ranks as mixed-radix numbers, and boxes of them that may share a switch.

The axes of both meshes split the node rank into digits. A box takes a factor of every digit: that
many neighbours along the digit stay together. All boxes of one shape together cover the node ranks
exactly, so a shape decides which axis stays inside which level. On a regular tree these boxes are
all the mixed-radix orders, the search space of arXiv:2001.07134 (process mapping).

Candidate orders by boxes: neighbours along some axes share a switch.

A box is a set of node ranks that takes a factor of every digit (see above). A beam search
scores the shapes of boxes level by level, from the narrowest switches to the widest, by the traffic
that leaves a switch filled with such boxes. That costs far less than evaluating whole orders, so
only the orders of the best shapes are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from parc.compiler.ir.placement import Axis, Mesh
from parc.compiler.placement.order.messages import NodeMessages
from parc.compiler.placement.order.packing import bin_levels, pack
from parc.compiler.placement.order.placement_problem import PlacementProblem

BoxShape = tuple[int, ...]
"""Factor of every digit, the fastest digit first."""


def node_digits(meshes: Iterable[Mesh], per_node: int) -> tuple[int, ...]:
    """Return the sizes of the digits of a node rank, the fastest first.

    Their product is the number of node ranks. If the edges of two axes do not divide each other,
    the larger edge is ignored, because no digits fit both; that axis is split more coarsely.
    """
    found = list(meshes)
    nodes = found[0].world // per_node
    edges = {nodes} | {edge // per_node for mesh in found for edge in _edges(mesh, per_node)}
    sizes, last = [], 1
    for edge in sorted(edges):
        if edge > last and edge % last == 0 and nodes % edge == 0:
            sizes.append(edge // last)
            last = edge
    return tuple(sizes)


def _edges(mesh: Mesh, per_node: int) -> Iterator[int]:
    """Yield the strides and ends of all axes, in ranks, that are multiples of a host."""
    for axis in mesh.axes:
        yield from (edge for edge in (axis.stride, axis.stride * axis.size) if not edge % per_node)


def digits_of(axes: tuple[Axis, ...], digits: tuple[int, ...], per_node: int) -> tuple[int, ...]:
    """Return the indexes of the digits inside ``axes``.

    The product of these digits is the number of hosts of a group over ``axes``, if the digits
    split the axes exactly.
    """
    inside, stride = [], per_node
    for index, size in enumerate(digits):
        # The whole digit is inside one of the axes.
        if any(a.stride <= stride and stride * size <= a.stride * a.size for a in axes):
            inside.append(index)
        stride *= size
    return tuple(inside)


def box_shapes(digits: tuple[int, ...], most: int) -> list[BoxShape]:
    """Return all shapes of boxes of at most ``most`` node ranks."""
    choices = [[n for n in range(1, min(size, most) + 1) if size % n == 0] for size in digits]
    return [shape for shape in product(*choices) if prod(shape) <= most]


def sequence(
    digits: tuple[int, ...], nested: Iterable[BoxShape], outward: Iterable[int]
) -> list[int]:
    """Return all node ranks box by box: the node ranks of each box are consecutive.

    Args:
        digits: sizes of the digits, the fastest first.
        nested: factors of the digits, the innermost box first.
        outward: order of the digit indexes in which the remaining factors follow.
    """
    strides = [prod(digits[:index]) for index in range(len(digits))]
    left = list(digits)
    ranks = [0]

    def extend(index: int, size: int) -> None:
        nonlocal ranks
        stride = strides[index]
        ranks = [base + step * stride for step in range(size) for base in ranks]
        strides[index] *= size
        left[index] //= size

    for shape in nested:
        for index, size in enumerate(shape):
            extend(index, size)
    for index in outward:
        extend(index, left[index])
    return ranks


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
