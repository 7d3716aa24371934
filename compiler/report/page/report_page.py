"""The page report.html: key figures, charts and tables, built only from the plan."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from parc.backends.shared.render import render
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, Artifact, Plan, ServingPlan
from parc.compiler.ir.estimate import Run
from parc.compiler.ir.serving_goals import LatencyName
from parc.compiler.report.estimate_basis import estimate_basis
from parc.compiler.report.formatting import (
    format_duration,
    format_gib,
    format_percent,
    format_quantity,
    format_seconds,
)
from parc.compiler.report.page.cluster_map import cluster_map
from parc.compiler.report.page.figure import html_table
from parc.compiler.report.page.memory import cache_chart, memory_chart
from parc.compiler.report.page.script_data import script_data_text
from parc.compiler.report.page.simulation import simulation_chart
from parc.compiler.report.page.tables import (
    best_candidate_table,
    memory_table,
    next_steps,
    process_group_table,
    rejected_layout_table,
    step_time_bar,
    step_time_table,
)
from parc.compiler.report.page.timeline import timeline_chart
from parc.compiler.report.page.traffic import traffic_chart
from parc.compiler.report.text.layout_text import format_layout, format_serving_layout
from parc.compiler.report.text.pools_text import layout_options
from parc.compiler.report.text.run_text import (
    MOCK_DATA,
    describe_work,
    length_table,
    run_table,
)
from parc.compiler.report.text.search_table import tie_note
from parc.compiler.report.text.serving_tables import (
    format_intervals,
    format_latency_limits,
    generates_answers,
    output_unit,
    ranking_note,
)
from parc.compiler.report.text.summary import (
    describe_cost,
    describe_job,
    describe_service,
    format_placement,
)

BASES = {
    "calibration": "your own runs",
    "runs": "published runs",
    "plugin": "values of a plugin",
    "borrowed": "factors of another stack",
}
"""Kind of ``EstimateBasis`` -> value on the page."""


class KeyFigure(NamedTuple):
    """Key figure at the top of the page: its name, its value, and a note."""

    name: str
    value: str
    note: str


class PageHead(NamedTuple):
    """Head of the page: the plan's name, its model and hardware, its layout and key figures."""

    name: str
    subject: str
    layout: str
    cards: tuple[KeyFigure, ...]


def page_head(plan: AnyPlan) -> PageHead:
    """Return the head of the report page: name, hardware, layout and key figures of ``plan``."""
    problem = plan.problem
    version = problem.version(problem.framework)
    if isinstance(plan, ServingPlan):
        text = f"{describe_service(plan)} {version}"
        return PageHead(
            problem.name, text, format_serving_layout(plan.layout), _serving_key_figures(plan)
        )
    text = f"{describe_job(plan)}, for {problem.framework} {version}"
    return PageHead(problem.name, text, format_layout(plan.layout), _training_key_figures(plan))


def _training_key_figures(plan: Plan) -> tuple[KeyFigure, ...]:
    estimate, job = plan.estimate, plan.problem.job
    step, peak = estimate.time.total_seconds, estimate.peak
    gpu = plan.problem.cluster.gpu.memory_bytes
    low = format_seconds(estimate.step_low_seconds)
    high = format_seconds(estimate.step_high_seconds)
    batch = f"{job.global_batch:,} sequences of {job.sequence_length:,} tokens"
    flops = f"{format_quantity(estimate.model_flops_per_step, 'FLOP')} per step"
    free = format_percent(1 - peak.total_bytes / gpu)
    required = format_percent(plan.problem.goals.memory_headroom)
    verdict = {"fits": "fits", "close": "may not fit", "exceeds": "does not fit"}[estimate.verdict]
    return (
        KeyFigure("step time (estimate)", format_seconds(step), f"{low} to {high}; {batch}"),
        _basis_figure(plan),
        KeyFigure("MFU", format_percent(estimate.mfu), flops),
        KeyFigure(
            "throughput", format_quantity(estimate.tokens_per_second, " tokens/s"), job.precision
        ),
        KeyFigure(
            f"memory of stage {peak.stage}",
            format_gib(peak.total_bytes),
            f"{format_gib(peak.low_bytes)} to {format_gib(peak.high_bytes)} of "
            f"{format_gib(gpu)}: {verdict}",
        ),
        KeyFigure("memory headroom", free, f"goal: at least {required}"),
        _placement_figure(plan),
        KeyFigure("run", _run_length(plan.run), describe_work(plan.run)),
        *_cost_figure(plan),
        *_data_figure(plan),
    )


def _basis_figure(plan: AnyPlan) -> KeyFigure:
    """Return what the estimates rest on."""
    basis = estimate_basis(plan)
    # The note does not repeat the value.
    note = basis.text.removeprefix(f"{BASES[basis.kind]} of ")
    return KeyFigure("basis", BASES[basis.kind], note)


def _placement_figure(plan: Plan) -> KeyFigure:
    """Return the quality of the placement, with a note that does not repeat it."""
    proof, note = plan.placement.proof, format_placement(plan)
    if proof.quality == "optimal":
        note = note.replace(f", {proof.summary}", "")
    return KeyFigure(
        "placement", proof.summary if proof.quality == "optimal" else proof.quality, note
    )


def _data_figure(plan: Plan) -> tuple[KeyFigure, ...]:
    if not plan.problem.trains_on_mock_data:
        return ()
    data, _, reason = MOCK_DATA.partition(", ")
    return (KeyFigure("data", data, reason),)


def _run_length(run: Run) -> str:
    return "does not end" if run.wall_seconds is None else format_duration(run.wall_seconds)


def _cost_figure(plan: AnyPlan) -> tuple[KeyFigure, ...]:
    """Return the cost per hour and per million tokens; empty if the spec states no price."""
    if plan.cost_per_hour is None:
        return ()
    hourly, _, note = describe_cost(plan).partition(" per hour ")
    return (KeyFigure("cost per hour", hourly, note),)


def _serving_key_figures(plan: ServingPlan) -> tuple[KeyFigure, ...]:
    estimate, limits = plan.estimate, plan.limits
    intervals, unit = format_intervals(plan), output_unit(plan)
    per_gpu = format_quantity(estimate.tokens_per_second_per_gpu, unit)
    per_token = KeyFigure(
        "time per token (estimate)",
        format_seconds(estimate.tpot_seconds),
        f"{intervals['tpot']}; {_limit_note(plan, 'tpot')}",
    )
    return (
        KeyFigure(
            "time to first token (estimate)",
            format_seconds(estimate.ttft_seconds),
            f"{intervals['ttft']}; {_limit_note(plan, 'ttft')}",
        ),
        *((per_token,) if generates_answers(plan) else ()),
        KeyFigure(
            "output (estimate)",
            format_quantity(estimate.tokens_per_second, unit),
            f"{intervals['output']}; {per_gpu} per GPU",
        ),
        _basis_figure(plan),
        KeyFigure(
            "KV cache",
            format_quantity(limits.cache_tokens, " tokens"),
            f"per data parallel rank, enough for {limits.full_requests:.1f} requests of "
            f"{limits.max_model_len:,} tokens",
        ),
        KeyFigure(
            "max concurrent requests",
            f"{estimate.max_concurrency:,.0f}",
            "in all engines, at their mean length",
        ),
        KeyFigure(
            "engines",
            f"{plan.layout.replicas:,}",
            f"on {format_count(plan.layout.engine_gpus, 'GPU')} each",
        ),
        *_cost_figure(plan),
    )


def _limit_note(plan: ServingPlan, latency: LatencyName) -> str:
    limits = format_latency_limits(plan.problem.goals, latency)
    return f"limit {limits}" if limits else "no limit set"


REPORT_PATH = "report.html"


class InlineText(NamedTuple):
    """Style sheet or script in the page, with the digest by which the browser accepts it."""

    text: str
    source: str
    """Source expression of the content security policy, such as ``'sha256-...'``."""


@cache
def inline_text(template: str, layout: tuple[str, str] = ("", "layout")) -> InlineText:
    """Return the style sheet or script ``template`` of templates/report, without indentation.

    ``layout`` is the result of ``layout_options``, with which the script shows a command.
    """
    values = {"options": layout[0], "layout": layout[1]}
    lines = render("report", template, values).splitlines()
    text = "".join(f"\n{line.strip()}" for line in lines if line.strip()) + "\n"
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return InlineText(text, f"'sha256-{digest}'")


def report_artifact(plan: AnyPlan) -> Artifact:
    """Return report.html, a page that loads no other file and nothing from a network.

    Its script runs only in the page. Without it, the page still shows all figures and tables.
    """
    return Artifact(REPORT_PATH, render("report", "report.html.j2", _template_values(plan)))


def _template_values(plan: AnyPlan) -> dict[str, Any]:
    """Return the values for the page template; sections that do not apply to the plan are None."""
    bar, legend = step_time_bar(plan)
    serving = isinstance(plan, ServingPlan)
    shown = cluster_map(plan)
    timeline = None if isinstance(plan, ServingPlan) else timeline_chart(plan)
    values = {
        "style": inline_text("style.css.j2"),
        "script": inline_text("page.js.j2", layout_options(plan)),
        "data": script_data_text(plan, shown, timeline),
        "steps": next_steps(plan),
        "head": page_head(plan),
        "named": plan.problem.cluster.named,
        "serving": serving,
        "map": shown,
        "groups": process_group_table(plan),
        "memory": cache_chart(plan) if isinstance(plan, ServingPlan) else memory_chart(plan),
        "simulation": simulation_chart(plan) if isinstance(plan, ServingPlan) else None,
        "timeline": timeline,
        "traffic": None,
        "step": bar,
        "step_legend": legend,
        "times": step_time_table(plan),
        "items": None,
        "run": None,
        "candidates": best_candidate_table(plan),
        "order": ranking_note(plan) if isinstance(plan, ServingPlan) else tie_note(plan),
        "dropped": rejected_layout_table(plan),
        "enumerated": f"{plan.search.enumerated:,}",
    }
    if not isinstance(plan, ServingPlan):
        values["items"] = memory_table(plan)
        # The first row of the text repeats the length in one line.
        rows = (*length_table(plan.run), *run_table(plan)[1:])
        values["run"] = html_table(("", "value", "formula or note"), rows, prose=(0, 2))
        values["traffic"] = traffic_chart(plan)
        values["stages"] = plan.layout.pp
    return values
