"""Plan -> its placement with what its order of hosts costs, and how good that is."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import Crossing, Placement, Plan
from parc.compiler.placement.build_placement_problem import pose_placement
from parc.compiler.placement.order.choose import least_cost
from parc.compiler.placement.place_ranks import proof_of


def judge_placement(plan: Plan) -> Placement:
    """The placement of ``plan`` with its proof over the usable hosts; no host moves."""
    placement, cluster = plan.placement, plan.problem.cluster
    meshes = (placement.dense, placement.expert)
    posed = pose_placement(cluster, meshes, placement.ranks_per_node, plan.layout, plan.estimate)
    site = posed.question.sites.site_of
    cost = posed.question.cost([site[host.name] for host in placement.hosts])
    row = Crossing("hosts as locked", cost.busiest_bytes, cost.exposed_seconds, chosen=True)
    proof = proof_of(cost, least_cost(posed.bound), posed.question.tie_seconds)
    return replace(placement, alternatives=(row,), proof=proof)
