"""Layout and host names of an earlier plan -> that plan, estimated for the current problem."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Candidate, Layout, Placement, Plan, Search
from parc.compiler.topology.gpu_order import gpu_order
from parc.compiler.topology.node_groups import ranks_per_node


def adopt_plan(pricing: Pricing, layout: Layout, hosts: Sequence[str]) -> Plan | None:
    """Return the plan of ``layout`` on ``hosts`` by node rank, without a proof of their order.

    None if it is not a valid plan for this problem: the layout breaks a rule, the number of hosts
    does not match, or a host is not usable.
    """
    problem, framework = pricing.problem, pricing.framework
    cluster = problem.cluster
    known = {host.name: host for host in cluster.hosts}
    each = ranks_per_node(cluster.node.gpus, layout.world)
    if len(hosts) * each != layout.world or len(set(hosts)) != len(hosts):
        return None
    if any(name not in known for name in hosts) or layout.order not in framework.orders(problem):
        return None
    if any(rule.broken(problem, layout) for rule in all_rules(problem, framework)):
        return None
    estimate = estimate_layout(pricing, layout)
    dense, expert = framework.meshes(layout)
    placement = Placement(
        order=layout.order,
        dense=dense,
        expert=expert,
        families=framework.families(layout),
        hosts=tuple(known[name] for name in hosts),
        ranks_per_node=each,
        alternatives=(),
        devices=gpu_order(cluster.node, (dense, expert), each),
    )
    seconds, peak = estimate.time.total_seconds, estimate.peak.total_bytes
    candidate = Candidate(layout, seconds, peak, estimate.mfu)
    return Plan(problem, layout, estimate, placement, Search(1, (), (candidate,)))
