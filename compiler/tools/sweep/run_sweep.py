"""Evaluation of the points of a sweep on all cores, or on any executor of concurrent.futures."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.pipeline import plan_job, resolve_spec
from parc.compiler.report.text.layout_text import format_layout, format_serving_layout
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.sweep.points import Point

GC_THRESHOLD = 1_000_000
"""Number of new objects that triggers a garbage collection in a worker; see ``parc.compiler.cli``.
With Python's default, collections cost a tenth of the time."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """Estimate of one point of a sweep, or the reason why the point has no plan.

    A figure is None if the point has no plan, or if the figure does not apply to its job.
    """

    values: Point
    error: str = ""
    """Diagnostic code and message of the first error; empty if the point has a plan."""
    warnings: tuple[str, ...] = ()
    """Codes of the warnings."""
    gpu: str = ""
    gpus: int | None = None
    """Number of GPUs that other jobs cannot use."""
    layout: str = ""
    tokens_per_second: float | None = None
    cost_per_hour: float | None = None
    step_seconds: float | None = None
    mfu: float | None = None
    wall_seconds: float | None = None
    """Expected length of the training run; see ``Run``."""
    gpu_hours: float | None = None
    energy_kwh: float | None = None
    cost: float | None = None
    """Price of the training run, in the currency of the spec."""
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


def evaluate_point(source: SpecSource, overrides: Sequence[str], point: Point) -> SweepRow:
    """Return the row of ``point``, a set of values for the spec in ``source``.

    Only the plan is estimated; no files are emitted. ``overrides`` apply to all points.
    """
    edits = (*overrides, *(f"{path}={value}" for path, value in point))
    sink = Sink()
    try:
        problem = resolve_spec(source, edits, sink)
        plan = None if problem is None else plan_job(problem, sink)
    # A bug that one point triggers must not end a sweep of hours.
    except Exception as error:
        return _row_of_exception(point, error)
    errors = [one for one in sink.diagnostics if one.severity == "error"]
    if plan is None or errors:
        first = errors[0]
        return SweepRow(point, f"{first.code}: {first.finding.message}")
    warnings = {one.code: None for one in sink.diagnostics if one.severity == "warning"}
    return SweepRow(point, warnings=tuple(warnings), **_figures_by_field(plan))


def run_sweep(
    source: SpecSource,
    points: Sequence[Point],
    *,
    overrides: Sequence[str] = (),
    executor: Executor | None = None,
    after: Callable[[], object] | None = None,
) -> list[SweepRow]:
    """Return the row of each point, in the order of ``points``.

    Args:
        source: spec that the points change.
        points: values to set.
        overrides: edits of the spec that apply to all points.
        executor: executor of ``concurrent.futures`` that runs the points. Its workers need an
            installed PARC, and the files that the spec names. None to evaluate them in this
            process.
        after: function that is called after each point.
    """
    evaluate = partial(evaluate_point, source, tuple(overrides))
    notify = after or (lambda: None)
    if executor is None:
        rows = []
        for point in points:
            rows.append(evaluate(point))
            notify()
        return rows
    futures = [executor.submit(evaluate, point) for point in points]
    try:
        for _ in as_completed(futures):
            notify()
    except BaseException:
        # Otherwise an interrupted sweep would first complete all points that wait.
        for future in futures:
            future.cancel()
        raise
    return [_row_of_future(*pair) for pair in zip(points, futures, strict=True)]


def local_executor(points: int, jobs: int | None = None) -> Executor | None:
    """Return a pool of at most ``jobs`` processes, by default one per core that PARC may use.

    Returns None if one process is enough.
    """
    if jobs is None:
        jobs = os.cpu_count() or 1
        # macOS and Windows do not have this function.
        with suppress(AttributeError):
            jobs = len(os.sched_getaffinity(0))
    workers = min(jobs, points)
    if workers < 2:
        return None
    return ProcessPoolExecutor(workers, initializer=gc.set_threshold, initargs=(GC_THRESHOLD,))


def _row_of_future(point: Point, future: Future[SweepRow]) -> SweepRow:
    # A worker that the system killed leaves an exception, as does a broken connection.
    error = future.exception()
    return future.result() if error is None else _row_of_exception(point, error)


def _row_of_exception(point: Point, error: BaseException) -> SweepRow:
    text = " ".join(str(error).split())[:200]
    return SweepRow(point, f"{type(error).__name__}: {text}")


def _figures_by_field(plan: AnyPlan) -> dict[str, Any]:
    """Return the figures of ``plan`` by the name of their field in ``SweepRow``."""
    common = {
        "gpu": plan.problem.cluster.gpu.name,
        "gpus": plan.occupied_gpus,
        "cost_per_hour": plan.cost_per_hour,
        "tokens_per_second": plan.estimate.tokens_per_second,
    }
    if isinstance(plan, ServingPlan):
        return {
            **common,
            "layout": " + ".join(format_serving_layout(one.layout) for one in plan.pools),
            "tokens_per_second": plan.tokens_per_second,
            "ttft_seconds": plan.ttft_seconds,
            "tpot_seconds": plan.tpot_seconds,
        }
    run = plan.run
    return {
        **common,
        "layout": format_layout(plan.layout),
        "step_seconds": plan.estimate.time.total_seconds,
        "mfu": plan.estimate.mfu,
        "wall_seconds": run.wall_seconds,
        "gpu_hours": run.gpu_hours,
        "energy_kwh": run.energy_kwh,
        "cost": run.cost,
    }
