"""Pipeline of ``parc replan``: spec, parc.lock and drained hosts -> the plan on other hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from parc.backends.registry import engine, framework_of_problem
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import (
    AnyPlan,
    AnyProblem,
    Layout,
    LockedPlan,
    Plan,
    Problem,
    ServingLayout,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.pipeline import Watch, check_plan, ignore_pass_end, plan_job, resolve_spec
from parc.compiler.placement.find_vacancies import restore_cluster
from parc.compiler.placement.fixed_hosts import evaluate_hosts, plan_on_hosts
from parc.compiler.placement.replan_hosts import (
    ReplannedService,
    ReplannedTraining,
    replan_hosts,
    replan_pools,
    replan_service,
)
from parc.compiler.report.json.locked_plan import LockUnreadable, locked_plan, locked_pools
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.topology.host_list_findings import host_list_finding
from parc.compiler.topology.hostlist import HostlistError, expand_host_list

AnyReplanned = ReplannedTraining | ReplannedService
NO_UNAVAILABLE_HOSTS = "cluster.unavailable=[]"
"""Override of the spec that makes unavailable hosts usable again."""


@frozen
class HostReplacement:
    """Arguments of a replan: the hosts to drain, and a function that reads the lock file."""

    hosts: tuple[str, ...]
    """Host lists, such as ``r01n[02-03]``."""
    read_lock: Callable[[str], str | None]
    """Function that returns the text of the parc.lock of the job with a given name; None if the job
    has no lock file."""


@frozen
class PreviousPlan:
    """Plan that a replan starts from, and whose drained hosts it replaces."""

    plan: AnyPlan
    locked: bool
    """True if the plan is from a lock file, False if the spec was compiled for the replan."""
    unavailable: tuple[str, ...]
    """Hosts that were unavailable before this drain."""


def replan_spec(
    source: SpecSource,
    overrides: Sequence[str],
    request: HostReplacement,
    sink: Sink,
    after: Watch = ignore_pass_end,
) -> tuple[AnyReplanned, PreviousPlan] | None:
    """Return (plan with the drained hosts replaced, previous plan); None after reporting errors.

    The previous plan is read from the lock file. If the lock file is missing, or if its plan is not
    valid for this spec, the previous plan is compiled from the spec.
    """
    names = _expand_drained(request.hosts, sink)
    problem = resolve_spec(source, overrides, sink, after) if names is not None else None
    if names is None or problem is None:
        return None
    lock = request.read_lock(problem.name)
    if isinstance(problem, ServingProblem) and problem.pools is not None:
        pools = _locked_pools(source, overrides, problem, lock) or _compile_pools(problem, sink)
        if pools is not None:
            replan_pools(pools, problem.cluster, names, sink)
        return None
    previous = None
    if lock is not None:
        previous = _read_locked_plan(source, overrides, problem, lock)
        after("plan_on_hosts")
    previous = previous or _compile_plan(problem, sink, after)
    if previous is None:
        return None
    found = _replace_hosts(previous, names, sink)
    after("replan_hosts")
    if found is None:
        return None
    found = _recheck_locked_plan(problem, found, sink, after)
    return None if sink.failed() else (found, previous)


def _expand_drained(lists: Sequence[str], sink: Sink) -> list[str] | None:
    """Return the host names in all host lists; None after reporting a malformed list (H01)."""
    names: list[str] = []
    for text in lists:
        try:
            names += expand_host_list(text)
        except HostlistError as error:
            span = Span("--drain", 1, error.column, error.length)
            code, finding = host_list_finding(text, error)
            sink.report(code, finding, span=span)
    return None if sink.failed() else names


def _read_locked_plan(
    source: SpecSource, overrides: Sequence[str], problem: AnyProblem, lock: str
) -> PreviousPlan | None:
    """Return the plan in the lock file; None if it is unreadable or not valid for the spec."""
    try:
        found = locked_plan(lock)
    except LockUnreadable:
        return None
    unavailable = (*problem.cluster.unavailable, *found.unavailable)
    plan = _plan_on_locked_hosts(problem, found)
    if plan is None and problem.cluster.unavailable:
        # Hosts of the lock may have become unavailable in the spec since. The previous plan needs
        # their racks, so resolve the cluster with all hosts.
        complete = resolve_spec(source, (*overrides, NO_UNAVAILABLE_HOSTS), Sink())
        plan = None if complete is None else _plan_on_locked_hosts(complete, found)
    return None if plan is None else PreviousPlan(plan, locked=True, unavailable=unavailable)


def _locked_pools(
    source: SpecSource, overrides: Sequence[str], problem: ServingProblem, lock: str | None
) -> tuple[ServingPlan, ...] | None:
    """Return the plans of both pools in the lock file; None if they are not valid for the spec."""
    try:
        locked = locked_pools(lock or "")
    except LockUnreadable:
        return None
    # Hosts of the lock may have become unavailable in the spec since.
    complete = resolve_spec(source, (*overrides, NO_UNAVAILABLE_HOSTS), Sink())
    for whole in (problem, complete):
        if isinstance(whole, ServingProblem) and whole.pools is not None:
            problems = (whole.pools.prefill, whole.pools.decode)
            found = tuple(map(_plan_on_locked_hosts, problems, locked))
            plans = tuple(plan for plan in found if isinstance(plan, ServingPlan))
            if len(plans) == len(locked):
                return plans
    return None


def _compile_pools(problem: ServingProblem, sink: Sink) -> tuple[ServingPlan, ...] | None:
    """Return the plans of both pools of the spec; None after reporting errors.

    It is an error if engines that serve whole requests are better (V46).
    """
    plan = plan_job(problem, sink)
    if not isinstance(plan, ServingPlan):
        return None
    if plan.pair is None:
        finding = Finding(
            "parc replan cannot choose between two pools and engines that serve whole requests",
            label="engines that serve whole requests are better here",
            fix="job.disaggregate: false",
        )
        sink.report("V46", finding, at="job.disaggregate")
        return None
    return plan.pools


def _plan_on_locked_hosts(problem: AnyProblem, locked: LockedPlan) -> AnyPlan | None:
    """Return the plan in the lock file, estimated for ``problem``; None if it is not valid."""
    cluster, layout = restore_cluster(problem.cluster, locked), locked.layout
    if cluster is None:
        return None
    if isinstance(problem, Problem) and isinstance(layout, Layout):
        problem = replace(problem, cluster=cluster)
        return plan_on_hosts(
            cost_model_for(problem, framework_of_problem(problem)), layout, locked.hosts
        )
    if isinstance(problem, ServingProblem) and isinstance(layout, ServingLayout):
        from parc.compiler.placement.fixed_service_hosts import serving_plan_on_hosts

        problem = replace(problem, cluster=cluster)
        return serving_plan_on_hosts(problem, engine(problem.framework), layout, locked.hosts)
    return None


def _compile_plan(problem: AnyProblem, sink: Sink, after: Watch) -> PreviousPlan | None:
    """Return the plan of the spec, computed as if no host were drained; None after an error."""
    plan = plan_job(problem, sink, after)
    return None if plan is None else PreviousPlan(plan, locked=False, unavailable=())


def _replace_hosts(previous: PreviousPlan, names: list[str], sink: Sink) -> AnyReplanned | None:
    """Return a plan in which no rank runs on ``names`` or on the hosts that were drained before.

    Return None after reporting errors.
    """
    # Hosts of earlier replans stay drained, although the spec may still list them as usable.
    drained = (*previous.unavailable, *names)
    if isinstance(previous.plan, Plan):
        return replan_hosts(previous.plan, drained, sink)
    return replan_service(previous.plan, drained, sink)


def _recheck_locked_plan(
    problem: AnyProblem, replanned: AnyReplanned, sink: Sink, after: Watch
) -> AnyReplanned:
    """Return ``replanned`` with the plan that a later ``parc compile --locked`` computes.

    A replan thus writes the same bytes as that compile. If the compile would choose another layout
    or other hosts, the plan of the replan is kept and only checked.
    """
    plan, placement = replanned.plan, replanned.plan.placement
    names = tuple(host.name for host in placement.hosts)
    unavailable = plan.problem.cluster.unavailable
    locked = LockedPlan(plan.layout, names, placement.ranks_per_node, unavailable)
    # Findings of the trial count only if its plan is used.
    trial = Sink(sink.positions)
    compiled = plan_job(problem, trial, after, locked)
    if (
        compiled is not None
        and compiled.layout == plan.layout
        and compiled.placement.hosts == placement.hosts
    ):
        sink.extend(trial)
    else:
        compiled = _check_kept_plan(plan, sink)
        after("check")
    if isinstance(replanned, ReplannedTraining) and isinstance(compiled, Plan):
        return replace(replanned, plan=compiled)
    if isinstance(replanned, ReplannedService) and isinstance(compiled, ServingPlan):
        return replace(replanned, plan=compiled)
    raise TypeError("a replan must not turn a training plan into a serving plan or vice versa")


def _check_kept_plan(plan: AnyPlan, sink: Sink) -> AnyPlan:
    """Report the findings of ``plan``. Return ``plan`` with the cost of its host order."""
    if isinstance(plan, Plan):
        cost_model = cost_model_for(plan.problem, framework_of_problem(plan.problem))
        plan = evaluate_hosts(cost_model, plan)
        check_plan(cost_model, plan, sink)
        return plan
    from parc.compiler.serving_pipeline import check_service_plan

    check_service_plan(plan, sink)
    return plan
