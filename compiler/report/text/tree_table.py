"""Levels of the cluster as text and as JSON types."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Cluster
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.formatting import table, without_exponent
from parc.compiler.topology.tree import tree_levels

INSIDE = {"device": "GPU", "nvlink_domain": "NVLink domain"}
"""Level -> text, if the name of the level is not used as it is."""


def tree_text(cluster: Cluster) -> str:
    """Return a table with one row per level, innermost first, and the NICs per host."""
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
    head = ("level", "GPUs", "GB/s per GPU", "latency", "oversubscription")
    title = f"Cluster levels ({node.nics} NICs of {node.nic_gbps:g} Gb/s per host{numa})\n"
    return title + table(head, rows)


def tree_document(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the levels as JSON types."""
    return [as_json(level) for level in tree_levels(cluster)]
