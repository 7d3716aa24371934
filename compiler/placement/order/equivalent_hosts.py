"""Sites: sets of hosts that are equivalent for all links, and the links above them.

Placement assigns node ranks to sites, because exchanging two hosts of a site changes no load.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf

from parc.compiler.ir.cluster import Cluster, Host
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.hostlist import natural_key, natural_sort
from parc.compiler.topology.tree import count_hosts_below_switches, uplink_gb_per_s

SINGLE_HOST = -1
"""Value in ``HostSites.domains`` for a site in which each host is an NVLink domain."""


@frozen
class UplinkTier:
    """Switches of one level, numbered from 0. All hosts below a switch share its uplink."""

    name: str
    zones: tuple[int, ...]
    """Number of the switch above each site."""
    bytes_per_s: tuple[float, ...]
    """Rate of the uplink of every switch, one direction; inf if hosts have no NICs."""


@frozen(slots=False)
class HostSites:
    """Sets of equivalent hosts (sites), sorted so that neighbors share many switches."""

    hosts: tuple[tuple[Host, ...], ...]
    """Hosts of every site, sorted by name."""
    domains: tuple[int, ...]
    """NVLink domain of every site; SINGLE_HOST if each host of the site is an NVLink domain."""
    tiers: tuple[UplinkTier, ...]
    """Levels with more than one switch, the leaf switches first."""
    nic_bytes_per_s: float
    """Rate of all NICs of one host, one direction; inf if hosts have no NICs."""

    @cached_property
    def hosts_per_site(self) -> tuple[int, ...]:
        """Return the number of hosts of every site (set of equivalent hosts)."""
        return tuple(map(len, self.hosts))

    @cached_property
    def multi_host_domains(self) -> bool:
        """Return True if any NVLink domain has several hosts."""
        return any(domain != SINGLE_HOST for domain in self.domains)

    @cached_property
    def site_by_host(self) -> dict[str, int]:
        """Return the site (set of equivalent hosts) of every host, by host name."""
        return {host.name: site for site, hosts in enumerate(self.hosts) for host in hosts}

    @cached_property
    def tree_paths(self) -> tuple[tuple[int, ...], ...]:
        """Return the path of every site (set of equivalent hosts) in the tree of switches.

        A path is a list of numbers: the switch of each tier, the widest tier first; the NVLink
        domain; and the site.
        """
        wide = [tier.zones for tier in reversed(self.tiers)]
        return tuple(zip(*wide, self.domains, range(len(self.hosts)), strict=True))


def sort_hosts_by_switch(cluster: Cluster) -> list[Host]:
    """Return the usable hosts sorted by switch (widest tier first), NVLink domain and name.

    The order of hosts in the spec has no effect on the result. Specs that list the same hosts in
    another order therefore get the same placement.
    """
    leaves: dict[tuple[str, ...], list[Host]] = {}
    for host in cluster.hosts:
        leaves.setdefault(host.switch_path, []).append(host)
    paths = sorted(leaves, key=lambda path: list(map(natural_key, reversed(path))))
    return [host for path in paths for host in _leaf_order(leaves[path])]


def _leaf_order(hosts: list[Host]) -> list[Host]:
    """Return the hosts of one leaf switch sorted by NVLink domain, then by name."""
    # natural_sort is fast for names of one form; a natural_key per host would take most of the
    # time of placing 16,384 hosts.
    names = {name for host in hosts for name in (host.nvlink_domain, host.name)}
    place = {name: number for number, name in enumerate(natural_sort(names))}
    return sorted(hosts, key=lambda host: (place[host.nvlink_domain], place[host.name]))


def group_hosts_into_sites(cluster: Cluster, hosts: Sequence[Host]) -> HostSites:
    """Return the sites (sets of equivalent hosts) of ``cluster``, and the links above them.

    ``hosts`` must be the result of ``sort_hosts_by_switch``. If NVLink domains end at the host, all
    hosts of a leaf switch are one site. Otherwise each NVLink domain is a site. A domain with hosts
    below several leaf switches is divided into one site per leaf switch.
    """
    domain_hosts: dict[str, int] = {}
    for host in hosts:
        domain_hosts[host.nvlink_domain] = domain_hosts.get(host.nvlink_domain, 0) + 1
    members: dict[tuple[tuple[str, ...], str | None], list[Host]] = {}
    for host in hosts:
        domain = host.nvlink_domain if domain_hosts[host.nvlink_domain] > 1 else None
        members.setdefault((host.switch_path, domain), []).append(host)
    domains: dict[str, int] = {}
    numbers = [
        SINGLE_HOST if name is None else domains.setdefault(name, len(domains))
        for _, name in members
    ]
    groups = tuple(map(tuple, members.values()))
    # Zero without NICs: then no traffic leaves a host, and inf avoids a division by zero.
    rate = cluster.node.nics * cluster.node.nic_gbps / 8 * 1e9
    return HostSites(groups, tuple(numbers), _uplink_tiers(cluster, groups), rate or inf)


def _uplink_tiers(cluster: Cluster, groups: tuple[tuple[Host, ...], ...]) -> tuple[UplinkTier, ...]:
    """Return the tiers that have more than one switch.

    A tier with a single switch is left out, because no traffic leaves this switch.
    """
    tiers = []
    for level, tier in enumerate(cluster.switch_tiers):
        numbers: dict[tuple[str, ...], int] = {}
        # The whole path identifies a switch, because two pods may each have a leaf1.
        zones = [numbers.setdefault(hosts[0].switch_path[level:], len(numbers)) for hosts in groups]
        beneath = [0] * len(numbers)
        for switch, count in count_hosts_below_switches(cluster, level).items():
            if switch in numbers:
                beneath[numbers[switch]] = count
        if len(numbers) > 1:
            rates = (uplink_gb_per_s(cluster, count, level) * 1e9 or inf for count in beneath)
            tiers.append(UplinkTier(tier.name, tuple(zones), tuple(rates)))
    return tuple(tiers)
