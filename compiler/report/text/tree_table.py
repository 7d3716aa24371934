"""The cluster as a tree of levels, as text and as JSON."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Cluster
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.formatting import table, without_exponent
from parc.compiler.topology.tree import tree_levels

INSIDE = {"device": "GPU", "nvlink_domain": "NVLink domain"}
"""Names of levels in words; the others are their own."""


def tree_text(cluster: Cluster) -> str:
    """A row a level, nearest first; its first line says what NICs a host has, and where."""
    node = cluster.node
    rows = [
        (
            INSIDE.get(level.name, level.name),
            f"{level.gpus:,}",
            without_exponent(level.gb_per_s_per_gpu),
            f"{level.latency_seconds * 1e6:.3g} us" if level.latency_seconds else "-",
            f"{level.oversubscription:g}" if level.latency_seconds else "-",
        )
        for level in tree_levels(cluster)
    ]
    numa = f", {len(set(node.gpu_numa))} NUMA nodes" if node.gpu_numa else ""
    head = ("level", "GPUs", "GB/s a GPU", "latency", "oversubscription")
    title = f"levels of the cluster ({node.nics} NICs of {node.nic_gbps:g} Gb/s a host{numa})\n"
    return title + table(head, rows)


def tree_document(cluster: Cluster) -> list[dict[str, Any]]:
    """The same as JSON types."""
    return [as_json(level) for level in tree_levels(cluster)]
