"""A cluster as plan.json writes it."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Cluster
from parc.compiler.ir.serialize import as_json


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The cluster with hosts as names; a rack says once which NVLink domains it holds."""
    return {
        "gpu": as_json(cluster.gpu),
        "node": as_json(cluster.node),
        "fabric": as_json(cluster.fabric),
        "racks": [
            {
                "name": rack.name,
                "hosts": [host.name for host in rack.hosts],
                "nvlink_domains": sorted({host.nvlink_domain for host in rack.hosts}),
            }
            for rack in cluster.racks
        ],
        "spare": [host.name for host in cluster.spare],
        "unavailable": list(cluster.unavailable),
        "named": cluster.named,
    }
