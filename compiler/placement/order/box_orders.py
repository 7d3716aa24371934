"""Orders of hosts that are built from boxes: neighbours along some axes share a switch.

The axes of the dense and the expert mesh split a node rank into mixed-radix digits. A box is a set
of node ranks; its shape is a factor of every digit: that many neighbours along the digit stay
together. All boxes of one shape together contain every node rank exactly once, so a shape decides
which axis stays below which level of switches. On a regular tree these boxes are all the
mixed-radix orders, the search space of arXiv:2001.07134 (process mapping).

A beam search scores the shapes level by level, from the narrowest switches to the widest, by the
traffic that leaves a switch filled with such boxes. That costs far less than evaluating whole
orders, so only the orders of the best shapes are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from parc.compiler.ir.placement import Axis, Mesh
from parc.compiler.placement.order.node_messages import NodeMessages
from parc.compiler.placement.order.packing import bin_levels, pack
from parc.compiler.placement.order.placement_problem import PlacementProblem

BoxShape = tuple[int, ...]
"""Factor of every mixed-radix digit of the node rank, the fastest digit first."""


def node_digits(meshes: Iterable[Mesh], per_node: int) -> tuple[int, ...]:
    """Return the sizes of the mixed-radix digits of a node rank, the fastest digit first.

    Their product is the number of node ranks. A digit ends wherever an axis of a mesh begins or
    ends. If two such positions do not divide each other, no digits fit both; the larger one is
    ignored, and that axis is split more coarsely.
    """
    found = list(meshes)
    nodes = found[0].world // per_node
    edges = {nodes} | {
        edge // per_node for mesh in found for edge in _axis_boundaries(mesh, per_node)
    }
    sizes, last = [], 1
    for edge in sorted(edges):
        if edge > last and edge % last == 0 and nodes % edge == 0:
            sizes.append(edge // last)
            last = edge
    return tuple(sizes)


def _axis_boundaries(mesh: Mesh, per_node: int) -> Iterator[int]:
    """Yield the strides and ends of all axes of ``mesh``, in ranks, if a host divides them."""
    for axis in mesh.axes:
        yield from (edge for edge in (axis.stride, axis.stride * axis.size) if not edge % per_node)


def digits_of(axes: tuple[Axis, ...], digits: tuple[int, ...], per_node: int) -> tuple[int, ...]:
    """Return the indexes of the digits of the node rank that are inside one of ``axes``.

    If the digits split the axes exactly, the product of these digits is the number of hosts of a
    process group over ``axes``.
    """
    inside, stride = [], per_node
    for index, size in enumerate(digits):
        # The whole digit is inside one of the axes.
        if any(a.stride <= stride and stride * size <= a.stride * a.size for a in axes):
            inside.append(index)
        stride *= size
    return tuple(inside)


def box_shapes(digits: tuple[int, ...], most: int) -> list[BoxShape]:
    """Return all shapes of boxes with at most ``most`` node ranks.

    A shape is a factor of every mixed-radix digit of the node rank.
    """
    choices = [[n for n in range(1, min(size, most) + 1) if size % n == 0] for size in digits]
    return [shape for shape in product(*choices) if prod(shape) <= most]


def ranks_by_box(
    digits: tuple[int, ...], nested: Iterable[BoxShape], outward: Iterable[int]
) -> list[int]:
    """Return all node ranks, box by box: the node ranks of each box are consecutive.

    Args:
        digits: sizes of the mixed-radix digits of a node rank, the fastest digit first.
        nested: factors of the digits per box, the innermost box first.
        outward: indexes of the digits, in the order in which the rest of each digit is added.
    """
    strides = [prod(digits[:index]) for index in range(len(digits))]
    left = list(digits)
    ranks = [0]

    def repeat_along(index: int, size: int) -> None:
        """Repeat the node ranks ``size`` times along the digit ``index``."""
        nonlocal ranks
        stride = strides[index]
        ranks = [base + step * stride for step in range(size) for base in ranks]
        strides[index] *= size
        left[index] //= size

    for shape in nested:
        for index, size in enumerate(shape):
            repeat_along(index, size)
    for index in outward:
        repeat_along(index, left[index])
    return ranks


BEAM = 6
"""Number of box shapes that the beam search keeps from level to level."""
SAMPLES = 3
"""Number of sets of hosts that are scored per shape: the first, the middle and the last."""
STEPS = 400_000
"""Approximate number of messages that are counted to score the shapes of one level."""
FEWEST_SHAPES = 8
"""Least number of shapes that are scored, however large the job."""


@dataclass(frozen=True, slots=True)
class BoxOrder:
    """Order of hosts that is built from nested boxes of node ranks."""

    nested: tuple[BoxShape, ...]
    """Box shape for each level of ``packing.bin_levels``, the narrowest level first."""
    place: tuple[int, ...]
    """Site (set of equivalent hosts) of every node rank."""


def box_orders(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> Iterator[BoxOrder]:
    """Yield orders of hosts that are built from boxes, the most promising shapes first.

    A shape is scored by the seconds of communication that a switch full of such boxes exposes or,
    with ``by_bytes``, by the bytes that leave the switch. Each shape gives five orders: its
    remaining digits in both directions, each packed into the switches in tree order and the largest
    first, and one order without blocks. Two orders may be equal.
    """
    digits = problem.digits
    outward = tuple(range(len(digits)))
    for nested in _beam_search(problem, messages, by_bytes):
        sizes = [prod(shape) for shape in nested]
        for axes, largest in product((outward, outward[::-1]), (False, True)):
            ranks = ranks_by_box(digits, _factors_between_levels(nested), axes)
            yield BoxOrder(nested, tuple(pack(problem.sites, ranks, sizes, largest)))
        ranks = ranks_by_box(digits, _factors_between_levels(nested), outward)
        yield BoxOrder(nested, tuple(pack(problem.sites, ranks, ())))


def _beam_search(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> list[tuple[BoxShape, ...]]:
    """Return the best nested shapes: one shape per level of switches, the narrowest level first.

    A shape contains the shapes of the narrower levels. Ties are broken by the larger box, then by
    the shape itself.
    """
    digits = problem.digits
    kept: list[tuple[BoxShape, ...]] = [()]
    for level in range(len(bin_levels(problem.sites))):
        capacity = _hosts_of_largest_switch(problem, level)
        steps = SAMPLES * (capacity + problem.nodes // 8) * max(len(messages), 1) * len(kept)
        # The more work a shape takes, the fewer shapes are scored.
        most = max(FEWEST_SHAPES, STEPS // steps)
        scored = []
        for nested in kept:
            inner = nested[-1] if nested else (1,) * len(digits)
            outer = tuple(size // part for size, part in zip(digits, inner, strict=True))
            for factor in _largest_shapes(box_shapes(outer, max(capacity // prod(inner), 1)), most):
                shape = tuple(a * b for a, b in zip(inner, factor, strict=True))
                score = _score_full_switch(problem, (*nested, shape), messages, level)
                scored.append((score, nested, shape))
        scored.sort(key=lambda row: (row[0][by_bytes], -prod(row[2]), row[1:]))
        kept = [(*nested, shape) for _, nested, shape in scored[:BEAM]]
    return kept


def _largest_shapes(found: list[BoxShape], most: int) -> list[BoxShape]:
    """Return the ``most`` shapes with the most node ranks."""
    return sorted(found, key=lambda shape: (-prod(shape), shape))[:most]


def _hosts_of_largest_switch(problem: PlacementProblem, level: int) -> int:
    """Return the number of hosts below the largest switch (or NVLink domain) of a level."""
    hosts: dict[int, int] = {}
    for number, size in zip(bin_levels(problem.sites)[level], problem.sites.sizes, strict=True):
        hosts[number] = hosts.get(number, 0) + size
    return max(hosts.values())


def _score_full_switch(
    problem: PlacementProblem,
    nested: tuple[BoxShape, ...],
    messages: Sequence[NodeMessages],
    level: int,
) -> tuple[float, float]:
    """Return (exposed seconds, weighted bytes) of a switch full of boxes of the last shape.

    The switch has as many hosts as the largest one of the level. A few of the possible contents are
    evaluated and the worst is returned; a few are enough, because all boxes of one shape send the
    same amount, except at the ends of pipelines.
    """
    sites = problem.sites
    capacity = min(_hosts_of_largest_switch(problem, level), problem.nodes)
    ranks = ranks_by_box(
        problem.digits, _factors_between_levels(nested), range(len(problem.digits))
    )
    tier = level - sites.multi_host_domains
    rate = capacity * sites.nic_bytes_per_s if tier < 0 else max(sites.tiers[tier].bytes_per_s)
    box = prod(nested[-1])
    last = problem.nodes - capacity
    # The first, a middle and the last switch; pipelines end in the first and the last one.
    starts = {0, last // 2 // box * box, last}
    worst = most = 0.0
    for start in sorted(starts)[:SAMPLES]:
        inside = set(ranks[start : start + capacity])
        spent = sent = 0.0
        phases = zip(messages, problem.nic_seconds, problem.weights, strict=True)
        for one, floor, weight in phases:
            own = one.unit_bytes * one.leaving(inside)
            sent += own * weight
            spent += one.exposure * max(own / rate, 0.0 if sites.multi_host_domains else floor)
        worst, most = max(worst, spent), max(most, sent)
    return worst, most


def _factors_between_levels(nested: tuple[BoxShape, ...]) -> list[BoxShape]:
    """Return each shape divided by the shape of the next narrower level."""
    found, last = [], (1,) * len(nested[0]) if nested else ()
    for shape in nested:
        found.append(tuple(a // b for a, b in zip(shape, last, strict=True)))
        last = shape
    return found
