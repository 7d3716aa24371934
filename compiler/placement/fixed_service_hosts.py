"""Plan of a service on hosts that are fixed in advance, such as those of an earlier plan."""

from __future__ import annotations

from collections.abc import Sequence

from parc.backends.base import Engine
from parc.compiler.cost.serving.stages import stage_caches, stage_layers
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.evaluate.service_rules import engine_request_limits, service_rules
from parc.compiler.ir import ServingLayout, ServingPlan, ServingProblem, ServingSearch
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.placement.place_service import place_service


def serving_plan_on_hosts(
    problem: ServingProblem, engine: Engine, layout: ServingLayout, hosts: Sequence[str]
) -> ServingPlan | None:
    """Return the serving plan that runs ``layout`` on ``hosts``, which are listed by node rank.

    Returns None if the layout breaks a rule, if a host is not usable, or if the pipeline stages do
    not contain every layer of the model exactly once.
    """
    available = {host.name: host for host in problem.cluster.hosts}
    stages = stage_layers(problem, layout)
    has_all_layers = len(stages) == layout.pp and sum(stages) == problem.model.layers
    if not has_all_layers or not available.keys() >= set(hosts):
        return None
    if any(rule.broken(problem, layout) for rule in service_rules(problem, engine)):
        return None
    service = problem.service
    found = estimate_serving(problem.model, problem.cluster, service.setup, layout, service.traffic)
    limits = engine_request_limits(problem, layout)
    return ServingPlan(
        problem,
        layout,
        limits,
        stage_caches(problem, layout, limits.max_model_len),
        found,
        place_service(problem, engine, layout, [available[name] for name in hosts]),
        ServingSearch(1, (), (ServingCandidate.from_estimate(found),), ()),
    )
