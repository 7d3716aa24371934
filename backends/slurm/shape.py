"""Blocks of hosts that Slurm is asked to keep together."""

from __future__ import annotations

from math import gcd

from parc.backends.shared.rack_runs import contiguous_rack_runs, nvlink_spans_hosts
from parc.compiler.ir import AnyPlan


def segment(plan: AnyPlan) -> int | None:
    """Hosts that Slurm must put into one block; None where no NVLink domain spans hosts.

    The greatest size that tiles every domain's share: without it Slurm fills one block and
    spills the rest, 18 + 14 where 16 + 16 was meant.
    """
    if not nvlink_spans_hosts(plan.problem.cluster):
        return None
    size = 0
    for share in _shares(plan).values():
        size = gcd(size, share)
    return size


def _shares(plan: AnyPlan) -> dict[int, int]:
    """Hosts in each rack, all runs together."""
    shares: dict[int, int] = {}
    for rack, hosts in contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts):
        shares[rack] = shares.get(rack, 0) + hosts
    return shares
