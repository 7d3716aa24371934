"""How far process groups reach: inside a host, an NVLink domain, a rack, or beyond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parc.compiler.ir import Placement
from parc.compiler.topology.node_groups import NodeGroups, node_groups

SHOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("tp", "dense", ("tp",)),
    ("cp", "dense", ("cp",)),
    ("dp", "dense", ("dp",)),
    ("dp-cp", "dense", ("dp", "cp")),
    ("pp", "dense", ("pp",)),
    ("etp", "expert", ("tp",)),
    ("ep", "expert", ("ep",)),
    ("edp", "expert", ("dp",)),
)
"""Families that carry traffic: name, mesh, axes."""


@dataclass(frozen=True, slots=True)
class Span:
    """Groups of one family, counted by the narrowest thing that holds them whole."""

    name: str
    size: int
    host: int
    domain: int
    rack: int
    across: int
    most_racks: int
    """Racks that the widest group touches."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.host + self.domain + self.rack + self.across


def spans(placement: Placement, routed: bool) -> Iterator[Span]:
    """One row a family that has groups of two ranks or more; expert ones only if ``routed``."""
    meshes = {"dense": placement.dense, "expert": placement.expert}
    alone = placement.dense.axis("cp").size == 1
    for name, kind, axes in SHOWN:
        if (name == "dp-cp" and alone) or (kind == "expert" and not routed):
            continue
        groups = node_groups(meshes[kind], axes, placement.ranks_per_node)
        if groups.size > 1:
            yield _span(name, groups, placement)


def _span(name: str, groups: NodeGroups, placement: Placement) -> Span:
    if not groups.visits:
        return Span(name, groups.size, groups.count, 0, 0, 0, 1)
    racks = [host.rack for host in placement.hosts]
    domains = [host.nvlink_domain for host in placement.hosts]
    counts, most = [0, 0, 0, 0], 1
    for visit in groups.visits:
        nodes = set(visit)
        touched = len({racks[node] for node in nodes})
        most = max(most, touched)
        inside = len({domains[node] for node in nodes}) == 1
        level = 0 if len(nodes) == 1 else 1 if inside else 2 if touched == 1 else 3
        counts[level] += groups.parallel
    host, domain, rack, across = counts
    return Span(name, groups.size, host, domain, rack, across, most)
