"""spec, parc.lock, drained hosts -> the same plan on other hosts; the chain of ``parc replan``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parc.backends.registry import engine, framework_of
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
from parc.compiler.pipeline import Watch, check_plan, ignore, plan_any, resolve_spec
from parc.compiler.placement.adopt_plan import adopt_plan
from parc.compiler.placement.evaluate_placement import judge_placement
from parc.compiler.placement.replan_hosts import Replanned, replan_hosts
from parc.compiler.placement.replan_service import ReplannedService, replan_service
from parc.compiler.placement.restore_cluster import restore_cluster
from parc.compiler.report.json.decisions import LockUnreadable
from parc.compiler.report.json.locked_plan import locked_plan
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.spec.reading.source import Source
from parc.compiler.topology.hostlist import HostlistError, expand

AnyReplanned = Replanned | ReplannedService
EVERYONE = "cluster.unavailable=[]"
"""The override under which drained hosts still have their place in the racks."""


@dataclass(frozen=True, slots=True)
class Drain:
    """What is asked for."""

    hosts: tuple[str, ...]
    """Host lists."""
    lock: Callable[[str], str | None]
    """Name of the run -> text of the parc.lock of the plan so far; None where there is none."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The plan that is replanned."""

    plan: AnyPlan
    locked: bool
    """Whether it is that of a lock file; else the spec was compiled for it."""
    gone: tuple[str, ...]
    """Hosts that are out of use without the drain of today."""


def replan_spec(
    source: Source,
    overrides: Sequence[str],
    drain: Drain,
    sink: Sink,
    after: Watch = ignore,
) -> tuple[AnyReplanned, Previous] | None:
    """Replace hosts in the plan of the lock file, or of the spec.

    A lock file that holds no plan for this spec is passed over. None: see the sink.
    """
    names = _names(drain.hosts, sink)
    problem = resolve_spec(source, overrides, sink, after) if names is not None else None
    if names is None or problem is None:
        return None
    previous = None
    lock = drain.lock(problem.name)
    if lock is not None:
        previous = _locked(source, overrides, problem, lock)
        after("adopt_plan")
    previous = previous or _compiled(problem, sink, after)
    if previous is None:
        return None
    gone = (*previous.gone, *names)
    found: AnyReplanned | None
    if isinstance(previous.plan, Plan):
        found = replan_hosts(previous.plan, gone, sink)
    else:
        found = replan_service(previous.plan, gone, sink)
    after("replan_hosts")
    if found is None:
        return None
    found = _settled(problem, found, sink, after)
    return None if sink.failed() else (found, previous)


def _names(drain: Sequence[str], sink: Sink) -> list[str] | None:
    """Hosts of all lists; H01 for one that cannot be read."""
    names: list[str] = []
    for text in drain:
        try:
            names += expand(text)
        except HostlistError as error:
            span = Span("--drain", 1, error.column, error.length)
            sink.report("H01", Finding(f"host list {text[:60]!r}: {error.message}"), span=span)
    return None if sink.failed() else names


def _locked(
    source: Source, overrides: Sequence[str], problem: AnyProblem, lock: str
) -> Previous | None:
    """The plan of the lock file; None where it is none for this spec."""
    try:
        found = locked_plan(lock)
    except LockUnreadable:
        return None
    gone = (*problem.cluster.unavailable, *found.unavailable)
    plan = _adopted(problem, found)
    if plan is None and problem.cluster.unavailable:
        # Hosts of the lock are out of use by now: look where they were.
        everyone = resolve_spec(source, (*overrides, EVERYONE), Sink())
        plan = None if everyone is None else _adopted(everyone, found)
    return None if plan is None else Previous(plan, locked=True, gone=gone)


def _adopted(problem: AnyProblem, found: LockedPlan) -> AnyPlan | None:
    """The plan of the lock; None where it is none of ``problem``."""
    cluster, layout = restore_cluster(problem.cluster, found), found.layout
    if cluster is None:
        return None
    if isinstance(problem, Problem) and isinstance(layout, Layout):
        problem = replace(problem, cluster=cluster)
        return adopt_plan(pricing_for(problem, framework_of(problem)), layout, found.hosts)
    if isinstance(problem, ServingProblem) and isinstance(layout, ServingLayout):
        from parc.compiler.placement.adopt_service import adopt_service

        problem = replace(problem, cluster=cluster)
        return adopt_service(problem, engine(problem.framework), layout, found.hosts)
    return None


def _compiled(problem: AnyProblem, sink: Sink, after: Watch) -> Previous | None:
    plan = plan_any(problem, sink, after)
    return None if plan is None else Previous(plan, locked=False, gone=())


def _settled(problem: AnyProblem, found: AnyReplanned, sink: Sink, after: Watch) -> AnyReplanned:
    """``found`` with the plan that ``parc compile --locked`` makes of its lock, checked.

    Where a compile would decide for another layout by now, the plan stays as it is.
    """
    plan, placement = found.plan, found.plan.placement
    names = tuple(host.name for host in placement.hosts)
    gone = plan.problem.cluster.unavailable
    locked = LockedPlan(plan.layout, names, placement.ranks_per_node, gone)
    trial = Sink(sink.positions)
    fresh = plan_any(problem, trial, after, locked)
    if fresh is None or fresh.layout != plan.layout or fresh.placement.hosts != placement.hosts:
        fresh = _checked(plan, sink)
        after("check")
    else:
        sink.extend(trial)
    if isinstance(found, Replanned) and isinstance(fresh, Plan):
        return replace(found, plan=fresh)
    if isinstance(found, ReplannedService) and isinstance(fresh, ServingPlan):
        return replace(found, plan=fresh)
    raise TypeError("a plan stays one of its kind")


def _checked(plan: AnyPlan, sink: Sink) -> AnyPlan:
    """``plan`` as it is, its order of hosts judged; what is wrong with it is reported."""
    if isinstance(plan, Plan):
        plan = replace(plan, placement=judge_placement(plan))
        check_plan(pricing_for(plan.problem, framework_of(plan.problem)), plan, sink)
        return plan
    from parc.compiler.serving_pipeline import check_service_plan

    check_service_plan(plan, sink)
    return plan
