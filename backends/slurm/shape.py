"""Size of the blocks of hosts that ``--segment`` keeps together."""

from __future__ import annotations

from math import gcd

from parc.backends.shared.rack_runs import contiguous_rack_runs, nvlink_spans_hosts
from parc.compiler.ir import AnyPlan


def segment(plan: AnyPlan) -> int | None:
    """Return the hosts per segment; None if NVLink domains do not span hosts.

    This is the greatest common divisor of the plan's hosts per domain. Without it Slurm fills one
    block and puts the remaining hosts into the next: 18 + 14 instead of 16 + 16.
    """
    if not nvlink_spans_hosts(plan.problem.cluster):
        return None
    size = 0
    for share in _shares(plan).values():
        size = gcd(size, share)
    return size


def _shares(plan: AnyPlan) -> dict[int, int]:
    """Return the hosts per rack, summed over its runs of node ranks."""
    shares: dict[int, int] = {}
    for rack, hosts in contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts):
        shares[rack] = shares.get(rack, 0) + hosts
    return shares
