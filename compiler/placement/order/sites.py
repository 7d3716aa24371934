"""Where node ranks may go: sites whose hosts no link tells apart, and the links above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from parc.compiler.ir.cluster import Cluster, Host
from parc.compiler.topology.hostlist import natural_key, natural_sort
from parc.compiler.topology.tree import uplink_gb_per_s

ALONE = -1


@dataclass(frozen=True, slots=True)
class Tier:
    """Switches of one level: each is a zone, with one uplink that its hosts share."""

    name: str
    zones: tuple[int, ...]
    """Zone of every site."""
    bytes_per_s: tuple[float, ...]
    """Uplink of every zone, one direction; inf where nobody knows its rate."""


@dataclass(frozen=True)
class Sites:
    """Sites in the order of the tree: neighbours share as many switches as they can."""

    hosts: tuple[tuple[Host, ...], ...]
    """Hosts of every site, by name."""
    domains: tuple[int, ...]
    """NVLink domain of every site; ALONE where each of its hosts is one by itself."""
    tiers: tuple[Tier, ...]
    """Levels with more than one switch, the leaf first."""
    nic_bytes_per_s: float
    """What one host sends to others, one direction, all its NICs; inf where it has none."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Hosts of every site."""
        return tuple(map(len, self.hosts))

    @cached_property
    def wide(self) -> bool:
        """Whether some NVLink domain holds several hosts."""
        return any(domain != ALONE for domain in self.domains)

    @cached_property
    def site_of(self) -> dict[str, int]:
        """Site of every host by name."""
        return {host.name: site for site, hosts in enumerate(self.hosts) for host in hosts}

    @cached_property
    def trees(self) -> tuple[tuple[int, ...], ...]:
        """For every site its zones from the widest tier down, its NVLink domain, itself."""
        wide = [tier.zones for tier in reversed(self.tiers)]
        return tuple(zip(*wide, self.domains, range(len(self.hosts)), strict=True))


def canonical_hosts(cluster: Cluster) -> list[Host]:
    """Usable hosts by the names of their switches, widest first, then domain, then name.

    The order of the spec does not show in it, so that a shuffled list gets the same placement.
    """
    leaves: dict[tuple[str, ...], list[Host]] = {}
    for host in cluster.hosts:
        leaves.setdefault(host.path, []).append(host)
    paths = sorted(leaves, key=lambda path: list(map(natural_key, reversed(path))))
    return [host for path in paths for host in _in_order(leaves[path])]


def _in_order(hosts: list[Host]) -> list[Host]:
    """Hosts of one leaf by domain, then name."""
    names = {name for host in hosts for name in (host.nvlink_domain, host.name)}
    place = {name: number for number, name in enumerate(natural_sort(names))}
    return sorted(hosts, key=lambda host: (place[host.nvlink_domain], place[host.name]))


def sites_of(cluster: Cluster, hosts: Sequence[Host]) -> Sites:
    """The sites of ``cluster`` over ``hosts``, which ``canonical_hosts`` has put in order.

    A host whose NVLink domain ends at itself shares a site with all such hosts of its leaf.
    """
    room: dict[str, int] = {}
    for host in hosts:
        room[host.nvlink_domain] = room.get(host.nvlink_domain, 0) + 1
    members: dict[tuple[tuple[str, ...], str | None], list[Host]] = {}
    for host in hosts:
        domain = host.nvlink_domain if room[host.nvlink_domain] > 1 else None
        members.setdefault((host.path, domain), []).append(host)
    domains: dict[str, int] = {}
    numbers = [
        ALONE if name is None else domains.setdefault(name, len(domains)) for _, name in members
    ]
    groups = tuple(map(tuple, members.values()))
    rate = cluster.node.nics * cluster.node.nic_gbps / 8 * 1e9
    return Sites(groups, tuple(numbers), _tiers(cluster, groups), rate or inf)


def _tiers(cluster: Cluster, groups: tuple[tuple[Host, ...], ...]) -> tuple[Tier, ...]:
    tiers = []
    for level, tier in enumerate(cluster.levels):
        numbers: dict[tuple[str, ...], int] = {}
        zones = [numbers.setdefault(hosts[0].path[level:], len(numbers)) for hosts in groups]
        beneath = [0] * len(numbers)
        for zone, hosts in zip(zones, groups, strict=True):
            beneath[zone] += len(hosts)
        if len(numbers) > 1:
            rates = (uplink_gb_per_s(cluster, count, level) * 1e9 or inf for count in beneath)
            tiers.append(Tier(tier.name, tuple(zones), tuple(rates)))
    return tuple(tiers)
