"""Plain text tables: columns two spaces apart, numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Lines of aligned columns; the first ``left`` columns lean left, the others right."""
    body = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *body)
    ]
    return "\n".join(lines) + "\n"
