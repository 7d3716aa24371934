"""What a schedule's table holds, counted by walking it."""

from __future__ import annotations

from parc.compiler.cost.schedules.table import Computation, Table


def peak_in_flight(table: Table, until: Computation = "W") -> tuple[int, ...]:
    """Most chunks whose activations each rank holds at once, from forward to backward.

    Args:
        table: the schedule; only the order on each rank matters, not the seconds.
        until: ``W`` keeps a chunk until its weight gradient, ``I`` until its input gradient.
    """
    peaks = []
    for rank in range(len(table.rows)):
        held = peak = 0
        for action in table.actions(rank):
            if action.computation == "F":
                held += 1
                peak = max(peak, held)
            elif action.computation in ("B", until):
                held -= 1
        peaks.append(peak)
    return tuple(peaks)
