"""Length, cost and failures of a training run as text for the summary, the tables and the page."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import Job, Plan
from parc.compiler.ir.estimate import Run
from parc.compiler.report.formatting import (
    format_duration,
    format_percent,
    format_quantity,
    format_without_exponent,
)

LIKELY = 0.9
"""Probability from which a run without checkpoints is expected to finish."""


MOCK_DATA = "mock data, because job.data is not set (your own program may load its data itself)"


def run_rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the rows of the summary: length, cost, mock data, and failures if they matter."""
    run = plan.run
    rows = [("run", describe_length(run))]
    if plan.problem.trains_on_mock_data:
        rows.append(("data", MOCK_DATA))
    if run.checkpoint_steps is not None or run.finish_probability < LIKELY:
        rows.append(("failures", describe_failures(run)))
    return tuple(rows)


def describe_length(run: Run) -> str:
    """Return a line with steps, tokens, expected time, GPU-hours, energy and cost."""
    text = _steps_and_tokens(run)
    if run.wall_seconds is None:
        return f"{text}: does not finish, because failures are more frequent than checkpoints"
    return ", ".join((f"{text}: {format_duration(run.wall_seconds)}", *_describe_costs(run)))


def describe_work(run: Run) -> str:
    """Return a line with steps, tokens, GPU-hours, energy and cost, without the time."""
    return ", ".join((_steps_and_tokens(run), *_describe_costs(run)))


def _steps_and_tokens(run: Run) -> str:
    return f"{format_count(run.steps, 'step')}, {format_quantity(run.tokens, ' tokens')}"


def _describe_costs(run: Run) -> Iterator[str]:
    """Yield GPU-hours, energy and cost of the run, as far as they are known."""
    if run.gpu_hours is not None:
        yield f"{format_without_exponent(run.gpu_hours, 3)} GPU-hours"
    if run.energy_kwh is not None:
        yield f"at most {format_quantity(1e3 * run.energy_kwh, 'Wh')}"
    if run.cost is not None:
        yield f"cost {run.cost:,.2f}"


def describe_failures(run: Run) -> str:
    """Return a line on the failures of the run: their number, checkpoints, and lost time."""
    often = f"one per {format_duration(run.failure_interval_seconds)}"
    if run.checkpoint_steps is None:
        return (
            f"{often} expected; the run has no checkpoints and finishes without a failure with a "
            f"probability of {format_percent(run.finish_probability)}"
        )
    return (
        f"{often} expected; with a checkpoint every {format_count(run.checkpoint_steps, 'step')}, "
        f"{format_percent(run.effective_share)} of the time is effective training"
    )


def _save_note(job: Job) -> str:
    """Return how the time follows during which training waits for a checkpoint."""
    return (
        "copy to host memory, at most size / write bandwidth"
        if job.async_checkpoint
        else ("size / write bandwidth")
    )


def run_table(plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """Return (quantity, value, formula or note) rows on the run for ``parc estimate`` and pages."""
    run = plan.run
    checkpoints = "job.checkpoint_dir is not set"
    if run.checkpoint_steps is not None:
        checkpoints = format_count(run.checkpoint_steps, "step")
    rows = (
        ("tokens", f"{run.tokens:,}", "steps x global batch x sequence length"),
        ("training", format_duration(run.productive_seconds), "steps x step time"),
        ("time between failures", format_duration(run.failure_interval_seconds), "MTBF / GPUs"),
        (
            "checkpoint size",
            format_quantity(run.checkpoint_bytes, "B"),
            "weights and optimizer state",
        ),
        ("time per checkpoint", format_duration(run.save_seconds), _save_note(plan.problem.job)),
        (
            "time per restart",
            format_duration(run.restart_seconds),
            "detection + restart + size / read bandwidth",
        ),
        ("checkpoint interval", checkpoints, _best_interval_note(run)),
        ("effective training", format_percent(run.effective_share), "training / expected time"),
        (
            "expected failures",
            f"{run.expected_failures:.3g}",
            "expected time / time between failures",
        ),
        ("useful spare hosts", f"{run.spares:,}", "number with the fewest host-hours"),
    )
    mock = (
        (("data", "mock data", "job.data is not set"),) if plan.problem.trains_on_mock_data else ()
    )
    return (("run", describe_length(run), ""), *mock, *rows)


def length_table(run: Run) -> tuple[tuple[str, str, str], ...]:
    """Return (quantity, value, formula) rows on the length and the cost of the run."""
    expected = "does not finish"
    if run.wall_seconds is not None:
        expected = format_duration(run.wall_seconds)
    rows = [
        ("steps", f"{run.steps:,}", "job.steps or job.tokens"),
        ("expected time", expected, "training, checkpoints and restarts"),
    ]
    if run.gpu_hours is not None:
        hours = format_without_exponent(run.gpu_hours, 3)
        rows.append(("GPU-hours", hours, "expected time x GPUs"))
    if run.energy_kwh is not None:
        energy = f"at most {format_quantity(1e3 * run.energy_kwh, 'Wh')}"
        rows.append(("energy", energy, "GPU-hours x power of a host / its GPUs x pue"))
    if run.cost is not None:
        rows.append(("cost", f"{run.cost:,.2f}", "GPU-hours x price_per_gpu_hour"))
    return tuple(rows)


def _best_interval_note(run: Run) -> str:
    best = f"best: {format_count(run.best_checkpoint_steps, 'step')}"
    return "the best one" if run.checkpoint_steps == run.best_checkpoint_steps else best
