"""Process groups at the grain of hosts: which node ranks a group visits, in ring order.

Groups of one mesh are shifted copies of each other, so ranks that sit side by side in one host
and step along the same strides are counted once, as ``parallel`` equal groups. That keeps a map
of 131,072 ranks at the cost of its 16,384 hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from parc.compiler.ir.placement import Mesh

MOST_KEPT = 16
"""Families of groups that are kept: those of one plan."""


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """All groups over some axes of one mesh."""

    size: int
    """Ranks in one group."""
    count: int
    """Number of groups."""
    parallel: int
    """Groups that each entry of ``visits`` stands for."""
    visits: tuple[tuple[int, ...], ...]
    """Node rank of every member, in rank order; empty where every group stays inside a host."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring axes that are all in the group, or all out of it, taken as one axis."""

    member: bool
    stride: int
    size: int


def ranks_per_node(gpus: int, world: int) -> int:
    """Ranks of every host: the largest divisor of ``world`` that is at most ``gpus``."""
    return next(ranks for ranks in range(min(gpus, world), 0, -1) if world % ranks == 0)


@lru_cache(maxsize=MOST_KEPT)
def node_groups(mesh: Mesh, names: tuple[str, ...], ranks_per_node: int) -> NodeGroups:
    """The groups over the axes ``names``; ``ranks_per_node`` divides the world.

    Kept for the passes that follow: a plan has few families, and most of them are asked for often.
    """
    runs = _runs(mesh, names)
    inside = [run for run in runs if run.member]
    size = prod(run.size for run in inside)
    count = mesh.world // size
    if not inside or ranks_per_node % (inside[-1].stride * inside[-1].size) == 0:
        return NodeGroups(size, count, count, ())
    parallel = gcd(ranks_per_node, *(run.stride for run in inside))
    units_per_node = ranks_per_node // parallel
    members = _reach([run for run in runs if run.member], parallel)
    bases = _reach([run for run in runs if not run.member], parallel)
    visits = tuple(tuple((base + member) // units_per_node for member in members) for base in bases)
    return NodeGroups(size, count, parallel, visits)


def _runs(mesh: Mesh, names: tuple[str, ...]) -> list[_Run]:
    """Merge neighbouring axes; axes of size 1 say nothing."""
    runs: list[_Run] = []
    inside = mesh.over(*names)
    for axis in mesh.axes:
        member = axis in inside
        if axis.size == 1:
            continue
        if runs and runs[-1].member == member:
            last = runs.pop()
            runs.append(_Run(member, last.stride, last.size * axis.size))
        else:
            runs.append(_Run(member, axis.stride, axis.size))
    return runs


def _reach(runs: list[_Run], grain: int) -> list[int]:
    """Units of ``grain`` ranks that are reached from unit 0 along ``runs``, first run fastest.

    A run that starts below the grain is the first axis of the mesh, outside the group, and ends
    at a multiple of the grain (the grain divides the stride of the axis that follows it).
    """
    units = [0]
    for run in runs:
        whole = run.stride % grain == 0
        stride = run.stride // grain if whole else 1
        size = run.size if whole else run.stride * run.size // grain
        units = [step * stride + unit for step in range(size) for unit in units]
    return units
