"""Independent derivation of Megatron's process groups from its arguments.

The algorithm is that of Megatron's ``RankGenerator`` (megatron/core/parallel_state.py): an index is
decomposed over the sizes of the masked axes and multiplied with their strides. No code is shared
with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from parc.backends.verifier import FamilyGroups
from parc.compiler.ir.frozen import frozen

TOKENS: dict[str, tuple[str, str]] = {
    "tp": ("dense", "tp"),
    "cp": ("dense", "cp"),
    "dp": ("dense", "gtp_remat-dp"),
    "pp": ("dense", "pp"),
    "dp-cp": ("dense", "gtp_remat-dp-cp"),
    "tp-cp": ("dense", "tp-cp"),
    "tp-pp": ("dense", "tp-gtp_remat-pp"),
    "tp-dp": ("dense", "tp-gtp_remat-dp"),
    "tp-dp-cp": ("dense", "tp-gtp_remat-dp-cp"),
    "etp": ("expert", "tp"),
    "ep": ("expert", "ep"),
    "edp": ("expert", "gtp_remat-dp"),
    "etp-ep": ("expert", "tp-ep"),
    "etp-ep-pp": ("expert", "tp-ep-pp"),
}
"""Type of group in the rank map -> (rank generator, token that the generator accepts)."""

SHARED_TOKENS: dict[str, dict[str, str]] = {
    "dense": {"gtp": "gtp_remat", "dp-shard": "dp", "dp-shard-cp": "dp-cp"},
    "expert": {"egtp": "gtp_remat", "edp-shard": "dp", "etp-ep-egtp-pp": "tp-ep-gtp_remat-pp"},
}
"""Rank generator -> types of group that exist only if ranks share weights, and their tokens."""

HIERARCHY = ("cp-a2a", "cp-p2p")
"""Types of groups in hierarchical context parallelism, one per level."""

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Types of groups that are a column of the rank map in every plan."""


@frozen
class ParallelDegrees:
    """Parallel sizes of Megatron's two rank generators, for dense layers and for experts."""

    order: str
    """Axes from the fastest to the slowest, such as ``tp-cp-ep-dp-pp``."""
    dense: dict[str, int]
    """Sizes of the axes. The axis gtp_remat, which is not in ``order``, follows tp; in ``expert``
    it follows ep (``_inject_gtp_remat_axis``)."""
    expert: dict[str, int]
    levels: tuple[int, ...] = ()
    """Sizes of hierarchical context parallelism; empty without a hierarchy."""

    def sizes(self) -> dict[str, int]:
        """Return column of the rank map -> size of the parallel axis in this column."""
        dense, expert = self.dense, self.expert
        found = {name: dense[name] for name in ("pp", "cp", "tp")}
        found |= {"dp": dense["dp"] * dense["gtp_remat"]}
        found |= {"ep": expert["ep"], "etp": expert["tp"]}
        if dense["gtp_remat"] > 1:
            found |= {"gtp": dense["gtp_remat"], "dp_shard": dense["dp"]}
        if expert["gtp_remat"] > 1:
            return found | {"egtp": expert["gtp_remat"], "edp_shard": expert["dp"]}
        return found | {"edp": expert["dp"]}

    def columns(self) -> tuple[str, ...]:
        """Return the types of groups that are columns of the rank map."""
        shared = [
            name
            for generator, names in (
                ("dense", ("gtp", "dp-shard")),
                ("expert", ("egtp", "edp-shard")),
            )
            if getattr(self, generator)["gtp_remat"] > 1
            for name in names
        ]
        return (*COLUMNS, *shared)


def derive_groups(degrees: ParallelDegrees) -> dict[str, FamilyGroups]:
    """Return type of group, such as tp or dp -> process groups of this type.

    With hierarchical context parallelism, the groups of each level are included.
    """
    found = {family: _groups_of_token(degrees, *token) for family, token in TOKENS.items()}
    for generator, tokens in SHARED_TOKENS.items():
        if getattr(degrees, generator)["gtp_remat"] > 1:
            found |= {
                family: _groups_of_token(degrees, generator, token)
                for family, token in tokens.items()
            }
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


def _groups_of_token(degrees: ParallelDegrees, generator: str, token: str) -> FamilyGroups:
    axes = degrees.order.split("-")
    axes.insert(axes.index("tp" if generator == "dense" else "ep") + 1, "gtp_remat")
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
