"""A table of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Grid(NamedTuple):
    """Rows under a head; the columns of ``prose`` lean left and wrap, the others are numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: tuple[int, ...] = (0,)
    strong: int = -1
    """Row that is set off; -1: none."""

    @property
    def wide(self) -> bool:
        """Whether it needs the whole width: some prose stands behind the first column."""
        return any(self.prose[1:])


def grid(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    prose: tuple[int, ...] = (0,),
    strong: int = -1,
) -> Grid:
    """The table of ``rows``, each as long as ``head``."""
    return Grid(tuple(head), tuple(tuple(row) for row in rows), prose, strong)
