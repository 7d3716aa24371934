"""The shape of a placement: which node ranks share a rack, without saying which rack."""

from __future__ import annotations

from itertools import groupby
from math import gcd

from parc.backends.network import spans_hosts
from parc.compiler.ir import AnyPlan


def runs(plan: AnyPlan) -> tuple[tuple[int, int], ...]:
    """(rack number, hosts) for each run of node ranks in one rack.

    Racks are numbered by first use. Where an NVLink domain spans hosts, it is the rack: Slurm
    then has a block a domain (topology/block).
    """
    domains = spans_hosts(plan.problem.cluster)
    homes = [host.nvlink_domain if domains else host.rack for host in plan.placement.hosts]
    number: dict[str, int] = {}
    for home in homes:
        number.setdefault(home, len(number))
    return tuple((number[home], len(list(run))) for home, run in groupby(homes))


def segment(plan: AnyPlan) -> int | None:
    """Hosts that Slurm must put into one block; None where no NVLink domain spans hosts.

    The greatest size that tiles every domain's share: without it Slurm fills one block and
    spills the rest, 18 + 14 where 16 + 16 was meant.
    """
    if not spans_hosts(plan.problem.cluster):
        return None
    size = 0
    for share in _shares(plan).values():
        size = gcd(size, share)
    return size


def _shares(plan: AnyPlan) -> dict[int, int]:
    """Hosts in each rack, all runs together."""
    shares: dict[int, int] = {}
    for rack, hosts in runs(plan):
        shares[rack] = shares.get(rack, 0) + hosts
    return shares
