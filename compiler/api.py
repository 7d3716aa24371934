"""Python API: compile, estimate, check and sweep a spec, given as a path or a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parc.compiler.diagnostics import Diagnostic, Finding, Sink
from parc.compiler.ir import Estimate, ServingEstimate, ServingPlan
from parc.compiler.pipeline import check_spec, plan_spec
from parc.compiler.report.notebook import ServicePlan, TrainingPlan, plan_view
from parc.compiler.spec.reading.source import SpecSource, read_source

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from parc.compiler.tools.sweep.sweep import Sweep

SpecInput = str | Path | Mapping[str, Any]


class SpecError(ValueError):
    """Error of a spec: ``diagnostics`` lists all findings, and the message shows them as text.

    >>> try:
    ...     parc.compile({**spec, "layout": {"tp": 5}})
    ... except parc.SpecError as error:
    ...     [(found.code, found.path, found.finding.fix) for found in error.diagnostics]
    [('PARC-D01', 'layout.tp', 'layout.tp: 4')]
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...], text: str) -> None:
        """Store the diagnostics. ``text`` shows them as for a terminal and becomes the message."""
        super().__init__(text)
        self.diagnostics = diagnostics


def compile(spec: SpecInput, *, root: str | Path | None = None) -> TrainingPlan | ServicePlan:
    """Return the plan of ``spec``; no file is written. A notebook shows the report of the plan.

    Files that the spec names must be below the folder ``root``. The default is the folder of the
    spec, or the working folder for a mapping.

    Raises:
        SpecError: the spec has errors.

    >>> plan = parc.compile({**spec, "layout": {"tp": 8}})
    >>> plan.layout.tp, plan.layout.dp
    (8, 1)
    """
    # Imported here, because text is needed only if the spec has errors.
    from parc.compiler.diagnostics.render.text import render_text

    sink = Sink()
    plan = plan_spec(_read_spec_input(spec, root), (), sink)
    if plan is None:
        raise SpecError(sink.diagnostics, render_text(sink.diagnostics, sink.positions))
    return plan_view(plan)


def estimate(
    spec: SpecInput, *, root: str | Path | None = None
) -> Estimate | ServingEstimate | tuple[ServingEstimate, ServingEstimate]:
    """Return memory, step time and traffic of the layout that ``compile`` chooses.

    Of a service with two pools, return the estimates of the prefill pool and of the decode pool.
    ``root`` is as for ``compile``.

    Raises:
        SpecError: the spec has errors.

    >>> estimate = parc.estimate(spec)
    >>> estimate.peak.total_bytes < estimate.limit_bytes
    True
    """
    plan = compile(spec, root=root)
    if isinstance(plan, ServingPlan) and plan.pair is not None:
        return plan.estimate, plan.pair.decode.estimate
    return plan.estimate


def check(spec: SpecInput, *, root: str | Path | None = None) -> list[Diagnostic]:
    """Return all diagnostics of ``spec`` and of its emitted files: errors, warnings and advice.

    ``root`` is as for ``compile``.

    >>> [found.severity for found in parc.check({**spec, "layout": {"tp": 5}})]
    ['error']
    """
    sink = Sink()
    try:
        source = _read_spec_input(spec, root)
    except SpecError as error:
        return list(error.diagnostics)
    check_spec(source, (), sink)
    return list(sink.diagnostics)


def sweep(
    spec: SpecInput,
    vary: Mapping[str, Iterable[Any]] | None = None,
    *,
    points: Iterable[Mapping[str, Any]] = (),
    executor: Executor | None = None,
    root: str | Path | None = None,
) -> Sweep:
    """Return the estimates of ``spec`` for all combinations of the values in ``vary``.

    A point without a plan has the first error in its row. ``root`` is as for ``compile``.

    Args:
        spec: the spec that the points change.
        vary: values per spec path, such as ``{"cluster.nodes": [16, 32]}``.
        points: mappings of spec paths to values that are set together, such as the type and the
            price of a GPU. They are combined with ``vary``.
        executor: executor of ``concurrent.futures`` that runs the points, such as that of a Dask
            client. The default is one process per core.
        root: folder that must contain all files that the spec names.

    Raises:
        SweepError: there are no points, or more than 100,000.
        SpecError: a value has a type that no spec can contain.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with ThreadPoolExecutor(1) as threads:
        ...     found = parc.sweep(spec, {"job.global_batch": [32, 64]}, executor=threads)
        >>> [row.values for row in found.rows]
        [(('job.global_batch', '32'),), (('job.global_batch', '64'),)]
    """
    # Imported here, because only sweeps need processes and tables.
    from parc.compiler.spec.reading.python_values import UnsupportedValueError
    from parc.compiler.tools.sweep.run_sweep import (
        axes_of_mapping,
        axis_of_points,
        combine_axes,
        local_executor,
        run_sweep,
    )
    from parc.compiler.tools.sweep.sweep import Sweep

    source = _read_spec_input(spec, root)
    try:
        axes, listed = axes_of_mapping(vary or {}), axis_of_points(points)
    except UnsupportedValueError as error:
        raise _spec_error(error.path, str(error)) from None
    grid = combine_axes([listed, *axes] if listed else axes)
    pool = None if executor else local_executor(len(grid))
    with pool or nullcontext():
        rows = run_sweep(source, grid, executor=executor or pool)
    return Sweep(source.name, tuple(rows))


def _read_spec_input(spec: SpecInput, root: str | Path | None) -> SpecSource:
    """Return the source of the spec. A mapping is written as JSON, which is valid YAML.

    Raises:
        SpecError: a value of the mapping has a type that no spec can contain (X02).
    """
    folder = None if root is None else Path(root)
    if not isinstance(spec, Mapping):
        return read_source(str(spec), root=folder)
    from parc.compiler.spec.reading.python_values import UnsupportedValueError, json_text

    try:
        return SpecSource("<mapping>", json_text(spec, indent=2), None, folder)
    except UnsupportedValueError as error:
        raise _spec_error(error.path, str(error)) from None


def _spec_error(path: str, message: str) -> SpecError:
    """Return the error of a value at ``path`` that is not a value of a spec (X02)."""
    from parc.compiler.diagnostics.render.text import render_text

    sink = Sink()
    finding = Finding(message, help="use texts, numbers, true, false, lists and mappings")
    sink.report("X02", finding, at=path)
    return SpecError(sink.diagnostics, render_text(sink.diagnostics, sink.positions))
