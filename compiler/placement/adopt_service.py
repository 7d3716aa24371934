"""A serving layout and host names of before -> the plan that they were, priced for today."""

from __future__ import annotations

from collections.abc import Sequence

from parc.backends.base import Engine
from parc.compiler.cost.serving.stages import stage_caches
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.evaluate.limit_service import limit_service
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingLayout, ServingPlan, ServingProblem, ServingSearch
from parc.compiler.ir.serving import even_stages
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.placement.place_service import place_service


def adopt_service(
    problem: ServingProblem, engine: Engine, layout: ServingLayout, hosts: Sequence[str]
) -> ServingPlan | None:
    """The plan of ``layout`` on ``hosts`` by node rank.

    None where the layout breaks a rule of the problem or splits another model, or a host is none
    that it may use.
    """
    known = {host.name: host for host in problem.cluster.hosts}
    stages = layout.stages or even_stages(problem.model.layers, layout.pp)
    whole = len(stages) == layout.pp and sum(stages) == problem.model.layers
    if not whole or not known.keys() >= set(hosts):
        return None
    if any(rule.broken(problem, layout) for rule in service_rules(problem, engine)):
        return None
    service = problem.service
    found = estimate_serving(problem.model, problem.cluster, service.setup, layout, service.traffic)
    limits = limit_service(problem, layout)
    candidate = ServingCandidate(
        layout,
        found.ttft_seconds,
        found.tpot_seconds,
        found.tokens_per_second,
        found.memory.weights_bytes,
    )
    return ServingPlan(
        problem,
        layout,
        limits,
        stage_caches(problem, layout, limits.max_model_len),
        found,
        place_service(problem, engine, layout, [known[name] for name in hosts]),
        ServingSearch(1, (), (candidate,), ()),
    )
