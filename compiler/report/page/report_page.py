"""report.html: figures and tables of a plan, built only from the plan."""

from __future__ import annotations

from typing import Any

from parc.backends.shared.render import render
from parc.compiler.ir import AnyPlan, Artifact, ServingPlan
from parc.compiler.report.page.cluster_map import cluster_map
from parc.compiler.report.page.head import page_head
from parc.compiler.report.page.memory import cache_chart, memory_chart
from parc.compiler.report.page.tables import (
    candidate_grid,
    dropped_grid,
    group_grid,
    memory_grid,
    step_bar,
    time_grid,
)
from parc.compiler.report.page.timeline import timeline_chart
from parc.compiler.report.page.traffic import traffic_chart

REPORT_PATH = "report.html"


def report_artifact(plan: AnyPlan) -> Artifact:
    """Return the page: a single file that needs no other file, no script and no network."""
    return Artifact(REPORT_PATH, render("report", "report.html.j2", _values(plan)))


def _values(plan: AnyPlan) -> dict[str, Any]:
    """Return the values of the template; sections that do not apply to the plan are None."""
    bar, legend = step_bar(plan)
    serving = isinstance(plan, ServingPlan)
    values = {
        "head": page_head(plan),
        "named": plan.problem.cluster.named,
        "serving": serving,
        "map": cluster_map(plan),
        "groups": group_grid(plan),
        "memory": cache_chart(plan) if isinstance(plan, ServingPlan) else memory_chart(plan),
        "timeline": None,
        "traffic": None,
        "step": bar,
        "step_legend": legend,
        "times": time_grid(plan),
        "items": None,
        "candidates": candidate_grid(plan),
        "dropped": dropped_grid(plan),
        "enumerated": f"{plan.search.enumerated:,}",
    }
    if not isinstance(plan, ServingPlan):
        values["items"] = memory_grid(plan)
        values["timeline"] = timeline_chart(plan)
        values["traffic"] = traffic_chart(plan)
        values["stages"] = plan.layout.pp
    return values
