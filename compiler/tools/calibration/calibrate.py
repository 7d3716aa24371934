"""Implementation of ``parc calibrate``: fit the cost model to measured runs and nccl-tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parc import __version__
from parc.backends.registry import framework_of_problem
from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS
from parc.compiler.cost.setup.calibrated_parameters import (
    OTHER,
    PARAMETERS,
    calibrated_collective_constants,
    efficiency_for_stack,
    hardware_class,
)
from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.ir import ServingLayout
from parc.compiler.ir.frozen import frozen
from parc.compiler.report.formatting import round_to_six_digits
from parc.compiler.resolve.resolve_calibration import service_class
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.reading.yaml_tree import split_lines
from parc.compiler.tools.calibration.fit_nccl import LinksFit, fit_nccl, read_nccl
from parc.compiler.tools.calibration.fit_runs import RunsFit, fit_runs, mean_error
from parc.compiler.tools.calibration.fit_services import Observation, fit_services
from parc.compiler.tools.calibration.measured_runs import MeasuredRun, read_measured_runs
from parc.compiler.tools.calibration.measured_services import (
    MeasuredService,
    read_measured_services,
)

LARGE_ERROR = 0.25
"""Relative error of the fitted prediction above which a run is reported (Q06)."""
RUN_ADVICE = (
    "check that step_seconds is the time of one optimizer step, without warm-up and checkpoints, "
    "and that the row describes the layout of the run"
)
SERVICE_ADVICE = (
    "check that the spec has the layout, number formats and engine limits of the service, and that "
    "the benchmark excludes the first requests after a start"
)


@frozen
class Calibration:
    """Measurements, with the cost model's parameters that are fitted to them."""

    runs: tuple[MeasuredRun | Observation, ...]
    """Training runs, or the measured means of the runs of a serving benchmark."""
    count: int
    """Number of training runs, or of runs of a serving benchmark."""
    fit: RunsFit
    links: LinksFit
    layouts: tuple[ServingLayout, ...] = ()
    """Different layouts of the services that the benchmarks measured; empty for training."""

    @property
    def measured(self) -> tuple[float, ...]:
        """Measured value of each element of ``runs``, in their order."""
        return tuple(run.seconds for run in self.runs)

    @property
    def errors(self) -> dict[str, float]:
        """Mean relative error of the predictions, per set of parameters.

        The keys are ``shipped``, ``fitted`` and, if there are enough runs, ``left_out``. For
        ``left_out``, the values of each run are predicted by a fit that does not use this run.
        """
        columns = {"shipped": self.fit.before, "fitted": self.fit.after}
        if self.fit.left_out:
            columns["left_out"] = self.fit.left_out
        return {name: mean_error(column, self.measured) for name, column in columns.items()}

    def document(self) -> dict[str, Any]:
        """Return the content of the calibration file as JSON types.

        It contains no dates or paths, so that equal measurements give an identical file.
        """
        terms = calibrated_collective_constants(self.links.fitted_values)
        values = {
            name: round_to_six_digits(value)
            for name, value in sorted(self.fit.fitted_values.items())
        }
        return {
            "calibration": 1,
            "written_by": f"parc {__version__}",
            "class": self.fit.hardware,
            "parameters": values,
            "collectives": {
                operation: {name: round_to_six_digits(value) for name, value in sorted(own.items())}
                for operation, own in sorted(terms.items())
            },
            "fitted_to": {
                "runs": self.count,
                "collective_timings": sum(len(one.before) for one in self.links.measured),
                "mean_error": {
                    name: round_to_six_digits(value) for name, value in self.errors.items()
                },
                "not_identified": list(self.fit.unidentified),
            },
        }


def calibrate(source: SpecSource, nccl: Sequence[SpecSource], sink: Sink) -> Calibration | None:
    """Fit the cost model to the table of runs in ``source`` and to the nccl-tests outputs ``nccl``.

    Return None if an error is reported. Report warnings for parameters that the measurements do
    not identify (Q05), and for runs that the fit cannot reproduce (Q06).
    """
    # Diagnostics show source lines of the table and of each output of nccl-tests.
    texts = {each.name: split_lines(each.text) for each in (source, *nccl)}
    sink.positions = SpecPositions(source.name, lines=texts)
    outputs = [read_nccl(each.text, each.name, sink) for each in nccl]
    runs = read_measured_runs(source, sink)
    if runs:
        _check_same_hardware_class(runs, sink)
    if sink.failed() or not runs:
        return None
    cluster, stack = _largest_cluster(runs), framework_of_problem(runs[0].problem).stack
    row = efficiency_for_stack(cluster.generation, stack)
    links = fit_nccl([each for each in outputs if each], cluster, row, sink)
    if sink.failed():
        return None
    # The links are fitted first: their values are fixed, or narrow priors, in the fit to the runs.
    fit = fit_runs(runs, links.fitted_values, links.network)
    found = Calibration(runs, len(runs), fit, links)
    _warn_unidentified(found, source, sink)
    _warn_large_errors(found, sink)
    return found


def calibrate_service(
    sources: Sequence[SpecSource], spec: SpecSource | None, sink: Sink
) -> Calibration | None:
    """Fit the factors of a service to the results of serving benchmarks in ``sources``.

    ``spec`` describes the service. Return None if an error is reported.
    """
    sink.positions = SpecPositions(
        sources[0].name, lines={each.name: split_lines(each.text) for each in sources}
    )
    services = read_measured_services(sources, spec, sink)
    for other in services[1:]:
        _check_same_class(services[0], other, sink)
    if sink.failed() or not services:
        return None
    observations, fit = fit_services(services)
    layouts = tuple(dict.fromkeys(one.layout for one in services))
    found = Calibration(observations, len(services), fit, LinksFit(), layouts)
    _warn_unidentified(found, sources[0], sink)
    _warn_large_errors(found, sink)
    return found


def _check_same_class(first: MeasuredService, other: MeasuredService, sink: Sink) -> None:
    """Report a run whose GPU generation or engine differs from that of the first run (Q03)."""
    classes = [service_class(one.problem.cluster, one.problem.framework) for one in (other, first)]
    if classes[0] != classes[1]:
        finding = Finding(
            f"{other.record.name} ran on {classes[0]}, but {first.record.name} on {classes[1]}",
            help="a calibration is valid for one GPU generation and one engine: calibrate each "
            "separately",
        )
        sink.report("Q03", finding, span=other.record.span)


def _largest_cluster(runs: Sequence[MeasuredRun]) -> Any:
    """Return the cluster with the most hosts among the clusters of ``runs``.

    If several clusters have this number of hosts, the first one is returned.
    """
    return max(runs, key=lambda run: run.problem.cluster.nodes).problem.cluster


def _check_same_hardware_class(runs: Sequence[MeasuredRun], sink: Sink) -> None:
    """Report each run whose hardware class differs from that of the first run (Q03).

    A hardware class is a GPU generation with the kernels of a framework, such as
    ``hopper/transformer-engine``.
    """
    first = runs[0]
    expected = _hardware_class_of(first)
    for run in runs[1:]:
        other = _hardware_class_of(run)
        if other == expected:
            continue
        finding = Finding(
            f"{run.name} ran on {other}, but {first.name} on {expected}",
            label=f"the class of {run.problem.cluster.gpu.name} is {other}",
            help="a calibration is valid for one GPU generation and one framework: write one "
            "table for each",
        )
        sink.report("Q03", finding, span=run.row.cell_span("node"))


def _hardware_class_of(run: MeasuredRun) -> str:
    return hardware_class(run.problem.cluster.gpu, framework_of_problem(run.problem).stack)


def _warn_unidentified(calibration: Calibration, source: SpecSource, sink: Sink) -> None:
    """Report the parameters that the runs do not determine, and suggest further runs (Q05)."""
    names = calibration.fit.unidentified
    if not names:
        return
    unchanged = [item.name for item in calibration.fit.parameters if item.identified == "no"]
    known = PARAMETERS | SERVICE_FACTORS
    help_ = "; ".join(f"{name}: {known.get(name, OTHER).seen_in}" for name in names)
    finding = Finding(
        f"{_runs_are_too_few(calibration.count)} to fit {len(names)} of "
        f"{len(calibration.fit.parameters)} parameters: {', '.join(names)}",
        label=f"shipped values are kept for {', '.join(unchanged)}"
        if unchanged
        else "partly identified",
        help=f"measure runs that identify these parameters: {help_}",
    )
    sink.report("Q05", finding, span=Span(source.name, 1, 1))


def _runs_are_too_few(count: int) -> str:
    return "1 run is too few" if count == 1 else f"{count} runs are too few"


def _warn_large_errors(calibration: Calibration, sink: Sink) -> None:
    """Report each value that the fit cannot reproduce (Q06)."""
    for run, before, after in zip(
        calibration.runs, calibration.fit.before, calibration.fit.after, strict=True
    ):
        if abs(after / run.seconds - 1) <= LARGE_ERROR:
            continue
        unit = "" if isinstance(run, Observation) and run.quantity == "tokens/s" else " s"
        finding = Finding(
            f"{run.name} took {run.seconds:.4g}{unit}, but the fit predicts {after:.4g}{unit}",
            label=f"error {(after / run.seconds - 1) * 100:+.0f} %; the shipped parameters predict "
            f"{before:.4g}{unit}",
            help=SERVICE_ADVICE if isinstance(run, Observation) else RUN_ADVICE,
        )
        span = run.row.cell_span("step_seconds") if isinstance(run, MeasuredRun) else run.span
        sink.report("Q06", finding, span=span)
