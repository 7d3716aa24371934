"""Number of consecutive hosts that ``--segment`` keeps in one block."""

from __future__ import annotations

from math import gcd

from parc.backends.shared.rack_runs import contiguous_rack_runs, nvlink_spans_hosts
from parc.compiler.ir import AnyPlan


def hosts_per_segment(plan: AnyPlan) -> int | None:
    """Return the number of hosts per Slurm segment; None if no NVLink domain spans several hosts.

    The number is the greatest common divisor of the numbers of hosts that the plan uses per domain.
    Without segments Slurm fills one block and puts the remaining hosts into the next, for example
    18 + 14 hosts instead of 16 + 16.
    """
    if not nvlink_spans_hosts(plan.problem.cluster):
        return None
    size = 0
    for share in _hosts_per_rack(plan).values():
        size = gcd(size, share)
    return size


def _hosts_per_rack(plan: AnyPlan) -> dict[int, int]:
    """Return rack number -> number of hosts of the plan in that rack."""
    shares: dict[int, int] = {}
    for rack, hosts in contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts):
        shares[rack] = shares.get(rack, 0) + hosts
    return shares
