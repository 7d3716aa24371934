"""Choice of one cluster from a list: the spec is planned on each, and the plans are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.ir.frozen import frozen

Tree = dict[str, Any]
AT = "cluster"


@frozen
class PlannedJob:
    """Plan of a job, and what was found while it was planned."""

    plan: AnyPlan
    findings: Sink


PlanTree = Callable[[Tree, Sink], PlannedJob | None]
"""Function that plans the spec of a tree; it returns None after reporting errors."""


@frozen
class _Alternative:
    """Plan of the spec on one cluster of the list."""

    number: int
    """Position in the list, from 0."""
    planned: PlannedJob

    @property
    def plan(self) -> AnyPlan:
        """Plan of the job."""
        return self.planned.plan

    def format(self) -> str:
        """Return the cluster and the figures of its plan as text."""
        plan = self.plan
        gpu = plan.problem.cluster.gpu.name
        if not isinstance(plan, ServingPlan):
            figures = f"{plan.estimate.time.total_seconds:.4g} s per step"
        else:
            figures = f"{plan.tokens_per_second:,.0f} tokens/s"
        cost = plan.cost_per_hour
        price = "" if cost is None else f", {cost:,.2f} per hour"
        return f"{AT}[{self.number}]: {plan.occupied_gpus} x {gpu}, {figures}{price}"


def choose_cluster(tree: Tree, sink: Sink, plan_tree: PlanTree) -> tuple[Tree, PlannedJob] | None:
    """Return ``tree`` with the best entry of the list ``cluster`` in place of it, and the plan.

    The spec is planned on each cluster of the list. The goal of the spec decides which plan is the
    best, and an earlier entry wins a tie. The comparison is reported (G08), and ``sink.positions``
    then shows findings about the cluster at the chosen entry. Returns None after reporting all
    errors if no cluster of the list has a valid plan, or if an entry does not describe a cluster.
    """
    entries: list[Any] = tree[AT]
    positions, failed = sink.positions, Sink()
    plans: list[_Alternative] = []
    reasons: list[str] = []
    for number, entry in enumerate(entries):
        tried = Sink(_positions_at_entry(positions, number))
        planned = plan_tree({**tree, AT: entry}, tried)
        if planned is None or tried.failed():
            failed.extend(tried)
            reasons.append(_why_no_plan(number, tried))
        else:
            plans.append(_Alternative(number, planned))
    if not plans or _has_invalid_entry(failed):
        if not entries:
            finding = Finding("the list of clusters is empty", help="list at least one cluster")
            sink.report("X08", finding, at=AT)
        sink.extend(failed)
        return None
    unpriced = [one for one in plans if one.plan.cost_per_hour is None]
    if unpriced and plans[0].plan.problem.goals.maximize == "lowest-cost":
        sink.report("X08", _missing_price_finding(unpriced[0]), at=f"{AT}[{unpriced[0].number}]")
        return None
    plans.sort(key=lambda one: _cost_of_objective(one.plan))
    best, *others = plans
    finding = Finding(
        f"{AT}[{best.number}] has the best plan of {len(entries)} clusters for goals.maximize: "
        f"{best.plan.problem.goals.maximize}",
        label="; ".join((*(one.format() for one in (best, *others)), *reasons)),
        help="to see the plan on another cluster, replace the list by that entry",
    )
    sink.report("G08", finding, at=AT)
    sink.positions = _positions_at_entry(positions, best.number)
    return {**tree, AT: entries[best.number]}, best.planned


def _why_no_plan(number: int, tried: Sink) -> str:
    """Return the first error of the entry ``number`` of the list, as a clause."""
    first = next((one for one in tried.diagnostics if one.severity == "error"), None)
    reason = "" if first is None else f" ({first.code}: {first.finding.message})"
    return f"no valid plan on {AT}[{number}]{reason}"


def _has_invalid_entry(failed: Sink) -> bool:
    """Return True if an entry has a misspelled key or name, or an invalid value."""
    return any(
        found.severity == "error"
        and found.path.startswith(AT)
        and found.code.removeprefix("PARC-").startswith(("H", "K", "X"))
        for found in failed.diagnostics
    )


def _missing_price_finding(alternative: _Alternative) -> Finding:
    gpu = alternative.plan.problem.cluster.gpu
    return Finding(
        "the goal lowest-cost needs a price for each cluster of the list",
        label=f"cluster {alternative.number} with {gpu.name} has no price",
        help="set price_per_gpu_hour in each entry, all in the same currency",
    )


def _cost_of_objective(plan: AnyPlan) -> float:
    """Return the value by which plans on different clusters are compared; smaller is better."""
    goal = plan.problem.goals.maximize
    if goal == "fewest-gpus":
        return plan.occupied_gpus
    if not isinstance(plan, ServingPlan):
        # The batch is the same on all clusters, so the shortest step has the highest throughput.
        return plan.estimate.time.total_seconds
    if goal == "lowest-cost":
        cost = plan.cost_per_hour or 0.0
        is_load_given = plan.problem.service.traffic.is_load_given
        return cost if is_load_given else cost / plan.tokens_per_second
    if goal == "latency":
        return plan.request_seconds
    return -plan.tokens_per_second


def _positions_at_entry(positions: SpecPositions, number: int) -> SpecPositions:
    """Return ``positions`` with the entry ``number`` of the list ``cluster`` at ``cluster``."""
    entry = f"{AT}[{number}]"

    def moved(table: Mapping[str, Span]) -> dict[str, Span]:
        found = {
            path: span
            for path, span in table.items()
            if path != AT and not path.startswith((f"{AT}[", f"{AT}."))
        }
        for path, span in table.items():
            if path == entry or path.startswith((f"{entry}.", f"{entry}[")):
                found[AT + path.removeprefix(entry)] = span
        return found

    return replace(positions, values=moved(positions.values), keys=moved(positions.keys))
