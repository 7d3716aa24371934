"""spec, parc.lock, drained hosts -> the same plan on other hosts; the chain of ``parc replan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parc.backends.registry import backend, framework_of
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import Plan, Problem
from parc.compiler.passes.adopt_plan import adopt_plan
from parc.compiler.passes.check_placement import check_placement
from parc.compiler.passes.replan_hosts import Replanned, replan_hosts
from parc.compiler.passes.resolve_kernels import pricing_for
from parc.compiler.pipeline import Watch, ignore, plan_problem, resolve_spec
from parc.compiler.report.decisions import LockUnreadable
from parc.compiler.report.locked_plan import LockedPlan, locked_plan
from parc.compiler.spec.source import Source
from parc.compiler.topology.hostlist import HostlistError, expand

EVERYONE = "cluster.unavailable=[]"
"""The override under which drained hosts still have their place in the racks."""


class NotTraining(ValueError):
    """The spec asks for a service, whose replicas a router moves; the message says so."""


@dataclass(frozen=True, slots=True)
class Drain:
    """What is asked for."""

    hosts: tuple[str, ...]
    """Host lists."""
    lock: str | None
    """Text of the parc.lock of the plan so far."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The plan that is replanned."""

    plan: Plan
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
) -> tuple[Replanned, Previous] | None:
    """Replace hosts in the plan of the lock file, or of the spec.

    A lock file that holds no plan for this spec is passed over. None: see the sink.

    Raises:
        NotTraining: the spec is none of a training job.
    """
    names = _names(drain.hosts, sink)
    problem = resolve_spec(source, overrides, sink, after) if names is not None else None
    if names is None or problem is None:
        return None
    if not isinstance(problem, Problem):
        raise NotTraining("parc replan is for training jobs; compile a service anew without hosts")
    previous = None
    if drain.lock is not None:
        previous = _locked(source, overrides, problem, drain.lock)
        after("adopt_plan")
    previous = previous or _compiled(problem, sink, after)
    if previous is None:
        return None
    found = replan_hosts(previous.plan, (*previous.gone, *names), sink)
    after("replan_hosts")
    if found is None:
        return None
    check_placement(found.plan, sink)
    for name in sorted({problem.framework, *problem.emit}):
        backend(name).check(found.plan, sink)
    after("check")
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
    source: Source, overrides: Sequence[str], problem: Problem, lock: str
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
        plan = _adopted(everyone, found) if isinstance(everyone, Problem) else None
    return None if plan is None else Previous(plan, locked=True, gone=gone)


def _adopted(problem: Problem, found: LockedPlan) -> Plan | None:
    return adopt_plan(pricing_for(problem, framework_of(problem)), found.layout, found.hosts)


def _compiled(problem: Problem, sink: Sink, after: Watch) -> Previous | None:
    plan = plan_problem(problem, sink, after)
    return None if plan is None else Previous(plan, locked=False, gone=())
