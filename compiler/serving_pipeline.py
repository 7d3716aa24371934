"""The branch of the pipeline for jobs that serve: problem -> layouts -> plan, one screen.

Loaded on first use: a job that trains does not pay for it at start-up.
"""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.registry import engine, serving_backend
from parc.compiler.checks.check_serving_placement import check_serving_placement
from parc.compiler.cost.serving.stages import stage_caches
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.limit_service import limit_service
from parc.compiler.ir import (
    Cluster,
    Host,
    LockedPlan,
    Model,
    ServingLayout,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.placement.place_service import place_service
from parc.compiler.resolve.resolve_service import resolve_service
from parc.compiler.search.search_services import search_services
from parc.compiler.spec.serving_spec import ServingSpec
from parc.compiler.spec.spec import TaskSpec

Watch = Callable[[str], None]


def resolve_serving(
    spec: TaskSpec, model: Model, cluster: Cluster, sink: Sink, after: Watch
) -> ServingProblem | None:
    """Formats, limits and traffic filled in. None: see the sink."""
    assert isinstance(spec, ServingSpec)
    problem = resolve_service(spec, model, cluster, sink)
    after("resolve_service")
    return None if sink.failed() else problem


def plan_service(
    problem: ServingProblem, sink: Sink, after: Watch, locked: LockedPlan | None = None
) -> ServingPlan | None:
    """Problem to plan: the best legal layout that fits and keeps the limits. None: see the sink.

    ``locked``: the hosts to keep, where the layout is the same.
    """
    target = engine(problem.framework)
    found = search_services(problem, target, sink)
    after("search_services")
    if found is None:
        return None
    estimate, search = found
    limits = limit_service(problem, estimate.layout)
    stages = stage_caches(problem, estimate.layout, limits.max_model_len)
    kept = kept_hosts(problem, estimate.layout, locked)
    placement = place_service(problem, target, estimate.layout, kept)
    after("place_service")
    plan = ServingPlan(problem, estimate.layout, limits, stages, estimate, placement, search)
    check_service_plan(plan, sink)
    after("check")
    return None if sink.failed() else plan


def check_service_plan(plan: ServingPlan, sink: Sink) -> None:
    """Report what is wrong with a finished plan, and what a backend cannot say."""
    check_serving_placement(plan, sink)
    for name in sorted({plan.problem.framework, *plan.problem.emit}):
        serving_backend(name).check_serving(plan, sink)


def kept_hosts(
    problem: ServingProblem, layout: ServingLayout, locked: LockedPlan | None
) -> tuple[Host, ...]:
    """Hosts of the lock by node rank; none where it has another layout or a host is gone."""
    if locked is None or locked.layout != layout:
        return ()
    known = {host.name: host for host in problem.cluster.hosts}
    if not known.keys() >= set(locked.hosts):
        return ()
    return tuple(known[name] for name in locked.hosts)
