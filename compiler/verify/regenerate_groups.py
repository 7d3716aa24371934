"""Megatron's process groups once more, from the arguments alone.

This is the algorithm of Megatron's ``RankGenerator`` (megatron/core/parallel_state.py): an index
is decomposed over the sizes of the masked axes and multiplied with their strides. It shares no
code with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.verify.derived_groups import Groups

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

HIERARCHY = ("cp-a2a", "cp-p2p")
"""Families of a hierarchy of context ranks, level by level."""

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Families of a single axis: the columns of the rank map."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Sizes of both generators."""

    order: str
    dense: dict[str, int]
    expert: dict[str, int]
    levels: tuple[int, ...] = ()
    """Sizes of a hierarchy of context ranks; empty: there is none."""

    def sizes(self) -> dict[str, int]:
        """By the names of the rank map."""
        expert = {"ep": self.expert["ep"], "etp": self.expert["tp"], "edp": self.expert["dp"]}
        return {name: self.dense[name] for name in ("pp", "dp", "cp", "tp")} | expert


def regenerate(degrees: Degrees) -> dict[str, Groups]:
    """The groups of every family in TOKENS, and of the levels of a hierarchy."""
    found = {family: _groups(degrees, family) for family in TOKENS}
    if degrees.levels:
        found |= dict(zip(HIERARCHY, _hierarchy(found["cp"], degrees.levels), strict=True))
    return found


def _hierarchy(whole: Groups, levels: tuple[int, ...]) -> list[Groups]:
    """Each group cut level by level: ``create_hierarchical_groups`` of the same file."""
    cut, below = [], 1
    for size in levels:
        span = below * size
        starts = [
            block + place for block in range(0, len(whole.members), span) for place in range(below)
        ]
        bases = (base + whole.members[start] for base in whole.bases for start in starts)
        cut.append(Groups(whole.members[:span:below], sorted(bases)))
        below = span
    return cut


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
