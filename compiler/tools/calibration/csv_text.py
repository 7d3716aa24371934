"""A table of runs as cells with positions, so that a mistake in one can be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.spec.nearest import did_you_mean

CELL = re.compile(r'[ \t]*("(?:[^"]|"")*"|[^,"]*)[ \t]*(,|$)')
MAX_ROWS = 1000
"""A fit of so many runs takes a minute; more of them add nothing to a dozen parameters."""


@dataclass(frozen=True, slots=True)
class CsvCell:
    """What is written in one cell."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One line of the table: the cells that are not empty, by column."""

    cells: dict[str, CsvCell]
    span: Span
    """The whole line."""

    def text(self, column: str) -> str:
        """What is written under ``column``; empty where nothing is."""
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def at(self, column: str) -> Span:
        """Where ``column`` is written in this row; else the row."""
        cell = self.cells.get(column)
        return cell.span if cell else self.span


def read_table(text: str, file: str, columns: tuple[str, ...], sink: Sink) -> tuple[CsvRow, ...]:
    """The rows of a CSV with a header line; empty lines and lines that start with # are skipped.

    Q01 for a column that is not one of ``columns``, or twice there, for a row that is longer than
    the header, and for quotes that do not match.
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
            f"{file} has no run", help="a header line, then a line a run: see docs/calibrate.md"
        )
        sink.report("Q01", finding, span=Span(file, 1, 1))
        return ()
    header = _split(*lines[0], file, sink)
    if not _known_columns(header, columns, sink):
        return ()
    names = [cell.text for cell in header]
    return tuple(_row(names, line, file, sink) for line in lines[1:])


def _known_columns(header: list[CsvCell], columns: tuple[str, ...], sink: Sink) -> bool:
    seen: set[str] = set()
    sound = bool(header)
    for cell in header:
        if cell.text in columns and cell.text not in seen:
            seen.add(cell.text)
            continue
        near = did_you_mean(cell.text, columns)
        message = f"there is no column {cell.text[:60]!r}"
        label = f"did you mean {' or '.join(near)}?" if near else "no such column"
        if cell.text in seen:
            message, label = f"the column {cell.text} is there twice", "the second one"
        finding = Finding(message, label, help=f"legal: {', '.join(columns)}")
        sink.report("Q01", finding, span=cell.span)
        sound = False
    return sound


def _row(names: list[str], line: tuple[int, str], file: str, sink: Sink) -> CsvRow:
    cells = _split(*line, file, sink)
    if len(cells) > len(names):
        message = f"this row has {len(cells)} cells, the header has {len(names)}"
        sink.report("Q01", message, span=cells[len(names)].span)
    whole = Span(file, line[0], 1, max(len(line[1]), 1))
    pairs = zip(names, cells, strict=False)
    return CsvRow({name: cell for name, cell in pairs if cell.text}, whole)


def _split(number: int, line: str, file: str, sink: Sink) -> list[CsvCell]:
    """Cells of one line; a cell in quotes ends on its line."""
    cells, at = [], 0
    while at <= len(line):
        match = CELL.match(line, at)
        if match is None:
            sink.report("Q01", "the quotes do not match", span=Span(file, number, at + 1))
            break
        start = match.start(1)
        raw = match.group(1).rstrip()
        text = raw[1:-1].replace('""', '"') if raw.startswith('"') else raw
        cells.append(CsvCell(text.strip(), Span(file, number, start + 1, max(len(raw), 1))))
        if not match.group(2):
            break
        at = match.end()
    return cells
