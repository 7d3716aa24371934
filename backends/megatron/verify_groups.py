"""Independent derivation of Megatron's process groups from its arguments.

The algorithm is that of Megatron's ``RankGenerator`` (megatron/core/parallel_state.py): an index is
decomposed over the sizes of the masked axes and multiplied with their strides. No code is shared
with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.backends.verifier import FamilyGroups

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
"""Type of group in the rank map -> (rank generator, token that the generator accepts)."""

HIERARCHY = ("cp-a2a", "cp-p2p")
"""Types of groups in hierarchical context parallelism, one per level."""

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Types of groups that span a single axis; each is a column of the rank map."""


@dataclass(frozen=True, slots=True)
class ParallelDegrees:
    """Parallel sizes of Megatron's two rank generators, for dense layers and for experts."""

    order: str
    """Axes from the fastest to the slowest, such as ``tp-cp-ep-dp-pp``."""
    dense: dict[str, int]
    expert: dict[str, int]
    levels: tuple[int, ...] = ()
    """Sizes of hierarchical context parallelism; empty without a hierarchy."""

    def sizes(self) -> dict[str, int]:
        """Return column of the rank map -> size of the parallel axis in this column."""
        expert = {"ep": self.expert["ep"], "etp": self.expert["tp"], "edp": self.expert["dp"]}
        return {name: self.dense[name] for name in ("pp", "dp", "cp", "tp")} | expert


def derive_groups(degrees: ParallelDegrees) -> dict[str, FamilyGroups]:
    """Return type of group, such as tp or dp -> process groups of this type.

    With hierarchical context parallelism, the groups of each level are included.
    """
    found = {family: _groups_of_family(degrees, family) for family in TOKENS}
    if degrees.levels:
        found |= dict(
            zip(HIERARCHY, _split_ranks_by_level(found["cp"], degrees.levels), strict=True)
        )
    return found


def _split_ranks_by_level(whole: FamilyGroups, levels: tuple[int, ...]) -> list[FamilyGroups]:
    """Return the groups of each level of hierarchical context parallelism.

    ``whole`` contains the groups over all levels. The function splits these groups in the same way
    as Megatron's ``create_hierarchical_groups`` (parallel_state.py).
    """
    # below is the number of ranks of all finer levels: the stride of a level in the whole group.
    split, below = [], 1
    for size in levels:
        span = below * size
        starts = [
            block + place for block in range(0, len(whole.members), span) for place in range(below)
        ]
        bases = (base + whole.members[start] for base in whole.bases for start in starts)
        split.append(FamilyGroups(whole.members[:span:below], sorted(bases)))
        below = span
    return split


def _groups_of_family(degrees: ParallelDegrees, family: str) -> FamilyGroups:
    generator, token = TOKENS[family]
    axes = degrees.order.split("-")
    sizes = degrees.dense if generator == "dense" else degrees.expert
    shape = [sizes[axis] for axis in axes]
    strides = _prefix_products(shape)
    # Masked axes span a group; the remaining axes number the groups, the first in order fastest.
    masked = [axis in token.split("-") for axis in axes]
    return FamilyGroups(
        _rank_offsets(shape, strides, masked),
        _rank_offsets(shape, strides, [not one for one in masked]),
    )


def _rank_offsets(shape: list[int], strides: list[int], mask: list[bool]) -> list[int]:
    """Return the rank offsets of all positions along the axes that ``mask`` selects.

    The first axis varies fastest.
    """
    offsets = [0]
    for size, stride, kept in zip(shape, strides, mask, strict=True):
        if kept:
            steps = range(0, size * stride, stride)
            offsets = [step + offset for step in steps for offset in offsets]
    return offsets


def _prefix_products(sizes: list[int]) -> list[int]:
    """Return the stride of each axis: the product of the sizes of all faster axes."""
    products = [1]
    for size in sizes[:-1]:
        products.append(products[-1] * size)
    return products[: len(sizes)]
