"""Chunks in flight of an action table, counted action by action."""

from __future__ import annotations

from parc.compiler.cost.schedules.table import ActionTable, Computation


def peak_in_flight(table: ActionTable, until: Computation = "W") -> tuple[int, ...]:
    """Return per rank the largest number of chunks whose activations are stored at once.

    Args:
        table: action table; the result depends only on the order on each rank.
        until: ``W`` counts a chunk until its weight gradient, ``I`` until its input gradient.
    """
    peaks = []
    for rank in range(len(table.rows)):
        stored = peak = 0
        for action in table.actions(rank):
            if action.computation == "F":
                stored += 1
                peak = max(peak, stored)
            elif action.computation in ("B", until):
                stored -= 1
        peaks.append(peak)
    return tuple(peaks)
