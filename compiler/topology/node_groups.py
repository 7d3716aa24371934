"""Process groups as sequences of node ranks, in ring order.

The groups over the same axes of a mesh are shifted copies of each other. If neighboring local
ranks belong to groups that visit the same hosts, these groups are stored once, with their number
(``parallel``). So 131,072 ranks cost only as much as their 16,384 hosts.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import Mesh

MOST_KEPT = 16
"""Number of cached results. One plan needs fewer, so a plan never evicts its own results."""


@frozen
class NodeGroups:
    """Process groups over some axes of one mesh, each as a sequence of node ranks."""

    size: int
    """Ranks in one group."""
    count: int
    """Number of groups."""
    parallel: int
    """Number of equal groups that one entry of ``visits`` represents."""
    visits: tuple[tuple[int, ...], ...]
    """Node rank of every member, in rank order, for each group; empty if every group is inside a
    host."""


@frozen
class _MergedAxis:
    """Neighboring mesh axes that are all in the process group, or all not, merged into one."""

    member: bool
    stride: int
    size: int


def ranks_per_node(gpus: int, world: int) -> int:
    """Return the number of ranks per host: the largest divisor of ``world`` that is <= ``gpus``.

    ``world`` is the number of ranks of the job, ``gpus`` the number of GPUs per host.
    """
    return next(ranks for ranks in range(min(gpus, world), 0, -1) if world % ranks == 0)


def splits_hosts(mesh: Mesh, ranks_per_node: int) -> bool:
    """Return True if equal process groups, or equal hops of a pipeline, span different hosts.

    This is so if the blocks of ranks along an axis neither fill hosts nor divide them: of pipeline
    stages with 6 ranks on hosts with 8 GPUs, the first is inside a host and the second is not. Of
    stages with 4 ranks, every second hop of the pipeline leaves the host.
    """
    ends = [axis.stride * axis.size for axis in mesh.axes]
    hops = any(
        axis.name == "pp" and axis.stride < ranks_per_node < end
        for axis, end in zip(mesh.axes, ends, strict=True)
    )
    return hops or any(ranks_per_node % end and end % ranks_per_node for end in ends)


@lru_cache(maxsize=MOST_KEPT)
def node_groups(mesh: Mesh, names: tuple[str, ...], ranks_per_node: int) -> NodeGroups:
    """Return the process groups over the mesh axes ``names``, each as a sequence of node ranks.

    ``ranks_per_node`` must divide the world size. The result is cached, because several modules
    need the same few groups.
    """
    return _find_groups(mesh, names, ranks_per_node, only_first=False)


def first_node_group(mesh: Mesh, names: tuple[str, ...], ranks_per_node: int) -> NodeGroups:
    """Return ``node_groups`` with the visits of the first group only, which takes less time."""
    return _find_groups(mesh, names, ranks_per_node, only_first=True)


def _find_groups(
    mesh: Mesh, names: tuple[str, ...], ranks_per_node: int, *, only_first: bool
) -> NodeGroups:
    """Return the result of ``node_groups`` or, if ``only_first``, of ``first_node_group``."""
    merged = _merge_axes(mesh, names)
    inside = [axis for axis in merged if axis.member]
    size = prod(axis.size for axis in inside)
    count = mesh.world // size
    if not inside or ranks_per_node % (inside[-1].stride * inside[-1].size) == 0:
        return NodeGroups(size, count, count, ())
    # The grain divides the host and all strides of the group, so the ranks of a grain step
    # together and visit the same hosts.
    parallel = gcd(ranks_per_node, *(axis.stride for axis in inside))
    units_per_node = ranks_per_node // parallel
    members = _offsets_in_grains(inside, parallel)
    others = [] if only_first else [axis for axis in merged if not axis.member]
    bases = _offsets_in_grains(others, parallel)
    visits = tuple(tuple((base + member) // units_per_node for member in members) for base in bases)
    return NodeGroups(size, count, parallel, visits)


def _merge_axes(mesh: Mesh, names: tuple[str, ...]) -> list[_MergedAxis]:
    """Return the axes of ``mesh`` with more than one rank, with neighboring axes merged.

    Two neighboring axes are merged if ``names`` contains both axes, or if it contains neither.
    """
    merged: list[_MergedAxis] = []
    inside = mesh.select_axes(*names)
    for axis in mesh.axes:
        member = axis in inside
        if axis.size == 1:
            continue
        if merged and merged[-1].member == member:
            last = merged.pop()
            merged.append(_MergedAxis(member, last.stride, last.size * axis.size))
        else:
            merged.append(_MergedAxis(member, axis.stride, axis.size))
    return merged


def _offsets_in_grains(axes: list[_MergedAxis], grain: int) -> list[int]:
    """Return the rank offsets of all positions along ``axes``, divided by ``grain``.

    ``grain`` is the length of blocks of consecutive ranks whose process groups span the same hosts.
    The positions in one block give a single offset. The first axis varies fastest.
    """
    units = [0]
    for axis in axes:
        # Only the first axis of the mesh can have a stride below the grain, and only if it is not
        # an axis of the group. Its end is a multiple of the grain, because the grain divides the
        # stride of the next axis.
        whole = axis.stride % grain == 0
        stride = axis.stride // grain if whole else 1
        size = axis.size if whole else axis.stride * axis.size // grain
        units = [step * stride + unit for step in range(size) for unit in units]
    return units
