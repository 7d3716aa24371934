"""Pipeline of serving jobs: spec -> problem -> layout and estimate -> placement -> plan.

The module is imported on first use, so that training jobs start faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from parc.backends.registry import engine, serving_backend
from parc.compiler.catalog.find_model import Library, find_checkpoint_precision
from parc.compiler.checks.check_serving_plan import check_serving_plan
from parc.compiler.cost.serving.service_intervals import service_intervals
from parc.compiler.cost.serving.stages import stage_caches
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.service_rules import engine_request_limits
from parc.compiler.ir import Cluster, LockedPlan, Model, ServingPlan, ServingProblem
from parc.compiler.placement.place_service import place_service, reusable_hosts
from parc.compiler.resolve.resolve_checkpoint import (
    resolve_weight_format,
    with_checkpoint_of_model,
)
from parc.compiler.resolve.resolve_service import resolve_service
from parc.compiler.search.choose_step_tokens import with_step_tokens
from parc.compiler.search.search_serving_layouts import search_serving_layouts
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import TaskSpec

Watch = Callable[[str], None]
"""Function that is called with the name of each pass when the pass ends."""


def resolve_serving(
    spec: TaskSpec, model: Model, cluster: Cluster, library: Library, sink: Sink
) -> ServingProblem | None:
    """Return the problem that a serving spec describes; None after reporting errors."""
    assert isinstance(spec, ServingSpec)
    named = with_checkpoint_of_model(spec.job, spec.model, model)
    source = spec.model if isinstance(spec.model, str) else spec.model.base or ""
    job = resolve_weight_format(named, model, find_checkpoint_precision(source, library), sink)
    if job is None:
        return None
    spec = spec.model_copy(update={"job": job})
    resolve: Callable[..., ServingProblem | None] = resolve_service
    if spec.job.disaggregate:
        # Imported here, because few services have two pools.
        from parc.compiler.resolve.resolve_pools import resolve_disaggregated

        resolve = resolve_disaggregated
    problem = resolve(spec, model, cluster, library, sink)
    return None if sink.failed() else problem


def plan_service(
    problem: ServingProblem, sink: Sink, after: Watch, locked: LockedPlan | None = None
) -> ServingPlan | None:
    """Return the best valid serving plan that fits into memory and meets the limits of the spec.

    Returns None after reporting errors. If the lock file ``locked`` contains the layout of this
    plan, ranks stay on the hosts in the lock file.
    """
    if problem.pools is not None:
        from parc.compiler.pools_pipeline import plan_pools

        return plan_pools(problem, sink, plan_service)
    target = engine(problem.framework)
    found = search_serving_layouts(problem, target, sink)
    after("search_serving_layouts")
    if found is None:
        return None
    estimate, search = found
    if search.step_tokens is not None:
        problem = with_step_tokens(problem, search.step_tokens.chosen)
    service = problem.service
    is_rate_given = service.traffic.request_rate is not None
    intervals = service_intervals(
        estimate, service.setup.engine.errors, bool(problem.calibration), is_rate_given
    )
    estimate = replace(estimate, intervals=intervals)
    layout = estimate.layout
    limits = engine_request_limits(problem, layout)
    stages = stage_caches(problem, layout, limits.max_model_len)
    hosts = reusable_hosts(problem, layout, locked)
    placement = place_service(problem, target, layout, hosts)
    after("place_service")
    plan = ServingPlan(problem, layout, limits, stages, estimate, placement, search)
    check_service_plan(plan, sink)
    after("check")
    return None if sink.failed() else plan


def check_service_plan(plan: ServingPlan, sink: Sink) -> None:
    """Report problems of a finished serving plan, and settings that its backends cannot express."""
    check_serving_plan(plan, sink)
    for name in sorted({plan.problem.framework, *plan.problem.emit}):
        serving_backend(name).check_serving(plan, sink)
