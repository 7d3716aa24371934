"""Megatron's process groups once more, from the arguments alone.

This is the algorithm of Megatron's ``RankGenerator`` (megatron/core/parallel_state.py): an index
is decomposed over the sizes of the masked axes and multiplied with their strides. It shares no
code with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.passes.second_route import Groups

TOKENS: dict[str, tuple[str, str]] = {
    "tp": ("dense", "tp"),
    "cp": ("dense", "cp"),
    "dp": ("dense", "dp"),
    "pp": ("dense", "pp"),
    "dp-cp": ("dense", "dp-cp"),
    "tp-cp": ("dense", "tp-cp"),
    "tp-pp": ("dense", "tp-pp"),
    "tp-dp": ("dense", "tp-dp"),
    "tp-dp-cp": ("dense", "tp-dp-cp"),
    "etp": ("expert", "tp"),
    "ep": ("expert", "ep"),
    "edp": ("expert", "dp"),
    "etp-ep": ("expert", "tp-ep"),
    "etp-ep-pp": ("expert", "tp-ep-pp"),
}
"""Family in the rank map -> generator and its token."""

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Families of a single axis: the columns of the rank map."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Sizes of both generators."""

    order: str
    dense: dict[str, int]
    expert: dict[str, int]

    def sizes(self) -> dict[str, int]:
        """By the names of the rank map."""
        expert = {"ep": self.expert["ep"], "etp": self.expert["tp"], "edp": self.expert["dp"]}
        return {name: self.dense[name] for name in ("pp", "dp", "cp", "tp")} | expert


def regenerate(degrees: Degrees) -> dict[str, Groups]:
    """The groups of every family in TOKENS."""
    return {family: _groups(degrees, family) for family in TOKENS}


def _groups(degrees: Degrees, family: str) -> Groups:
    kind, token = TOKENS[family]
    axes = degrees.order.split("-")
    sizes = degrees.dense if kind == "dense" else degrees.expert
    shape = [sizes[axis] for axis in axes]
    strides = _prefix_products(shape)
    wanted = [axis in token.split("-") for axis in axes]
    return Groups(
        _offsets(shape, strides, wanted), _offsets(shape, strides, [not w for w in wanted])
    )


def _offsets(shape: list[int], strides: list[int], mask: list[bool]) -> list[int]:
    """Inner product of every decomposed index with the strides of the masked axes, in order.

    Indices count the first axis fastest: those with a step on an axis follow all those without.
    """
    offsets = [0]
    for size, stride, kept in zip(shape, strides, mask, strict=True):
        if kept:
            steps = range(0, size * stride, stride)
            offsets = [step + offset for step in steps for offset in offsets]
    return offsets


def _prefix_products(sizes: list[int]) -> list[int]:
    """1, a, a b, ...: one entry a size."""
    products = [1]
    for size in sizes[:-1]:
        products.append(products[-1] * size)
    return products[: len(sizes)]
