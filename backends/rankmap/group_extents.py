"""Extent of process groups: within a host, an NVLink domain or a rack, or across racks."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.ir import GroupFamily, Placement
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.node_groups import NodeGroups, node_groups

SHOWN = (
    *("tp", "gtp", "cp", "cp-a2a", "cp-p2p"),
    *("dp", "dp-shard", "dp-replicate", "dp-shard-cp", "dp-cp", "pp"),
    *("etp", "ep", "egtp", "edp", "edp-shard", "efsdp"),
)
"""Families of process groups that communicate in a step, in the order of the table."""


@frozen
class GroupExtent:
    """Numbers of groups in one family, by the smallest unit of hardware that contains a group."""

    name: str
    size: int
    host: int
    domain: int
    rack: int
    across: int
    most_racks: int
    """Largest number of racks that one group spans."""

    @property
    def count(self) -> int:
        """Total number of groups in the family."""
        return self.host + self.domain + self.rack + self.across


def group_extents(placement: Placement, routed: bool) -> Iterator[GroupExtent]:
    """Yield one ``GroupExtent`` per family of process groups with two or more ranks per group.

    Families of the expert mesh are included only if ``routed`` is true, that is, if the model has
    routed experts.
    """
    for family in shown_families(placement, routed):
        groups = node_groups(placement.mesh(family.mesh), family.axes, placement.ranks_per_node)
        yield _measure_group_extent(family.name, groups, placement)


def shown_families(placement: Placement, routed: bool) -> Iterator[GroupFamily]:
    """Yield the families of process groups that ``group_extents`` measures."""
    # With cp 1, dp-cp equals dp and dp-shard-cp equals dp-shard: do not list them twice.
    no_context_parallel = placement.dense.group_size("cp") == 1
    families = {family.name: family for family in placement.families}
    for family in (families[name] for name in SHOWN if name in families):
        if (family.name in ("dp-cp", "dp-shard-cp") and no_context_parallel) or (
            family.mesh == "expert" and not routed
        ):
            continue
        if placement.mesh(family.mesh).group_size(*family.axes) > 1:
            yield family


def _measure_group_extent(name: str, groups: NodeGroups, placement: Placement) -> GroupExtent:
    """Return how many groups of the family ``name`` stay in a host, NVLink domain or rack."""
    # No group leaves its host, so the hosts need not be visited.
    if not groups.visits:
        return GroupExtent(name, groups.size, groups.count, 0, 0, 0, 1)
    rack_of = [host.rack for host in placement.hosts].__getitem__
    domain_of = [host.nvlink_domain for host in placement.hosts].__getitem__
    counts, most = [0, 0, 0, 0], 1
    for visit in groups.visits:
        nodes = set(visit)
        touched = len(set(map(rack_of, nodes)))
        most = max(most, touched)
        inside = len(set(map(domain_of, nodes))) == 1
        level = 0 if len(nodes) == 1 else 1 if inside else 2 if touched == 1 else 3
        counts[level] += groups.parallel
    host, domain, rack, across = counts
    return GroupExtent(name, groups.size, host, domain, rack, across, most)
