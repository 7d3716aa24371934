"""JSON form of a cluster in plan.json."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Cluster, Fabric, NodeType
from parc.compiler.ir.serialize import as_json
from parc.compiler.topology.hostlist import natural_key

WIRING = ("gpu_numa", "gpu_nics", "rails")
"""Fields of a node type and a fabric that are left out if they are unknown."""


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as JSON types: hosts by name, and the NVLink domains per rack.

    Levels, and the switches above a rack, are included only if the spec describes them.
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
    """Return ``part`` as JSON types without unknown wiring fields."""
    return {key: value for key, value in as_json(part).items() if value or key not in WIRING}


def unavailable_hosts(cluster: Cluster) -> dict[str, Any]:
    """Return the names of unavailable hosts; empty if there are none.

    The lock stores them, so that a later replan does not use them.
    """
    names = sorted(cluster.unavailable, key=natural_key)
    return {"unavailable": names} if names else {}
