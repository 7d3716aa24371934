"""Plan -> its placement with the cost of its order of hosts and the lower bounds."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import Placement, PlacementAlternative, Plan
from parc.compiler.placement.build_placement_problem import build_placement_problem
from parc.compiler.placement.order.bound import TimeBound
from parc.compiler.placement.order.search_orders import lower_bounds
from parc.compiler.placement.place_ranks import build_proof


def evaluate_placement(plan: Plan) -> Placement:
    """Return the placement of ``plan`` with its proof over the usable hosts; no host moves.

    Used for plans whose hosts are given, by a lock file or a replan: its only alternative is the
    given order.
    """
    placement, cluster = plan.placement, plan.problem.cluster
    meshes = (placement.dense, placement.expert)
    problem = build_placement_problem(
        cluster, meshes, placement.ranks_per_node, plan.layout, plan.estimate
    )
    site = problem.sites.site_of
    cost = problem.cost([site[host.name] for host in placement.hosts])
    row = PlacementAlternative(
        "hosts as locked", cost.busiest_bytes, cost.exposed_seconds, chosen=True
    )
    proof = build_proof(cost, lower_bounds(TimeBound(problem)), problem.tie_seconds)
    return replace(placement, alternatives=(row,), proof=proof)
