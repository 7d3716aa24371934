"""Reader and writer of Markdown tables, so that pages take figures from other pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import mean, median
from typing import TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table: column names, and cells as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str]:
        """Return the cells of one column.

        Raises:
            KeyError: There is no such column.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r} in {self.columns}")
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def picked(self, *names: str) -> PageTable:
        """Return a table of the named columns, in that order."""
        columns = [self.column(name) for name in names]
        return PageTable(names, tuple(zip(*columns, strict=True)))


def section_lines(page: str, heading: str) -> list[str]:
    """Return the lines under ``## heading``, up to the next heading.

    Raises:
        KeyError: The page has no such heading.
    """
    lines = page.splitlines()
    start = f"## {heading}"
    if start not in lines:
        raise KeyError(f"the page has no heading {heading!r}")
    body = lines[lines.index(start) + 1 :]
    stop = next((at for at, line in enumerate(body) if line.startswith("## ")), len(body))
    return body[:stop]


def table_under(page: str, heading: str) -> PageTable:
    """Return the first table under ``## heading``."""
    lines = section_lines(page, heading)
    start = next((at for at, line in enumerate(lines) if line.startswith("|")), len(lines))
    rows = takewhile(lambda line: line.startswith("|"), lines[start:])
    return markdown_table("\n".join(rows))


def markdown_table(text: str) -> PageTable:
    """Return the Markdown table ``text``."""
    cells = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in text.splitlines()]
    return PageTable(cells[0], tuple(cells[2:]))


def markdown(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: int = 1) -> str:
    """Return a Markdown table. The first ``words`` columns contain text, the following ones
    numbers."""
    ruler = ["---"] * words + ["---:"] * (len(columns) - words)
    lines = [columns, tuple(ruler), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def error_row(title: str, runs: Sequence[Row], error_of: Callable[[Row], float]) -> str:
    """Return a line of a Markdown table with the errors of ``runs``, in per cent."""
    errors = [error_of(run) for run in runs]
    sizes = [abs(error) for error in errors]
    inside = sum(size <= 0.1 for size in sizes)
    return (
        f"| {title} | {len(runs)} | {100 * mean(sizes):.1f} | {100 * median(sizes):.1f} | "
        f"{100 * median(errors):.1f} | {inside} |"
    )
