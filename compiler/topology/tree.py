"""The cluster as a tree of switches: where two hosts meet, and what leaves a switch."""

from __future__ import annotations

from parc.compiler.ir.cluster import Cluster, Host


def meeting_level(one: Host, other: Host) -> int:
    """Index in ``Cluster.levels`` of the nearest switch that both are under.

    ``len(levels)`` where they meet above the last one; 0 is the leaf, for a host and itself too.
    """
    depth = len(one.path)
    same = (level for level in range(depth) if one.path[level:] == other.path[level:])
    return next(same, depth)


def uplink_gb_per_s(cluster: Cluster, hosts: int, level: int) -> float:
    """One direction, decimal GB/s, out of a switch of ``level`` with ``hosts`` hosts under it."""
    rate = hosts * cluster.node.nics * cluster.node.nic_gbps / 8
    for tier in cluster.levels[: level + 1]:
        rate /= tier.oversubscription
    return rate
