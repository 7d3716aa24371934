"""Tables of report.html (terms, process groups, candidates, rejected layouts), and next steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from parc.backends.rankmap.group_extents import group_extents
from parc.backends.rankmap.training_page import process_group_cells
from parc.compiler.cost.serving.terms import SERVING_TERMS
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.ir import AnyPlan, Plan, ServingPlan, StageMemory, StepTime
from parc.compiler.ir.serving import StepTerms
from parc.compiler.report.formatting import format_gib, format_percent, format_seconds
from parc.compiler.report.page.figure import Figure, HtmlTable, html_table, stacked_bar
from parc.compiler.report.text.pools_text import layout_options
from parc.compiler.report.text.run_text import LIKELY
from parc.compiler.report.text.search_table import DEGREES, candidate_table, rejection_reason
from parc.compiler.report.text.serving_tables import DEGREES as SERVING_DEGREES
from parc.compiler.report.text.serving_tables import serving_candidate_table

TIME_INKS: tuple[str, ...] = ("k1", "k2", "k3", "k5", "k6", "k4", "idle", "k7", "k9", "k10")
"""CSS classes of the terms of a step, in the order of StepTime."""
STEP_INKS: tuple[str, ...] = ("k1", "k5", "k6", "k4", "k9", "k7", "k11", "k2")

PROSE_COLUMNS = ("recompute", "split", "stages", "offload", "ZeRO++", "cp exchange")
"""Columns of the table of candidates whose cells are words."""
_LARGE = re.compile(r"\b[0-9]{4,}\b")
"""Number that is shown with separators, such as 16,384."""


def step_time_bar(plan: AnyPlan) -> tuple[Figure, tuple[tuple[str, str], ...]]:
    """Return the time of a training or decode step as one stacked bar, and the bar's legend."""
    if isinstance(plan, ServingPlan):
        decode = plan.estimate.decode
        rows = [(field.name, getattr(decode, field.name)) for field in fields(StepTerms)]
        inks = STEP_INKS
        title = f"Time of one decode step: {format_seconds(decode.total_seconds)}"
    else:
        time = plan.estimate.time
        rows = [(TERMS[one.name].title, getattr(time, one.name)) for one in fields(StepTime)]
        inks = TIME_INKS
        title = f"Time of one step: {format_seconds(time.total_seconds)}"
    figure = stacked_bar(title, inks, [spent for _, spent in rows])
    legend = tuple((name, ink) for (name, spent), ink in zip(rows, inks, strict=True) if spent)
    return figure, legend


def step_time_table(plan: AnyPlan) -> HtmlTable:
    """Return the table of the terms of the step time; for a service, of latencies and memory."""
    head = ("term", "time", "share", "formula", "details")
    if isinstance(plan, ServingPlan):
        return _serving_terms_table(plan)
    time = plan.estimate.time
    rows = []
    for one in fields(StepTime):
        spent, term = getattr(time, one.name), TERMS[one.name]
        share = format_percent(spent / time.total_seconds)
        if spent:
            rows.append(
                (
                    term.title,
                    format_seconds(spent),
                    share,
                    term.formula,
                    parc_explain_command(one.name),
                )
            )
    rows.append(("total", format_seconds(time.total_seconds), "", "sum of the terms", ""))
    return html_table(head, rows, prose=(0, 3, 4), strong=len(rows) - 1)


def _serving_terms_table(plan: ServingPlan) -> HtmlTable:
    estimate = plan.estimate
    values = {
        "ttft_seconds": format_seconds(estimate.ttft_seconds),
        "tpot_seconds": format_seconds(estimate.tpot_seconds),
        "prefill_seconds": format_seconds(estimate.prefill_seconds),
        "tokens_per_second": f"{estimate.tokens_per_second:,.0f}",
        "cache_bytes": format_gib(min(stage.cache_bytes for stage in plan.stages)),
        "block_bytes": f"{max(stage.block_bytes for stage in plan.stages):,.0f} B",
        "longest_bytes": format_gib(max(stage.longest_bytes for stage in plan.stages)),
        "overhead_bytes": format_gib(max(stage.overhead_bytes for stage in plan.stages)),
    }
    rows = [
        (term.title, values[name], term.formula, parc_explain_command(name))
        for name, term in SERVING_TERMS.items()
    ]
    return html_table(("term", "value", "formula", "details"), rows, prose=(0, 2, 3))


def memory_table(plan: Plan) -> HtmlTable:
    """Return the table of memory terms on the fullest pipeline stage, the largest term first."""
    peak, gpu = plan.estimate.peak, plan.problem.cluster.gpu.memory_bytes
    names = [one.name for one in fields(StageMemory) if one.name != "stage"]
    found = sorted(((getattr(peak, name), name) for name in names), reverse=True)
    rows = [
        (
            TERMS[name].title,
            format_gib(size),
            format_percent(size / gpu),
            TERMS[name].formula,
            parc_explain_command(name),
        )
        for size, name in found
        if size
    ]
    rows.append(
        ("total", format_gib(peak.total_bytes), format_percent(peak.total_bytes / gpu), "", "")
    )
    head = ("item", "size", "share of GPU", "formula", "details")
    return html_table(head, rows, prose=(0, 3, 4), strong=len(rows) - 1)


def process_group_table(plan: AnyPlan) -> HtmlTable:
    """Return the table of process groups, one row per kind of group.

    A row counts the groups by the smallest unit that contains a whole group: a host, an NVLink
    domain or a rack.
    """
    # A service has one mesh, whose axes include the expert groups.
    routed = plan.problem.model.experts is not None and not isinstance(plan, ServingPlan)
    head = (
        "group",
        "groups x ranks",
        "host",
        "NVLink domain",
        "rack",
        "several racks",
        "max racks",
    )
    return html_table(
        head,
        (
            tuple(_LARGE.sub(lambda found: f"{int(found[0]):,}", cell) for cell in cells)
            for cells in map(process_group_cells, group_extents(plan.placement, routed))
        ),
    )


def best_candidate_table(plan: AnyPlan) -> HtmlTable:
    """Return the table of the candidates that the plan stores. The chosen layout is first."""
    if isinstance(plan, ServingPlan):
        services = plan.search.ranked
        return html_table(*serving_candidate_table(services, len(services)), prose=(), strong=0)
    head, rows = candidate_table(plan, len(plan.search.ranked))
    prose = tuple(at for at, name in enumerate(head) if name in PROSE_COLUMNS)
    return html_table(head, rows, prose=prose, strong=0)


def rejected_layout_table(plan: AnyPlan) -> HtmlTable:
    """Return the table of rules with the number of layouts that each rule rejected.

    The rule that rejected the most layouts comes first.
    """
    dropped = sorted(plan.search.dropped, key=lambda pair: (-pair[1], pair[0]))
    rows = [(*rejection_reason(code), f"{count:,}") for code, count in dropped]
    return html_table(("code", "rule", "layouts"), rows, prose=(0, 1))


def next_steps(plan: AnyPlan) -> tuple[tuple[str, str], ...]:
    """Return (command, reason) pairs; commands run in the folder of the page.

    The spec is called spec.yaml in the commands, because the plan does not contain its path.
    """
    return (
        *(() if isinstance(plan, ServingPlan) else _missing_settings(plan)),
        ("parc verify .", "Check that these files are complete, consistent and unmodified."),
        *(() if isinstance(plan, ServingPlan) else _largest_overhead(plan)),
        *_next_candidate(plan),
        (
            "parc diff OLD .",
            "List what differs from the plan in the folder OLD: ranks, flags, times.",
        ),
    )


def _missing_settings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the commands that explain missing fields: training data, folder for checkpoints."""
    run = plan.run
    if plan.problem.trains_on_mock_data:
        reason = "Name the training data: without it, the framework trains on mock data."
        yield "parc explain job.data", reason
    if run.checkpoint_steps is None and run.finish_probability < LIKELY:
        yield (
            "parc explain job.checkpoint_dir",
            "Set a folder for checkpoints: without them, a failure ends the run. The probability "
            f"of a run without a failure is {format_percent(run.finish_probability)}.",
        )


def _largest_overhead(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the command that explains the longest term of the step besides computation."""
    time = plan.estimate.time
    names = [one.name for one in fields(StepTime) if one.name != "compute_seconds"]
    name = max(names, key=lambda one: float(getattr(time, one)))
    spent = getattr(time, name)
    if spent:
        yield (
            parc_explain_command(name),
            f"Read about the longest part of the step besides computation: {TERMS[name].title} "
            f"takes {format_seconds(spent)}, {format_percent(spent / time.total_seconds)} of it.",
        )


def _next_candidate(plan: AnyPlan) -> Iterator[tuple[str, str]]:
    """Yield the command that estimates the second candidate term by term."""
    if len(plan.search.ranked) < 2:
        return
    names = SERVING_DEGREES if isinstance(plan, ServingPlan) else DEGREES
    layout = plan.search.ranked[1].layout
    # In training, dp follows from the number of GPUs; in a service, a dense model has dp 1.
    fixes_dp = isinstance(plan, ServingPlan) and plan.problem.model.experts is not None
    values = {one: str(getattr(layout, one)) for one in names if one != "dp" or fixes_dp}
    if not isinstance(plan, ServingPlan):
        graphs = [one.layout.cuda_graphs for one in plan.search.ranked]
        values |= {"cuda_graphs": str(graphs[1]).lower()} if any(graphs) else {}
    options, path = layout_options(plan)
    pins = " ".join(f"--set {path}.{one}={value}" for one, value in values.items())
    yield f"parc estimate spec.yaml{options} {pins}", "Estimate the second candidate, term by term."


def parc_explain_command(term: str) -> str:
    """Return the ``parc explain`` command that explains the cost model term ``term``."""
    return f"parc explain {term.removesuffix('_seconds').removesuffix('_bytes')}"
