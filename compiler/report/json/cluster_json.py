"""A cluster as plan.json writes it."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Cluster, Fabric, NodeType
from parc.compiler.ir.serialize import as_json
from parc.compiler.topology.hostlist import natural_key

WIRING = ("gpu_numa", "gpu_nics", "rails")
"""Facts of a node type and a fabric that are left out where nobody said them."""


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The cluster with hosts as names; a rack says once which NVLink domains it holds.

    Levels, and the switches above a rack, are there where the spec says something above racks.
    """
    levels = {"levels": as_json(cluster.levels)} if cluster.upper else {}
    return {
        **levels,
        "gpu": as_json(cluster.gpu),
        "node": _without_unknown_wiring(cluster.node),
        "fabric": _without_unknown_wiring(cluster.fabric),
        "racks": [
            {
                "name": rack.name,
                "hosts": [host.name for host in rack.hosts],
                "nvlink_domains": sorted({host.nvlink_domain for host in rack.hosts}),
                **({"above": list(rack.hosts[0].above)} if rack.hosts[0].above else {}),
            }
            for rack in cluster.racks
        ],
        "spare": [host.name for host in cluster.spare],
        "unavailable": list(cluster.unavailable),
        "named": cluster.named,
    }


def _without_unknown_wiring(part: NodeType | Fabric) -> dict[str, Any]:
    """The part; what nobody said about its wiring is left out."""
    return {key: value for key, value in as_json(part).items() if value or key not in WIRING}


def unavailable_hosts(cluster: Cluster) -> dict[str, Any]:
    """Unavailable hosts by name, where there are some: a later replan must not take them."""
    names = sorted(cluster.unavailable, key=natural_key)
    return {"unavailable": names} if names else {}
