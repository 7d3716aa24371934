"""Seconds that the placement of a layout adds to its estimated step time.

The estimate of a layout assumes full bandwidth between hosts. On oversubscribed uplinks, or with
NVLink domains of several hosts, the step time also depends on which hosts share a switch.
"""

from __future__ import annotations

from collections.abc import Callable

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.evaluate.estimate_layout import estimate_layout, with_placement_seconds
from parc.compiler.ir import Cluster, Estimate, Layout, Placement
from parc.compiler.placement.build_placement_problem import TERMS, build_placement_problem
from parc.compiler.placement.order.search_orders import QUICK
from parc.compiler.placement.place_ranks import place_ranks

MOST_RANKS = 32_768
"""Number of ranks above which candidates are not placed, because placement would dominate the time
of a search."""


def placement_scorer(cost_model: CostModel) -> Callable[[Layout], float] | None:
    """Return a function: layout -> seconds per step that its placement adds to the estimate.

    Returns None if the cluster has more than MOST_RANKS GPUs, or if the order of hosts makes no
    difference. The order makes no difference if NVLink domains end at the host and, in addition,
    the cluster has only one rack or has full bandwidth at every level.
    """
    cluster = cost_model.problem.cluster
    if not _order_matters(cluster) or cluster.gpus > MOST_RANKS:
        return None
    return lambda layout: _seconds_added_by_layout(cost_model, layout)


def _order_matters(cluster: Cluster) -> bool:
    """Return True if the step time can depend on the order of hosts."""
    if cluster.nodes < 2:
        return False
    # At full bandwidth at every level, it does not matter which switches traffic crosses.
    thin = any(level.oversubscription > 1 for level in cluster.switch_tiers)
    return (thin and len(cluster.racks) > 1) or cluster.node.nvlink_domain > cluster.node.gpus


def _seconds_added_by_layout(cost_model: CostModel, layout: Layout) -> float:
    """Return the seconds that a quickly searched placement of ``layout`` adds to its step time."""
    estimate = estimate_layout(cost_model, layout)
    placement = place_ranks(cost_model.problem, cost_model.framework, layout, estimate, QUICK)
    return _seconds_added(estimate, placement.proof.exposed_seconds)


def add_placement_seconds(
    cost_model: CostModel, layout: Layout, estimate: Estimate, placement: Placement
) -> Estimate:
    """Return the estimate of ``layout`` on the hosts of ``placement``.

    Its step includes the seconds that groups wait for links that they share on these hosts.
    """
    seconds = _seconds_added(estimate, placement.proof.exposed_seconds)
    return with_placement_seconds(cost_model, layout, estimate, seconds)


def step_seconds_on_hosts(cost_model: CostModel, layout: Layout, placement: Placement) -> float:
    """Return the step time in seconds of ``layout`` on the hosts of ``placement``.

    The parallel sizes of ``layout`` must be those of ``placement``, so that alternatives to the
    layout of a plan can be compared with the plan.
    """
    cluster = cost_model.problem.cluster
    estimate = estimate_layout(cost_model, layout)
    meshes = (placement.dense, placement.expert)
    problem = build_placement_problem(cluster, meshes, layout, estimate)
    site = problem.sites.site_by_host
    exposed = problem.cost([site[host.name] for host in placement.hosts]).exposed_seconds
    return estimate.time.total_seconds + _seconds_added(estimate, exposed)


def _seconds_added(estimate: Estimate, exposed_seconds: float) -> float:
    """Return the part of ``exposed_seconds`` that ``estimate`` does not contain; at least 0.

    Only traffic that leaves the NVLink domain is compared.
    """
    # Negative if the estimate has more: it includes latencies, placement only bytes over links.
    return max(exposed_seconds - _fabric_seconds(estimate), 0.0)


def _fabric_seconds(estimate: Estimate) -> float:
    """Return the exposed seconds of the estimate for traffic that leaves the NVLink domain."""
    outside = {TERMS[row.axis] for row in estimate.traffic if row.level == "fabric"}
    return float(sum(getattr(estimate.time, term) for term in sorted(outside)))
