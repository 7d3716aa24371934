"""Plans on hosts that are fixed in advance: those of an earlier plan, or of a lock file.

``plan_on_hosts`` returns the plan of a given layout on given hosts, estimated for the current
problem. ``evaluate_hosts`` returns a plan with the cost of its order of hosts, the lower bounds,
and the step time on these hosts. ``keep_hosts`` returns a layout on the hosts of the lock file, if
the layout equals the locked one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.estimate_run import complete_plan
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import (
    Layout,
    LockedPlan,
    Placement,
    PlacementAlternative,
    Plan,
    Search,
)
from parc.compiler.placement.build_placement_problem import (
    placement_problem_of_plan,
    placement_tie_seconds,
)
from parc.compiler.placement.order.lower_bounds import TimeBound
from parc.compiler.placement.order.search_orders import lower_bounds
from parc.compiler.placement.place_ranks import build_proof
from parc.compiler.placement.score_placement import add_placement_seconds
from parc.compiler.placement.try_other_rank_order import PlacedLayout, search_with_chosen_first
from parc.compiler.topology.arrange_hosts import gpu_order
from parc.compiler.topology.node_groups import ranks_per_node


def plan_on_hosts(cost_model: CostModel, layout: Layout, hosts: Sequence[str]) -> Plan | None:
    """Return the plan that runs ``layout`` on ``hosts``, which are listed by node rank.

    No order of the hosts is evaluated: the step time is that at full bandwidth between hosts, until
    ``evaluate_hosts`` adds the placement. Returns None if the layout breaks a rule, if the
    number of hosts does not match the layout, or if a host is not usable.
    """
    problem, framework = cost_model.problem, cost_model.framework
    cluster = problem.cluster
    known = {host.name: host for host in cluster.hosts}
    per_host = ranks_per_node(cluster.node.gpus, layout.world)
    if len(hosts) * per_host != layout.world or len(set(hosts)) != len(hosts):
        return None
    if not known.keys() >= set(hosts) or layout.order not in framework.rank_orders(problem):
        return None
    checked = problem
    if problem.goals.idle_hosts == "allow":
        # With a fixed dp, the rules allow the idle hosts that the search had left for this layout.
        checked = replace(problem, pins=replace(problem.pins, dp=layout.dp))
    if any(rule.broken(checked, layout) for rule in all_rules(checked, framework)):
        return None
    estimate = estimate_layout(cost_model, layout)
    dense, expert = framework.device_meshes(layout)
    placement = Placement(
        order=layout.order,
        dense=dense,
        expert=expert,
        families=framework.group_families(layout),
        hosts=tuple(known[name] for name in hosts),
        ranks_per_node=per_host,
        alternatives=(),
        devices=gpu_order(cluster.node, (dense, expert), per_host),
    )
    candidate = PlacedLayout(layout, estimate, placement).candidate
    # The layout is given, so the search result has a single candidate.
    return complete_plan(cost_model, layout, estimate, placement, Search(1, (), (candidate,)))


def evaluate_hosts(cost_model: CostModel, plan: Plan) -> Plan:
    """Return ``plan`` with the cost of its order of hosts, and with the step time on its hosts."""
    placement = evaluate_placement(plan)
    estimate = add_placement_seconds(cost_model, plan.layout, plan.estimate, placement)
    placed = PlacedLayout(plan.layout, estimate, placement)
    search = search_with_chosen_first(plan.search, placed)
    return complete_plan(cost_model, plan.layout, estimate, placement, search)


def evaluate_placement(plan: Plan) -> Placement:
    """Return the placement of ``plan`` with the cost of the current order of its hosts.

    Every node rank keeps its host. The result also contains the distance of the cost from the lower
    bound over all usable hosts. This function is for hosts that a lock file or a replan determines.
    """
    placement = plan.placement
    problem = placement_problem_of_plan(plan, plan.problem.cluster)
    cost = problem.cost_of_hosts(placement.hosts)
    row = PlacementAlternative(
        "hosts as locked", cost.busiest_bytes, cost.exposed_seconds, chosen=True
    )
    least = lower_bounds(TimeBound(problem))
    proof = build_proof(cost, least, placement_tie_seconds(plan.estimate))
    return replace(placement, alternatives=(row,), proof=proof)


def keep_hosts(
    cost_model: CostModel, layout: Layout, locked: LockedPlan | None
) -> PlacedLayout | None:
    """Return ``layout`` on the hosts of the lock file, with its estimate and placement.

    Returns None if the layout must be placed again: there is no lock, the layout of the lock is
    different, or a host of the lock cannot be used. A different rank order alone does not make a
    layout different, because ``try_other_rank_order`` might have changed the rank order of the
    locked plan.
    """
    if locked is None or not isinstance(locked.layout, Layout):
        return None
    if replace(layout, order=locked.layout.order) != locked.layout:
        return None
    plan = plan_on_hosts(cost_model, locked.layout, locked.hosts)
    if plan is None:
        return None
    plan = evaluate_hosts(cost_model, plan)
    return PlacedLayout(plan.layout, plan.estimate, plan.placement)
