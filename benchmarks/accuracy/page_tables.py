"""Tables of a Markdown page, found by their heading: figures are read, not typed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageTable:
    """One table: names of the columns, and cells as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str]:
        """The cells of one column.

        Raises:
            KeyError: there is no such column.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r} in {self.columns}")
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def picked(self, *names: str) -> PageTable:
        """Some of the columns, in the order asked for."""
        columns = [self.column(name) for name in names]
        return PageTable(names, tuple(zip(*columns, strict=True)))


def section_lines(page: str, heading: str) -> list[str]:
    """The lines under ``## heading``, up to the next heading.

    Raises:
        KeyError: the page has no such heading.
    """
    lines = page.splitlines()
    start = f"## {heading}"
    if start not in lines:
        raise KeyError(f"the page has no heading {heading!r}")
    body = lines[lines.index(start) + 1 :]
    stop = next((at for at, line in enumerate(body) if line.startswith("## ")), len(body))
    return body[:stop]


def table_under(page: str, heading: str) -> PageTable:
    """The first table under ``## heading``."""
    lines = [line for line in section_lines(page, heading) if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return PageTable(cells[0], tuple(cells[2:]))


def sentences(page: str, heading: str) -> str:
    """The prose under ``## heading`` that has figures in it, as one paragraph."""
    lines = [line for line in section_lines(page, heading) if line and line[0] not in "|#-"]
    return " ".join(line for line in lines if any(letter.isdigit() for letter in line))


def markdown(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: int = 1) -> str:
    """A table; all columns but the first ``words`` hold numbers."""
    ruler = ["---"] * words + ["---:"] * (len(columns) - words)
    lines = [columns, tuple(ruler), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
