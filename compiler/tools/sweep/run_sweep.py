"""Points of a sweep, and their evaluation on all cores or on any executor.

The values that each point sets are read from options, files and mappings. Points are evaluated with
an executor of ``concurrent.futures``.
"""

from __future__ import annotations

import csv
import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import product
from math import prod
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.exceptions import message_on_one_line
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.ir.frozen import frozen
from parc.compiler.pipeline import plan_resolved, resolve_for_plan
from parc.compiler.report.estimate_basis import estimate_basis
from parc.compiler.report.text.layout_text import format_layout, format_serving_layout
from parc.compiler.spec.reading.python_values import json_text
from parc.compiler.spec.reading.source import SpecSource

GC_THRESHOLD = 1_000_000
"""Number of new objects that triggers a garbage collection in a worker; see ``parc.compiler.cli``.
With Python's default, collections cost a tenth of the time."""
MAX_POINTS = 100_000
"""Largest number of points of a sweep. A larger grid is usually a mistake in a step."""
Point = tuple[tuple[str, str], ...]
"""Point of a sweep: (spec path, value as YAML text) pairs."""
Axis = tuple[Point, ...]
"""Alternatives for one or more fields. The grid combines each alternative with those of the other
axes."""

_RANGE = re.compile(r"(?P<low>[+-]?\d*\.?\d+)\.\.(?P<high>[^:,]+)(?::(?P<step>[^,]+))?")


class SweepError(ValueError):
    """Error in the points of a sweep; the message is a single line for the user."""


def axis_of_option(text: str) -> Axis:
    """Return the axis that ``text``, the value of an option ``--vary``, describes.

    The text is PATH=V1,V2, PATH=LOW..HIGH:STEP, or PATH=LOW..HIGH:xFACTOR (geometric range).

    Raises:
        SweepError: the text has another form, or a range has no values.
    """
    path, equals, values = text.partition("=")
    if not equals or not path or not values.strip():
        raise SweepError(f"{text[:80]!r} is not PATH=V1,V2 or PATH=LOW..HIGH:STEP")
    parts = [part.strip() for part in _split_at_commas(values)]
    return tuple(((path, value),) for part in parts for value in _expand_range(part))


def axes_of_mapping(vary: Mapping[str, Iterable[Any]]) -> list[Axis]:
    """Return the axes of spec path -> values. Values become JSON text, which is valid YAML."""
    return [tuple(((path, json_text(value, path)),) for value in vary[path]) for path in vary]


def axis_of_points(points: Iterable[Mapping[str, Any]]) -> Axis:
    """Return the axis whose alternatives are ``points``, mappings of spec paths to values."""
    return tuple(
        tuple((path, json_text(value, path)) for path, value in point.items()) for point in points
    )


def axis_of_list(text: str) -> Axis:
    """Return the axis of a CSV text: the head has spec paths, and each row is one alternative.

    An empty cell keeps the value of the spec.

    Raises:
        SweepError: a row has more cells than the head, or there are no rows.
    """
    # strict, because without it the csv module accepts a quotation mark that never ends
    rows = csv.reader(text.splitlines(), strict=True)
    try:
        head, *points = [[cell.strip() for cell in row] for row in rows if any(row)] or [[]]
    except csv.Error as error:
        raise SweepError(f"the list of points is not valid CSV: {error}") from None
    if not points or not all(head):
        raise SweepError("the list of points needs a head of spec paths, and one row per point")
    for number, row in enumerate(points, start=1):
        if len(row) > len(head):
            raise SweepError(f"point {number} has {len(row)} cells; the head has {len(head)}")
    return tuple(
        tuple((path, cell) for path, cell in zip(head, row, strict=False) if cell) for row in points
    )


def combine_axes(axes: Sequence[Axis]) -> list[Point]:
    """Return all points of the grid; the last axis varies fastest.

    Raises:
        SweepError: there are no points, too many of them, or two axes set the same field.
    """
    count = prod(map(len, axes)) if axes else 0
    if not 0 < count <= MAX_POINTS:
        raise SweepError(f"the sweep has {count:,} points; it must have 1 to {MAX_POINTS:,}")
    paths = [path for axis in axes for path in {path: None for one in axis for path, _ in one}]
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    if repeated:
        raise SweepError(f"{repeated[0]} is varied twice; list all of its values once")
    return [tuple(pair for one in point for pair in one) for point in product(*axes)]


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts of ``text`` between commas that are outside of brackets and quotes."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _expand_range(text: str) -> Iterator[str]:
    """Yield the numbers of the range ``text``; if it is not a range, the text itself."""
    found = _RANGE.fullmatch(text)
    if found is None:
        yield text
        return
    step = found["step"] or "1"
    is_factor = step.startswith("x")
    try:
        value, high = Decimal(found["low"]), Decimal(found["high"])
        by = Decimal(step.removeprefix("x"))
    except InvalidOperation:
        raise SweepError(f"{text!r} is not a range of numbers, LOW..HIGH:STEP") from None
    if not (value.is_finite() and high.is_finite() and by.is_finite()) or value > high:
        raise SweepError(f"the range {text!r} has no values")
    if by <= 0 or (is_factor and (by <= 1 or value <= 0)):
        raise SweepError(f"the range {text!r} never ends: its step must increase the value")
    for _ in range(MAX_POINTS + 1):
        if value > high:
            break
        yield format(value.normalize(), "f")
        value = value * by if is_factor else value + by


@frozen
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
    unmeasured: str = ""
    """What the estimate rests on, if no measured runs confirm it; otherwise empty."""


def evaluate_point(source: SpecSource, overrides: Sequence[str], point: Point) -> SweepRow:
    """Return the row of ``point``, a set of values for the spec in ``source``.

    Only the plan is estimated; no files are emitted. ``overrides`` apply to all points.
    """
    edits = (*overrides, *(f"{path}={value}" for path, value in point))
    sink = Sink()
    try:
        found = resolve_for_plan(source, edits, sink)
        plan = None if found is None else plan_resolved(found, sink)
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
    return SweepRow(point, f"{type(error).__name__}: {message_on_one_line(error)}")


def _figures_by_field(plan: AnyPlan) -> dict[str, Any]:
    """Return the figures of ``plan`` by the name of their field in ``SweepRow``."""
    basis = estimate_basis(plan)
    common = {
        "unmeasured": "" if basis.measured else basis.text,
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
