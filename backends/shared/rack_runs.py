"""Runs of consecutive node ranks on hosts of the same rack or NVLink domain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from parc.compiler.ir import Cluster, Host


def contiguous_rack_runs(cluster: Cluster, hosts: Sequence[Host]) -> tuple[tuple[int, int], ...]:
    """Return (rack number, number of hosts) for each run of consecutive node ranks in one rack.

    ``hosts`` lists the hosts by node rank. Racks are numbered in the order of their first node
    rank. If an NVLink domain contains several hosts, each domain counts as a rack, because Slurm
    has one block and Kubernetes one node label per domain.
    """
    domains = cluster.node.nvlink_spans_hosts
    homes = [host.nvlink_domain if domains else host.rack for host in hosts]
    number: dict[str, int] = {}
    for home in homes:
        number.setdefault(home, len(number))
    return tuple((number[home], len(list(run))) for home, run in groupby(homes))
