"""The cluster as a tree: its levels from device to spine, and who shares a switch with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from parc.compiler.ir.cluster import Cluster, Host


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """One level of the whole tree; two GPUs that meet there talk over its links."""

    name: str
    """device, nvlink_domain, host, rail, or the name of a tier of switches."""
    gpus: int
    """GPUs that meet there, under the fullest switch of a tier; a rail has its share of a leaf."""
    gb_per_s_per_gpu: float
    """One direction, decimal GB/s, of every GPU when all of them talk across this level at once."""
    latency_seconds: float
    """One way, small message; 0.0 where the cost model has a figure of its own (inside a host)."""
    oversubscription: float
    """Upward out of this level; 1.0 inside a host."""


def tree_levels(cluster: Cluster) -> tuple[TreeLevel, ...]:
    """Every level, nearest first: device, host and NVLink domain, rail, the tiers of switches.

    An NVLink domain that spans hosts stands above the host, one that ends in it below. What a
    tier carries per GPU is the NICs' share over the oversubscription of all tiers beneath. On a
    rail a GPU meets those of its own index one switch away; the others of its leaf are a hop over
    NVLink farther, which the figures of the leaf leave out.
    """
    node, rate = cluster.node, cluster.node.network_gb_per_s_per_gpu
    inside = [TreeLevel("device", 1, cluster.gpu.memory_gb_per_s, 0.0, 1.0)]
    if node.nvlink_domain > 1:
        hosts = max(Counter(host.nvlink_domain for host in cluster.hosts).values(), default=1)
        domain = min(node.nvlink_domain, hosts * node.gpus)
        inside.append(TreeLevel("nvlink_domain", domain, node.link_gb_per_s, 0.0, 1.0))
    inside.append(TreeLevel("host", node.gpus, node.link_gb_per_s, 0.0, 1.0))
    inside.sort(key=lambda level: level.gpus)
    tiers = []
    for index, level in enumerate(cluster.levels):
        under = _most_hosts(cluster, index) * node.gpus
        if index == 0 and cluster.fabric.rails > 1:
            own = max(under // cluster.fabric.rails, 1)
            tiers.append(TreeLevel("rail", own, rate, level.latency_seconds, 1.0))
        tiers.append(
            TreeLevel(level.name, under, rate, level.latency_seconds, level.oversubscription)
        )
        rate /= level.oversubscription
    return (*inside, *tiers)


def _most_hosts(cluster: Cluster, level: int) -> int:
    """Hosts under the fullest switch of a level."""
    return max(Counter(zones(cluster.hosts, level)).values(), default=0)


def meeting_level(one: Host, other: Host) -> int:
    """Index in ``Cluster.levels`` of the nearest switch that both are under.

    ``len(levels)`` where they meet above the last one; 0 is the leaf, for a host and itself too.
    """
    depth = len(one.path)
    same = (level for level in range(depth) if one.path[level:] == other.path[level:])
    return next(same, depth)


def zones(hosts: Iterable[Host], level: int) -> tuple[int, ...]:
    """For each host the number of its switch at ``level``, numbered as they first appear.

    The form that ``uplinks.zone_egress`` takes. A switch is told from others by everything above
    it too: two pods may both have a leaf1.
    """
    numbers: dict[tuple[str, ...], int] = {}
    return tuple(numbers.setdefault(host.path[level:], len(numbers)) for host in hosts)


def uplink_gb_per_s(cluster: Cluster, hosts: int, level: int) -> float:
    """One direction, decimal GB/s, out of a switch of ``level`` with ``hosts`` hosts under it."""
    rate = hosts * cluster.node.nics * cluster.node.nic_gbps / 8
    for tier in cluster.levels[: level + 1]:
        rate /= tier.oversubscription
    return rate
