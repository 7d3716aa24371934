"""Convert the rows of a CSV table to measured runs: problem, layout, seconds per step.

Each row is converted to a spec and resolved like any spec, so that mistakes have the usual
diagnostics. Each diagnostic is reported at the cell that caused it, so the CSV reader keeps the
position of each cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parc.backends.base import Framework
from parc.backends.registry import framework_of_problem
from parc.compiler.diagnostics import Diagnostic, Finding, Sink, Span
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_RECOMPUTE,
    NO_ZERO_PLUS,
    Layout,
    Model,
    Problem,
    ServingProblem,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.pipeline import resolve_spec
from parc.compiler.search.enumerate_layouts import truncated_split
from parc.compiler.search.explain_invalid import explain_invalid
from parc.compiler.spec.reading.scalars import plain_scalar
from parc.compiler.spec.reading.source import SpecSource, UnreadableFileError, read_source

# Python's csv module does not report the column at which a cell starts.
CELL = re.compile(r'[ \t]*("(?:[^"]|"")*"|[^,"]*)[ \t]*(,|$)')
MAX_ROWS = 1000
"""Maximum number of rows. A fit of 1,000 runs takes a minute, and a dozen parameters need fewer."""


@frozen
class CsvCell:
    """Text of one cell of a CSV file, with its position."""

    text: str
    span: Span


@frozen
class CsvRow:
    """Line of a CSV file: the cells that are not empty, by column name."""

    cells: dict[str, CsvCell]
    span: Span
    """Span of the whole line."""

    def cell_text(self, column: str) -> str:
        """Return the text of the cell in ``column``; an empty string if the cell is empty."""
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def cell_span(self, column: str) -> Span:
        """Return the position of the cell in ``column``, or of the row if the cell is empty."""
        cell = self.cells.get(column)
        return cell.span if cell else self.span


def read_table(text: str, file: str, columns: tuple[str, ...], sink: Sink) -> tuple[CsvRow, ...]:
    """Return the rows of a CSV text whose header line names some of ``columns``.

    Skip empty lines, and lines that start with ``#``. Report an invalid table (Q01): a column that
    is unknown or appears twice, a row with more cells than the header, or unbalanced quotes.
    """
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip(" \t,") and not line.lstrip().startswith("#")
    ]
    if len(lines) > MAX_ROWS + 1:
        sink.report("Q01", f"{file} has more than {MAX_ROWS} rows", span=Span(file, 1, 1))
        return ()
    if len(lines) < 2:
        finding = Finding(
            f"{file} contains no measured run",
            help="write a header line, then one line per run: see docs/calibrate.md",
        )
        sink.report("Q01", finding, span=Span(file, 1, 1))
        return ()
    header = _split_cells(*lines[0], file, sink)
    if not _check_columns(header, columns, sink):
        return ()
    names = [cell.text for cell in header]
    return tuple(_parse_row(names, line, file, sink) for line in lines[1:])


def _check_columns(header: list[CsvCell], columns: tuple[str, ...], sink: Sink) -> bool:
    seen: set[str] = set()
    valid = bool(header)
    for cell in header:
        if cell.text in columns and cell.text not in seen:
            seen.add(cell.text)
            continue
        near = did_you_mean(cell.text, columns)
        message = f"unknown column {cell.text[:60]!r}"
        label = f"did you mean {' or '.join(near)}?" if near else "this column does not exist"
        if cell.text in seen:
            message, label = f"the column {cell.text} appears twice", "second occurrence"
        finding = Finding(message, label, help=f"valid columns: {', '.join(columns)}")
        sink.report("Q01", finding, span=cell.span)
        valid = False
    return valid


def _parse_row(names: list[str], line: tuple[int, str], file: str, sink: Sink) -> CsvRow:
    cells = _split_cells(*line, file, sink)
    if len(cells) > len(names):
        message = f"this row has {len(cells)} cells, the header has {len(names)}"
        sink.report("Q01", message, span=cells[len(names)].span)
    whole = Span(file, line[0], 1, max(len(line[1]), 1))
    pairs = zip(names, cells, strict=False)
    return CsvRow({name: cell for name, cell in pairs if cell.text}, whole)


def _split_cells(number: int, line: str, file: str, sink: Sink) -> list[CsvCell]:
    """Split one line of a CSV text into cells; a quoted cell cannot contain a line break."""
    cells, at = [], 0
    # An empty last cell starts at the end of the line, hence "<=".
    while at <= len(line):
        match = CELL.match(line, at)
        if match is None:
            sink.report("Q01", "unbalanced quotes", span=Span(file, number, at + 1))
            break
        start = match.start(1)
        raw = match.group(1).rstrip()
        text = raw[1:-1].replace('""', '"') if raw.startswith('"') else raw
        cells.append(CsvCell(text.strip(), Span(file, number, start + 1, max(len(raw), 1))))
        if not match.group(2):
            break
        at = match.end()
    return cells


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
"""Column -> spec path of its cells."""
COLUMNS = ("run", "spec", *PATHS, "step_seconds")
DEFAULTS = {"tp": "1", "cp": "1", "pp": "1", "vpp": "1", "ep": "1", "recompute": "none"}
"""Values of empty cells in a row without a spec. An empty ``etp`` means tp, as in Megatron."""
REQUIRED_PINS = ("tp", "cp", "pp", "vpp", "micro_batch", "recompute")
"""Layout fields that a measured run must set, because the run determines them and PARC must not
choose them. A row with a spec of a model with experts must also set ep and etp."""


@frozen
class MeasuredRun:
    """Training run whose step time the user measured."""

    name: str
    row: CsvRow
    problem: Problem
    layout: Layout
    seconds: float
    """Measured seconds per optimizer step."""

    @property
    def span(self) -> Span:
        """Position of the run in the table."""
        return self.row.span

    @property
    def model(self) -> Model:
        """Model that the run trained."""
        return self.problem.model


def read_measured_runs(source: SpecSource, sink: Sink) -> tuple[MeasuredRun, ...]:
    """Return the valid runs of a table in the order of its rows; report errors in other rows.

    Paths of specs and model configs are relative to ``source.folder``.
    """
    rows = read_table(source.text, source.name, COLUMNS, sink)
    found = (_RowReader(source, row, sink).read_run() for row in rows)
    return tuple(run for run in found if run is not None)


class _RowReader:
    """Reader of one row of the table, which reports each error at the cell that caused it."""

    def __init__(self, source: SpecSource, row: CsvRow, sink: Sink) -> None:
        self.source = source
        self.row = row
        self.sink = sink

    def read_run(self) -> MeasuredRun | None:
        seconds = self._read_seconds()
        problem = self._resolve_problem()
        layout = self._build_layout(problem) if problem else None
        if seconds is None or problem is None or layout is None:
            return None
        name = self.row.cell_text("run") or f"line {self.row.span.line}"
        return MeasuredRun(name, self.row, problem, layout, seconds)

    def _read_seconds(self) -> float | None:
        text = self.row.cell_text("step_seconds")
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if 0 < seconds < 1e6:
            return seconds
        message = f"step_seconds is {text[:40]!r}" if text else "step_seconds is empty"
        label = "expected the seconds of one optimizer step, a number above 0"
        self.sink.report("Q02", Finding(message, label), span=self.row.cell_span("step_seconds"))
        return None

    def _resolve_problem(self) -> Problem | None:
        spec_sink = Sink()
        if self.row.cell_text("spec"):
            source = self._read_spec()
            if source is None:
                return None
            changes = {
                PATHS[name]: _parse_cell(self.row.cell_text(name))
                for name in self._filled_columns()
            }
            overrides = [f"{path}={json.dumps(value)}" for path, value in changes.items()]
            problem = resolve_spec(source, overrides, spec_sink)
        else:
            # JSON is valid YAML, so the usual reader of specs checks the cells.
            text = json.dumps(self._build_spec_tree())
            problem = resolve_spec(
                SpecSource(self.source.name, text, self.source.folder), (), spec_sink
            )
        self._report_at_cells(spec_sink.diagnostics)
        if isinstance(problem, ServingProblem):
            finding = Finding(
                "a serving job has no training steps to fit", "job.kind in this spec is serve"
            )
            self.sink.report("Q02", finding, span=self.row.cell_span("spec"))
            return None
        return None if spec_sink.failed() else problem

    def _filled_columns(self) -> list[str]:
        return [name for name in PATHS if self.row.cell_text(name)]

    def _read_spec(self) -> SpecSource | None:
        path = self.row.cell_text("spec")
        try:
            folder = self.source.folder or Path()
            source = read_source(str(folder / path), root=self.source.root)
        except UnreadableFileError as error:
            self.sink.report("Q02", str(error), span=self.row.cell_span("spec"))
            return None
        return replace(source, name=path)

    def _build_spec_tree(self) -> dict[str, Any]:
        """Return a spec, as a tree of mappings, that is built from the cells of the row."""
        tree: dict[str, Any] = {"parc": 1, "name": "run", "cluster": {}, "job": {}, "layout": {}}
        cells = {**DEFAULTS, **{name: self.row.cell_text(name) for name in self._filled_columns()}}
        for name, text in cells.items():
            section, _, key = PATHS[name].rpartition(".")
            place = tree[section] if section else tree
            place[key] = _parse_cell(text)
        return tree

    def _build_layout(self, problem: Problem) -> Layout | None:
        """Return the layout of the run; None after an error if it is incomplete or invalid.

        Memory is not checked, because the run was measured and therefore fits.
        """
        pins = problem.pins
        required: tuple[str, ...] = REQUIRED_PINS
        # Rows without a spec have defaults for ep and etp.
        if self.row.cell_text("spec") and problem.model.experts:
            required += ("ep", "etp")
        # A single pipeline stage cannot be divided into virtual stages.
        if pins.pp == 1:
            required = tuple(name for name in required if name != "vpp")
        if open_ := [name for name in required if getattr(pins, name) is None]:
            finding = Finding(
                f"{', '.join(open_)} of this run {'is' if len(open_) == 1 else 'are'} not set",
                label="all parallel sizes of a measured run must be set",
                help="fill these columns, or set these fields under layout in the spec",
                fix=f"{open_[0]}: {'none' if open_[0] == 'recompute' else 1}",
            )
            self.sink.report("Q02", finding, span=self.row.cell_span("spec"))
            return None
        target = framework_of_problem(problem)
        layout = _layout_from_pins(problem, target)
        if not any(rule.broken(problem, layout) for rule in all_rules(problem, target)):
            return layout
        spec_sink = Sink()
        explain_invalid(problem, target, [layout], spec_sink)
        self._report_at_cells(spec_sink.diagnostics)
        return None

    def _report_at_cells(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Report the errors in ``diagnostics`` at the cells of the row that caused them.

        Warnings are left out, because ``parc compile`` reports the warnings of a spec.
        """
        spec = self.row.cell_text("spec")
        for each in diagnostics:
            if each.severity != "error":
                continue
            places = (
                name for name, path in PATHS.items() if f"{each.path}.".startswith(f"{path}.")
            )
            column = next(places, "")
            span = self.row.cell_span(column if self.row.cell_text(column) else "spec")
            # The positions of causes are in the spec, whose lines this sink does not have.
            causes = tuple(replace(cause, span=None) for cause in each.finding.causes)
            prefix = f"{spec}: " if spec else ""
            finding = replace(each.finding, message=prefix + each.finding.message, causes=causes)
            self.sink.report(each.code.removeprefix("PARC-"), finding, at=each.path, span=span)


def _layout_from_pins(problem: Problem, target: Framework) -> Layout:
    """Return the layout that the spec sets, with defaults for missing fields.

    The layout is not checked, so it might be invalid.
    """
    pins = problem.pins
    tp, cp, pp, vpp = pins.tp or 1, pins.cp or 1, pins.pp or 1, pins.vpp or 1
    split = target.find_split(problem, pp, vpp) or truncated_split(problem.model.layers, pp, vpp)
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
        sequence_parallel=tp > 1 and on is not False,
        zero_stage=1 if pins.zero_stage is None else pins.zero_stage,
        recompute=pins.recompute or NO_RECOMPUTE,
        split=split,
        order=pins.order or target.rank_orders(problem)[0],
        cp_comm=pins.cp_comm or "p2p",
        cp_a2a=pins.cp_a2a or 1,
        offload=pins.offload or NO_OFFLOAD,
        zero_plus=pins.zero_plus or NO_ZERO_PLUS,
        cuda_graphs=pins.cuda_graphs or False,
    )


def _parse_cell(text: str) -> Any:
    """Return the value of a cell, parsed like a YAML scalar.

    ``selective:moe+mlp`` becomes the setting that recomputes only the modules ``moe`` and ``mlp``.
    """
    words, colon, modules = text.partition(":")
    if colon and words == "selective":
        return {"granularity": "selective", "modules": modules.split("+")}
    try:
        return plain_scalar(text)
    except ValueError:
        return text
