"""CSV reader that keeps the position of each cell, so that findings can point at it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.spec.nearest import did_you_mean

CELL = re.compile(r'[ \t]*("(?:[^"]|"")*"|[^,"]*)[ \t]*(,|$)')
MAX_ROWS = 1000
"""Maximum number of rows. A fit of 1,000 runs takes a minute, and a dozen parameters need fewer."""


@dataclass(frozen=True, slots=True)
class CsvCell:
    """Text of one cell, with its position."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class CsvRow:
    """Line of the table: the cells that are not empty, by column."""

    cells: dict[str, CsvCell]
    span: Span
    """Span of the whole line."""

    def text(self, column: str) -> str:
        """Return the text in ``column``, empty if the cell is empty."""
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def span_of(self, column: str) -> Span:
        """Return the span of the cell in ``column``, or of the row if the cell is empty."""
        cell = self.cells.get(column)
        return cell.span if cell else self.span


def read_table(text: str, file: str, columns: tuple[str, ...], sink: Sink) -> tuple[CsvRow, ...]:
    """Return the rows of a CSV text with a header line.

    Skip empty lines, and lines that start with #. Report Q01 for a column that is unknown or
    appears twice, for a row with more cells than the header, and for unbalanced quotes.
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
            f"{file} has no run",
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
    """Return the cells of one line; quoted cells cannot contain line breaks."""
    cells, at = [], 0
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
