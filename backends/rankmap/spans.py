"""How far process groups reach: inside a host, an NVLink domain, a rack, or beyond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parc.compiler.ir import Placement
from parc.compiler.topology.node_groups import NodeGroups, node_groups

SHOWN = (
    *("tp", "cp", "cp-a2a", "cp-p2p"),
    *("dp", "dp-shard", "dp-replicate", "dp-shard-cp", "dp-cp", "pp"),
    *("etp", "ep", "edp", "efsdp"),
)
"""Families that carry traffic, in the order in which they are shown."""


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
    alone = placement.dense.size("cp") == 1
    families = {family.name: family for family in placement.families}
    for family in (families[name] for name in SHOWN if name in families):
        if (family.name in ("dp-cp", "dp-shard-cp") and alone) or (
            family.mesh == "expert" and not routed
        ):
            continue
        mesh = placement.mesh(family.mesh)
        groups = node_groups(mesh, family.axes, placement.ranks_per_node)
        if groups.size > 1:
            yield _span(family.name, groups, placement)


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
