"""The shape of a placement: which node ranks share a rack, without saying which rack."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from parc.backends.shared.network import spans_hosts
from parc.compiler.ir import Cluster, Host


def runs(cluster: Cluster, hosts: Sequence[Host]) -> tuple[tuple[int, int], ...]:
    """(rack number, hosts) for each run of node ranks in one rack.

    Racks are numbered by first use. Where an NVLink domain spans hosts, it is the rack: Slurm
    then has a block a domain (topology/block), Kubernetes a label.
    """
    domains = spans_hosts(cluster)
    homes = [host.nvlink_domain if domains else host.rack for host in hosts]
    number: dict[str, int] = {}
    for home in homes:
        number.setdefault(home, len(number))
    return tuple((number[home], len(list(run))) for home, run in groupby(homes))
