"""Commands and fields that the reader of a plan needs next, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from parc.compiler.cost.step.terms import TERMS
from parc.compiler.ir import AnyPlan, Plan, ServingPlan, StepTime
from parc.compiler.report.formatting import format_percent, format_seconds
from parc.compiler.report.text.run_text import LIKELY
from parc.compiler.report.text.search_table import DEGREES
from parc.compiler.report.text.serving_tables import DEGREES as SERVING_DEGREES


def next_steps(plan: AnyPlan) -> tuple[tuple[str, str], ...]:
    """Return (command, reason) pairs; commands run in the folder of the page.

    The spec is called spec.yaml in the commands, because the plan does not contain its path.
    """
    return (
        *(() if isinstance(plan, ServingPlan) else _missing_settings(plan)),
        ("parc verify .", "Checks that these files are complete, consistent and unmodified."),
        *(() if isinstance(plan, ServingPlan) else _largest_overhead(plan)),
        *_next_candidate(plan),
        ("parc diff OLD .", "Compares this plan with the folder OLD: moved ranks, flags, figures."),
    )


def _missing_settings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the fields without which the run trains on mock data or loses its work."""
    run = plan.run
    if plan.problem.trains_on_mock_data:
        reason = "Set the data set: without it, the framework trains on mock data."
        yield "parc explain job.data", reason
    if run.checkpoint_steps is None and run.finish_probability < LIKELY:
        yield (
            "parc explain job.checkpoint_dir",
            "Set a folder for checkpoints: without them, the run finishes without a failure with a "
            f"probability of {format_percent(run.finish_probability)}.",
        )


def _largest_overhead(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the command that explains the largest term of the step after computation."""
    time = plan.estimate.time
    names = [one.name for one in fields(StepTime) if one.name != "compute_seconds"]
    name = max(names, key=lambda one: float(getattr(time, one)))
    spent = getattr(time, name)
    if spent:
        yield (
            parc_explain_command(name),
            f"Explains the largest part of the step after computation: {TERMS[name].title}, "
            f"{format_seconds(spent)}, {format_percent(spent / time.total_seconds)} of the step.",
        )


def _next_candidate(plan: AnyPlan) -> Iterator[tuple[str, str]]:
    """Yield the command that estimates the second candidate term by term."""
    if len(plan.search.ranked) < 2:
        return
    names = SERVING_DEGREES if isinstance(plan, ServingPlan) else DEGREES
    layout = plan.search.ranked[1].layout
    # dp follows from the number of GPUs.
    values = {one: str(getattr(layout, one)) for one in names if one != "dp"}
    if not isinstance(plan, ServingPlan):
        graphs = [one.layout.cuda_graphs for one in plan.search.ranked]
        values |= {"cuda_graphs": str(graphs[1]).lower()} if any(graphs) else {}
    pins = " ".join(f"--set layout.{one}={value}" for one, value in values.items())
    yield f"parc estimate spec.yaml {pins}", "Shows the sizes of the second candidate term by term."


def parc_explain_command(term: str) -> str:
    """Return the ``parc explain`` command that explains the cost model term ``term``."""
    return f"parc explain {term.removesuffix('_seconds').removesuffix('_bytes')}"
