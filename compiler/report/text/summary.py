"""The few lines that ``parc compile`` prints."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import AnyPlan, Plan, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.placement.score_placement import added_seconds
from parc.compiler.report.numbers import gib, many, percent, quantity, rounded_tree, seconds
from parc.compiler.report.text.layout_words import layout_words
from parc.compiler.report.text.serving_summary import serving_summary, serving_summary_document

TOLD = 0.01
"""Share of the step from which on it is told what a placement adds."""


def summary_text(plan: AnyPlan) -> str:
    """What was chosen, what it costs, how well it is placed and out of how many; six lines."""
    if isinstance(plan, ServingPlan):
        return serving_summary(plan)
    estimate, search = plan.estimate, plan.search
    peak = estimate.peak
    dropped = sum(count for _, count in search.dropped)
    rows = (
        ("plan", f"{plan.problem.name}: {subject(plan)}"),
        ("layout", layout_words(plan.layout)),
        (
            "memory",
            f"{gib(peak.total_bytes)} ({gib(peak.low_bytes)} to {gib(peak.high_bytes)}) of "
            f"{gib(estimate.limit_bytes)} on pipeline stage {peak.stage}, the fullest of "
            f"{len(estimate.memory)}",
        ),
        (
            "step",
            f"{seconds(estimate.time.total_seconds)}, {percent(estimate.mfu)} MFU, "
            f"{quantity(estimate.tokens_per_second, ' tokens/s')} (estimated)",
        ),
        ("place", placement_words(plan)),
        ("search", f"{search.enumerated:,} layouts, {dropped:,} dropped by a rule or by memory"),
    )
    return "".join(f"{name:<9} {text}\n" for name, text in rows)


def placement_words(plan: Plan) -> str:
    """The order of the hosts, what it exposes over shared links, and how good that is.

    With what it adds to the step, where that is ``TOLD`` of it or more.
    """
    placement = plan.placement
    if len(placement.hosts) == 1:
        return "one host"
    chosen = next((one for one in placement.alternatives if one.chosen), None)
    name = chosen.name if chosen is not None else "as given"
    if len({host.rack for host in placement.hosts}) == 1:
        name = "one rack"
    proof, total = placement.proof, plan.estimate.time.total_seconds
    words = f"{name}, {seconds(proof.exposed_seconds)} exposed over shared links, {proof.summary}"
    added = added_seconds(plan.estimate, placement)
    return words if added < TOLD * total else f"{words}; adds {seconds(added)} to the step"


def subject(plan: Plan) -> str:
    """Model, GPUs, hosts and racks in words."""
    problem, placement = plan.problem, plan.placement
    racks = len({host.rack for host in placement.hosts})
    return (
        f"{problem.model.name} on {plan.layout.world:,} x {problem.cluster.gpu.name}: "
        f"{many(len(placement.hosts), 'host')} in {many(racks, 'rack')}"
    )


def summary_document(plan: AnyPlan) -> dict[str, Any]:
    """The same as JSON types."""
    if isinstance(plan, ServingPlan):
        return serving_summary_document(plan)
    estimate = plan.estimate
    document = {
        "name": plan.problem.name,
        "model": plan.problem.model.name,
        "gpu": plan.problem.cluster.gpu.name,
        "hosts": len(plan.placement.hosts),
        "world": plan.layout.world,
        "layout": {**as_json(plan.layout), "dp": plan.layout.dp, "edp": plan.layout.edp},
        "peak_bytes": estimate.peak.total_bytes,
        "limit_bytes": estimate.limit_bytes,
        "step_seconds": estimate.time.total_seconds,
        "mfu": estimate.mfu,
        "tokens_per_second": estimate.tokens_per_second,
        "placement": as_json(plan.placement.proof),
    }
    return dict(rounded_tree(document))
