"""A row of the table to a run that can be priced: problem, layout, measured seconds.

The row becomes a spec, and the spec takes the way of every spec, so that each mistake has its
diagnostic; what is found about the spec is shown at the cell that it came from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parc.backends.base import Framework
from parc.backends.registry import framework_of
from parc.compiler.diagnostics import Diagnostic, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import NO_OFFLOAD, NO_RECOMPUTE, NO_ZERO_PLUS, Layout, Problem, ServingProblem
from parc.compiler.pipeline import resolve_spec
from parc.compiler.search.enumerate_layouts import floor_split
from parc.compiler.search.explain_invalid import explain_invalid
from parc.compiler.spec.reading.scalars import plain_scalar
from parc.compiler.spec.reading.source import Source, Unreadable, read_source
from parc.compiler.tools.calibration.csv_text import CsvRow, read_table

PATHS: dict[str, str] = {
    "model": "model",
    "node": "cluster.node",
    "gpu": "cluster.gpu",
    "nodes": "cluster.nodes",
    "precision": "job.precision",
    "sequence_length": "job.sequence_length",
    "global_batch": "job.global_batch",
    "tp": "layout.tp",
    "cp": "layout.cp",
    "pp": "layout.pp",
    "vpp": "layout.vpp",
    "dp": "layout.dp",
    "ep": "layout.ep",
    "etp": "layout.etp",
    "micro_batch": "layout.micro_batch",
    "recompute": "layout.recompute",
    "sequence_parallel": "layout.sequence_parallel",
    "zero_stage": "layout.zero_stage",
    "first_stage_layers": "layout.first_stage_layers",
    "last_stage_layers": "layout.last_stage_layers",
    "pipeline_layout": "layout.pipeline_layout",
}
"""Column -> where its cell stands in the spec."""
COLUMNS = ("run", "spec", *PATHS, "step_seconds")
DEFAULTS = {"tp": "1", "cp": "1", "pp": "1", "vpp": "1", "ep": "1", "recompute": "none"}
"""Empty cells of a row that has no spec of its own; an empty etp is tp, as in Megatron."""
DECIDED = ("tp", "cp", "pp", "vpp", "micro_batch", "recompute")
"""Pins without which it is not known what ran; ep and etp too where there are experts."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run of the user."""

    name: str
    row: CsvRow
    problem: Problem
    layout: Layout
    seconds: float
    """Measured time of one optimizer step."""


def read_measured_runs(source: Source, sink: Sink) -> tuple[MeasuredRun, ...]:
    """All runs of a table, in its order; what is wrong with a row is reported, and it is left out.

    ``source.folder`` is where relative paths of specs and model configs start.
    """
    rows = read_table(source.text, source.name, COLUMNS, sink)
    found = (_Reader(source, row, sink).run() for row in rows)
    return tuple(run for run in found if run is not None)


class _Reader:
    """One row."""

    def __init__(self, source: Source, row: CsvRow, sink: Sink) -> None:
        self.source = source
        self.row = row
        self.sink = sink

    def run(self) -> MeasuredRun | None:
        seconds = self._seconds()
        problem = self._problem()
        layout = self._layout(problem) if problem else None
        if seconds is None or problem is None or layout is None:
            return None
        name = self.row.text("run") or f"line {self.row.span.line}"
        return MeasuredRun(name, self.row, problem, layout, seconds)

    def _seconds(self) -> float | None:
        text = self.row.text("step_seconds")
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if 0 < seconds < 1e6:
            return seconds
        message = f"step_seconds is {text[:40]!r}" if text else "step_seconds is empty"
        label = "seconds of one optimizer step, above 0, in this column"
        self.sink.report("Q02", Finding(message, label), span=self.row.at("step_seconds"))
        return None

    def _problem(self) -> Problem | None:
        own = Sink()
        if self.row.text("spec"):
            source = self._spec_source()
            if source is None:
                return None
            changes = {PATHS[name]: _value(self.row.text(name)) for name in self._written()}
            overrides = [f"{path}={json.dumps(value)}" for path, value in changes.items()]
            problem = resolve_spec(source, overrides, own)
        else:
            text = json.dumps(self._tree())
            problem = resolve_spec(Source(self.source.name, text, self.source.folder), (), own)
        self._forward(own.diagnostics)
        if isinstance(problem, ServingProblem):
            finding = Finding(
                "a run that serves has no steps to fit", "the spec has job.kind serve"
            )
            self.sink.report("Q02", finding, span=self.row.at("spec"))
            return None
        return None if own.failed() else problem

    def _written(self) -> list[str]:
        return [name for name in PATHS if self.row.text(name)]

    def _spec_source(self) -> Source | None:
        path = self.row.text("spec")
        try:
            source = read_source(str((self.source.folder or Path()) / path))
        except Unreadable as error:
            self.sink.report("Q02", str(error), span=self.row.at("spec"))
            return None
        return replace(source, name=path)

    def _tree(self) -> dict[str, Any]:
        """The cells as a spec."""
        tree: dict[str, Any] = {"parc": 1, "name": "run", "cluster": {}, "job": {}, "layout": {}}
        cells = {**DEFAULTS, **{name: self.row.text(name) for name in self._written()}}
        for name, text in cells.items():
            section, _, key = PATHS[name].rpartition(".")
            place = tree[section] if section else tree
            place[key] = _value(text)
        return tree

    def _layout(self, problem: Problem) -> Layout | None:
        """The one layout that the pins leave, if it is legal; it ran, so it fits."""
        pins = problem.pins
        decided: tuple[str, ...] = DECIDED
        if self.row.text("spec") and problem.model.experts:
            decided += ("ep", "etp")
        if pins.pp == 1:
            decided = tuple(name for name in decided if name != "vpp")
        if open_ := [name for name in decided if getattr(pins, name) is None]:
            finding = Finding(
                f"it is not said which {', '.join(open_)} this run had",
                label="every degree of a measured run must be known",
                help="fill these columns, or pin them under layout: in the spec",
                fix=f"{open_[0]}: {'none' if open_[0] == 'recompute' else 1}",
            )
            self.sink.report("Q02", finding, span=self.row.at("spec"))
            return None
        target = framework_of(problem)
        layout = _pinned(problem, target)
        if not any(rule.broken(problem, layout) for rule in all_rules(problem, target)):
            return layout
        own = Sink()
        explain_invalid(problem, target, [layout], own)
        self._forward(own.diagnostics)
        return None

    def _forward(self, found: Sequence[Diagnostic]) -> None:
        """Report errors of the spec at the cells they came from; warnings are for compile."""
        spec = self.row.text("spec")
        for each in found:
            if each.severity != "error":
                continue
            places = (
                name for name, path in PATHS.items() if f"{each.path}.".startswith(f"{path}.")
            )
            column = next(places, "")
            span = self.row.at(column if self.row.text(column) else "spec")
            causes = tuple(replace(cause, span=None) for cause in each.finding.causes)
            prefix = f"{spec}: " if spec else ""
            finding = replace(each.finding, message=prefix + each.finding.message, causes=causes)
            self.sink.report(each.code.removeprefix("PARC-"), finding, at=each.path, span=span)


def _pinned(problem: Problem, target: Framework) -> Layout:
    """The layout that the pins of ``problem`` say, legal or not."""
    pins = problem.pins
    tp, cp, pp, vpp = pins.tp or 1, pins.cp or 1, pins.pp or 1, pins.vpp or 1
    split = target.splits(problem, pp, vpp) or floor_split(problem.model.layers, pp, vpp)
    on = pins.sequence_parallel
    return Layout(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        dp_replicate=1,
        dp_shard=pins.dp or max(problem.cluster.gpus // (tp * cp * pp), 1),
        ep=pins.ep or 1,
        etp=pins.etp or tp,
        micro_batch=pins.micro_batch or 1,
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=tp > 1 if on is None else on,
        zero_stage=1 if pins.zero_stage is None else pins.zero_stage,
        recompute=pins.recompute or NO_RECOMPUTE,
        split=split,
        order=pins.order or target.orders(problem)[0],
        cp_comm=pins.cp_comm or "p2p",
        cp_a2a=pins.cp_a2a or 1,
        offload=pins.offload or NO_OFFLOAD,
        zero_plus=pins.zero_plus or NO_ZERO_PLUS,
    )


def _value(text: str) -> Any:
    """A cell as YAML would read it; ``selective:moe+mlp`` names modules of recompute."""
    words, colon, modules = text.partition(":")
    if colon and words == "selective":
        return {"granularity": "selective", "modules": modules.split("+")}
    try:
        return plain_scalar(text)
    except ValueError:
        return text
