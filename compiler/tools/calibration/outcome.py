"""The whole of ``parc calibrate`` between reading files and writing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parc import __version__
from parc.backends.registry import framework_of
from parc.compiler.cost.setup.calibrated import (
    OTHER,
    PARAMETERS,
    collective_terms,
    hardware_class,
    stack_row,
)
from parc.compiler.diagnostics import Finding, Positions, Sink, Span
from parc.compiler.report.formatting import rounded
from parc.compiler.spec.reading.source import Source
from parc.compiler.spec.reading.yaml_tree import split_lines
from parc.compiler.tools.calibration.fit_nccl import LinksFit, fit_nccl
from parc.compiler.tools.calibration.fit_runs import RunsFit, fit_runs, mean_error
from parc.compiler.tools.calibration.measured_runs import MeasuredRun, read_measured_runs
from parc.compiler.tools.calibration.nccl_text import read_nccl

FAR = 0.25
"""A run that is predicted worse than this after the fit is shown to the user."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Runs, collectives, and the parameters that explain them."""

    runs: tuple[MeasuredRun, ...]
    fit: RunsFit
    links: LinksFit

    @property
    def measured(self) -> tuple[float, ...]:
        """Seconds of every run."""
        return tuple(run.seconds for run in self.runs)

    @property
    def errors(self) -> dict[str, float]:
        """Mean error of the runs: shipped, fitted, left out (absent for too few runs)."""
        columns = {"shipped": self.fit.before, "fitted": self.fit.after}
        if self.fit.left_out:
            columns["left_out"] = self.fit.left_out
        return {name: mean_error(column, self.measured) for name, column in columns.items()}

    def document(self) -> dict[str, Any]:
        """The file that a spec can name; no dates, no paths."""
        terms = collective_terms(self.links.values)
        values = {name: rounded(value) for name, value in sorted(self.fit.values.items())}
        return {
            "calibration": 1,
            "written_by": f"parc {__version__}",
            "class": self.fit.hardware,
            "parameters": values,
            "collectives": {
                operation: {name: rounded(value) for name, value in sorted(own.items())}
                for operation, own in sorted(terms.items())
            },
            "fitted_to": {
                "runs": len(self.runs),
                "collective_timings": sum(len(one.before) for one in self.links.measured),
                "mean_error": {name: rounded(value) for name, value in self.errors.items()},
                "not_identified": list(self.fit.unidentified),
            },
        }


def calibrate(source: Source, nccl: Sequence[Source], sink: Sink) -> Calibration | None:
    """Read the table ``source`` and outputs of nccl-tests, and fit; None after an error.

    Warnings (Q05, Q06) say what the measurements do not identify, and which run does not fit.
    """
    texts = {each.name: split_lines(each.text) for each in (source, *nccl)}
    sink.positions = Positions(source.name, lines=texts)
    outputs = [read_nccl(each.text, each.name, sink) for each in nccl]
    runs = read_measured_runs(source, sink)
    if runs:
        _check_classes(runs, sink)
    if sink.failed() or not runs:
        return None
    cluster, stack = _largest(runs), framework_of(runs[0].problem).stack
    row = stack_row(cluster.generation, stack)
    links = fit_nccl([each for each in outputs if each], cluster, row, sink)
    if sink.failed():
        return None
    found = Calibration(runs, fit_runs(runs, links.values, links.network), links)
    _warn_unidentified(found, source, sink)
    _warn_far(found, sink)
    return found


def _largest(runs: Sequence[MeasuredRun]) -> Any:
    """The cluster of the run with the most hosts; the first of equals."""
    return max(runs, key=lambda run: run.problem.cluster.nodes).problem.cluster


def _check_classes(runs: Sequence[MeasuredRun], sink: Sink) -> None:
    """Q03 where a run is of another class than the first."""
    first = runs[0]
    own = _class_of(first)
    for run in runs[1:]:
        other = _class_of(run)
        if other == own:
            continue
        finding = Finding(
            f"{run.name} ran on {other}, {first.name} on {own}",
            label=f"{run.problem.cluster.gpu.name} is {other}",
            help="a calibration is of one hardware class: put these runs into two tables",
        )
        sink.report("Q03", finding, span=run.row.at("node"))


def _class_of(run: MeasuredRun) -> str:
    return hardware_class(run.problem.cluster.gpu, framework_of(run.problem).stack)


def _warn_unidentified(found: Calibration, source: Source, sink: Sink) -> None:
    """Q05, once: what the runs say little or nothing about, and what would show it."""
    names = found.fit.unidentified
    if not names:
        return
    silent = [item.name for item in found.fit.learned if item.identified == "no"]
    help_ = "; ".join(f"{name}: {PARAMETERS.get(name, OTHER).seen_in}" for name in names)
    finding = Finding(
        f"{len(found.runs)} runs do not identify {len(names)} of {len(found.fit.learned)} "
        f"parameters: {', '.join(names)}",
        label=f"shipped values stay: {', '.join(silent)}" if silent else "they are partly known",
        help=f"what would show them: {help_}",
    )
    sink.report("Q05", finding, span=Span(source.name, 1, 1))


def _warn_far(found: Calibration, sink: Sink) -> None:
    """Q06 for every run that the fit does not reach."""
    for run, before, after in zip(found.runs, found.fit.before, found.fit.after, strict=True):
        if abs(after / run.seconds - 1) <= FAR:
            continue
        finding = Finding(
            f"{run.name} took {run.seconds:.4g} s, after the fit {after:.4g} s are predicted",
            label=f"{after / run.seconds - 1:+.0%}; shipped {before:.4g} s",
            help="is it one optimizer step, in seconds, without warm-up and checkpoints, and is "
            "the layout the one that ran?",
        )
        sink.report("Q06", finding, span=run.row.at("step_seconds"))
