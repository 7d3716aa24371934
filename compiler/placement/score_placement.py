"""What the real placement of a layout adds to its step, where racks share thin uplinks."""

from __future__ import annotations

from collections.abc import Callable

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.ir import Cluster, Estimate, Layout, Placement
from parc.compiler.placement.build_placement_problem import TERMS
from parc.compiler.placement.order.choose import QUICK
from parc.compiler.placement.place_ranks import place_ranks

MOST_RANKS = 32_768
"""Above it a placement takes too long to be tried for every candidate."""


def placement_score(pricing: Pricing) -> Callable[[Layout], float] | None:
    """Layout -> seconds that its best arrangement exposes beyond its estimate.

    None where the order of hosts makes no difference: one rack, or full bandwidth at every level,
    and NVLink domains that end at the host.
    """
    cluster = pricing.problem.cluster
    if not _matters(cluster) or cluster.gpus > MOST_RANKS:
        return None
    return lambda layout: _exposed_seconds(pricing, layout)


def _matters(cluster: Cluster) -> bool:
    if cluster.nodes < 2:
        return False
    thin = any(level.oversubscription > 1 for level in cluster.levels)
    return (thin and len(cluster.racks) > 1) or cluster.node.nvlink_domain > cluster.node.gpus


def _exposed_seconds(pricing: Pricing, layout: Layout) -> float:
    """Exposed seconds over uplinks, less what the estimate has for the same traffic."""
    estimate = estimate_layout(pricing, layout)
    placement = place_ranks(pricing.problem, pricing.framework, layout, estimate, QUICK)
    return added_seconds(estimate, placement)


def added_seconds(estimate: Estimate, placement: Placement) -> float:
    """What ``placement`` exposes over shared links beyond what ``estimate`` has for the traffic."""
    return max(placement.proof.exposed_seconds - _fabric_seconds(estimate), 0.0)


def _fabric_seconds(estimate: Estimate) -> float:
    """Terms of the estimate whose traffic leaves the NVLink domain."""
    outside = {TERMS[row.axis] for row in estimate.traffic if row.level == "fabric"}
    return float(sum(getattr(estimate.time, term) for term in sorted(outside)))
