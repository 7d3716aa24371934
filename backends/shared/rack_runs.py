"""Runs of consecutive node ranks in the same rack or NVLink domain, without names of racks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from parc.compiler.ir import Cluster, Host


def nvlink_spans_hosts(cluster: Cluster) -> bool:
    """Return True if an NVLink domain contains several hosts (such as NVL72)."""
    return cluster.node.link_kind == "nvlink" and cluster.node.nvlink_domain > cluster.node.gpus


def contiguous_rack_runs(cluster: Cluster, hosts: Sequence[Host]) -> tuple[tuple[int, int], ...]:
    """Return (rack number, hosts) per run of consecutive node ranks in the same rack.

    Racks are numbered in order of first use. If NVLink domains span hosts, a domain counts as the
    rack: Slurm then has a block per domain (topology/block), and Kubernetes a node label.
    """
    domains = nvlink_spans_hosts(cluster)
    homes = [host.nvlink_domain if domains else host.rack for host in hosts]
    number: dict[str, int] = {}
    for home in homes:
        number.setdefault(home, len(number))
    return tuple((number[home], len(list(run))) for home, run in groupby(homes))
