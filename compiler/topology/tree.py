"""The cluster as a tree: levels from GPU to spine, common switches, uplinks, NVLink domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from parc.compiler.ir.cluster import Cluster, Host
from parc.compiler.ir.frozen import frozen


@frozen
class TreeLevel:
    """Level of the cluster tree. Two GPUs communicate over their lowest common level."""

    name: str
    """One of device, nvlink_domain, host, rail, or the name of a tier of switches."""
    gpus: int
    """Largest number of GPUs below one switch or in one domain of the level. A rail has the GPUs of
    the largest leaf, divided by the number of rails."""
    gb_per_s_per_gpu: float
    """Decimal GB/s per GPU, one direction, if all GPUs send across this level at once."""
    latency_seconds: float
    """One-way latency of a small message; 0.0 inside a host, where fitted times include it."""
    oversubscription: float
    """Oversubscription of the uplinks of this level; 1.0 inside a host."""


def tree_levels(cluster: Cluster) -> tuple[TreeLevel, ...]:
    """Return the levels of the cluster tree, from device to top switch.

    The levels are device, host, NVLink domain, rail and tiers of switches. An NVLink domain of
    several hosts comes after the host, a smaller domain before the host. The rate per GPU of a tier
    is the rate of the NICs per GPU, divided by the oversubscription of all lower tiers.

    A rail is a switch that connects the GPUs with the same index in their hosts. Traffic between
    rails below one leaf switch also needs a hop over NVLink, which the rate of the leaf ignores.
    """
    node, rate = cluster.node, cluster.node.network_gb_per_s_per_gpu
    inside = [TreeLevel("device", 1, cluster.gpu.memory_gb_per_s, 0.0, 1.0)]
    if node.nvlink_domain > 1:
        hosts = max(Counter(host.nvlink_domain for host in cluster.hosts).values(), default=1)
        domain = min(node.nvlink_domain, hosts * node.gpus)
        inside.append(TreeLevel("nvlink_domain", domain, node.link_gb_per_s, 0.0, 1.0))
    inside.append(TreeLevel("host", node.gpus, node.link_gb_per_s, 0.0, 1.0))
    # A domain that ends at the host sorts before the host, because Python's sort is stable.
    inside.sort(key=lambda level: level.gpus)
    tiers = []
    for index, level in enumerate(cluster.switch_tiers):
        under = _hosts_below_largest_switch(cluster, index) * node.gpus
        if index == 0 and cluster.fabric.rails > 1:
            own = max(under // cluster.fabric.rails, 1)
            tiers.append(TreeLevel("rail", own, rate, level.latency_seconds, 1.0))
        tiers.append(
            TreeLevel(level.name, under, rate, level.latency_seconds, level.oversubscription)
        )
        # The oversubscription of a level reduces its uplinks, so it counts from the next level on.
        rate /= level.oversubscription
    return (*inside, *tiers)


def _hosts_below_largest_switch(cluster: Cluster, level: int) -> int:
    """Return the number of hosts below the largest switch at ``level``."""
    return max(Counter(number_switches(cluster.hosts, level)).values(), default=0)


def common_switch_level(host: Host, other: Host) -> int:
    """Return the level of the lowest common switch of two hosts.

    The level is an index in ``Cluster.switch_tiers``; level 0 is the leaf switch. The result is 0
    if ``host`` and ``other`` are the same host, and ``len(Cluster.switch_tiers)`` if they have no
    common switch.
    """
    depth = len(host.switch_path)
    same = (
        level for level in range(depth) if host.switch_path[level:] == other.switch_path[level:]
    )
    return next(same, depth)


def number_switches(hosts: Iterable[Host], level: int) -> tuple[int, ...]:
    """Return the number of the switch at ``level`` above each host.

    Switches are numbered from 0 by first appearance. The result can be used as the argument
    ``zone`` of ``uplinks.messages_leaving_zones``.
    """
    # The key is the whole path upward, because two pods may each have a switch called leaf1.
    numbers: dict[tuple[str, ...], int] = {}
    return tuple(numbers.setdefault(host.switch_path[level:], len(numbers)) for host in hosts)


def count_hosts_below_switches(cluster: Cluster, level: int) -> dict[tuple[str, ...], int]:
    """Return the number of hosts below each switch at ``level``, keyed by the switch's path.

    Spare and unavailable hosts count, because uplinks are built for all hosts of a switch.
    """
    usable: dict[tuple[str, ...], int] = {}
    for rack in cluster.racks:
        for host in rack.hosts:
            usable[host.switch_path] = usable.get(host.switch_path, 0) + 1
    connected = dict(cluster.wired_hosts)
    found: dict[tuple[str, ...], int] = {}
    for path in connected | usable:
        # A replan can only use hosts of the spec; tests build clusters without ``wired_hosts``.
        count = max(connected.get(path, 0), usable.get(path, 0))
        found[path[level:]] = found.get(path[level:], 0) + count
    return found


def uplink_gb_per_s(cluster: Cluster, hosts: int, level: int) -> float:
    """Return the rate of the uplinks of a switch in decimal GB/s, one direction.

    The switch is at ``level`` and has ``hosts`` hosts below. The result is the sum of the rates of
    all NICs below the switch, divided by the oversubscription of each level up to ``level``.
    """
    rate = hosts * cluster.node.nics * cluster.node.nic_gbps / 8
    for tier in cluster.switch_tiers[: level + 1]:
        rate /= tier.oversubscription
    return rate


def nvlink_domain_names(rack: str, hosts: list[str], hosts_per_domain: int) -> list[str]:
    """Return the name of the NVLink domain of every host of a rack.

    A domain of a single host has the name of the host. Otherwise each domain consists of
    ``hosts_per_domain`` consecutive hosts. A single domain has the name of the rack; several
    domains are called ``<rack>.0``, ``<rack>.1`` and so on.
    """
    if hosts_per_domain <= 1:
        return hosts
    if len(hosts) <= hosts_per_domain:
        return [rack] * len(hosts)
    return [f"{rack}.{place // hosts_per_domain}" for place in range(len(hosts))]
