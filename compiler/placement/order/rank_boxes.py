"""Node ranks as mixed-radix numbers, and boxes of them that may share a switch.

The axes of both meshes split the node rank into digits. A box takes a factor of every digit: that
many neighbours along the digit stay together. All boxes of one shape together cover the node ranks
exactly, so a shape decides which axis stays inside which level. On a regular tree these boxes are
all the mixed-radix orders, the search space of arXiv:2001.07134 (process mapping).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from parc.compiler.ir.placement import Axis, Mesh

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
