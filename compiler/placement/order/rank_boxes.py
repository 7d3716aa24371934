"""Node ranks as mixed-radix numbers, and the boxes of them that may share a switch.

The axes of both meshes cut the node ranks into digits. A box takes a factor of every digit: that
many neighbours along it stay together. All boxes of one shape tile the node ranks, so a shape
says which axis goes to which level (facts of process mapping: arXiv:2001.07134).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from parc.compiler.ir.placement import Axis, Mesh

Shape = tuple[int, ...]
"""Factor of every digit, fastest digit first."""


def node_digits(meshes: Iterable[Mesh], per_node: int) -> tuple[int, ...]:
    """Sizes of the digits of a node rank, the fastest first; their product is the node count.

    Edges of an axis that do not divide those of the others are passed over: the axis is then cut
    more coarsely.
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
    for axis in mesh.axes:
        yield from (edge for edge in (axis.stride, axis.stride * axis.size) if not edge % per_node)


def digits_of(axes: tuple[Axis, ...], digits: tuple[int, ...], per_node: int) -> tuple[int, ...]:
    """Which digits lie inside ``axes``; their product is the number of nodes of such a group."""
    inside, stride = [], per_node
    for index, size in enumerate(digits):
        if any(a.stride <= stride and stride * size <= a.stride * a.size for a in axes):
            inside.append(index)
        stride *= size
    return tuple(inside)


def shapes(digits: tuple[int, ...], most: int) -> list[Shape]:
    """Every shape of a box of at most ``most`` node ranks."""
    choices = [[n for n in range(1, min(size, most) + 1) if size % n == 0] for size in digits]
    return [shape for shape in product(*choices) if prod(shape) <= most]


def sequence(digits: tuple[int, ...], nested: Iterable[Shape], outward: Iterable[int]) -> list[int]:
    """All node ranks, box by box: those of the first shape are consecutive, then the second's.

    ``nested`` are factors, innermost first; what they leave of the digits follows in the order
    ``outward`` of digit indexes.
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
