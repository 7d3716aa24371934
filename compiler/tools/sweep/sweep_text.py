"""Sweep as a table for a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import fields
from typing import NamedTuple

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.report.formatting import (
    format_duration,
    format_percent,
    format_seconds,
    format_without_exponent,
    table,
)
from parc.compiler.tools.sweep.run_sweep import SweepRow
from parc.compiler.tools.sweep.sweep import Sweep, describe_point


class Column(NamedTuple):
    """Column of the table: its head, the field of a row, and the format of a value."""

    head: str
    field: str
    format: Callable[[float], str]


COLUMNS = (
    Column("GPUs", "gpus", lambda value: f"{value:,}"),
    Column("step", "step_seconds", format_seconds),
    Column("MFU", "mfu", format_percent),
    Column("TTFT", "ttft_seconds", format_seconds),
    Column("TPOT", "tpot_seconds", format_seconds),
    Column("tokens/s", "tokens_per_second", lambda value: format_without_exponent(value, 3)),
    Column("run", "wall_seconds", format_duration),
    Column("GPU-hours", "gpu_hours", lambda value: format_without_exponent(value, 3)),
    Column("cost", "cost", lambda value: f"{value:,.0f}"),
    Column("cost/h", "cost_per_hour", lambda value: f"{value:,.2f}"),
)


def varied_paths(sweep: Sweep) -> list[str]:
    """Return the spec paths that the points set, in the order of the axes."""
    return list({path: None for row in sweep.rows for path, _ in row.values})


def sweep_table(sweep: Sweep) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (head, rows) of the table of points with a plan.

    A column that is empty for all points is left out.
    """
    paths = varied_paths(sweep)
    columns = [
        one for one in COLUMNS if any(getattr(row, one.field) is not None for row in sweep.rows)
    ]
    unmeasured = any(row.unmeasured for row in sweep.rows)
    marks = ("basis",) if unmeasured else ()
    head = (*paths, "layout", *(one.head for one in columns), "scaling", *marks, "Pareto")
    rows = []
    for index, row in enumerate(sweep.rows):
        scaling = sweep.scaling[index]
        if scaling is None:  # the point has no plan
            continue
        values = dict(row.values)
        cells = (_format_cell(one, row) for one in columns)
        pareto = "*" if index in sweep.pareto else ""
        given = (values.get(path, "-") for path in paths)
        basis = ("not measured" if row.unmeasured else "measured",) if unmeasured else ()
        rows.append((*given, row.layout, *cells, format_percent(scaling), *basis, pareto))
    return head, rows


def failed_points(sweep: Sweep) -> list[tuple[str, str]]:
    """Return (point, error) of each point without a plan, on one line each."""
    return [(describe_point(row), " ".join(row.error.split())) for row in sweep.rows if row.error]


def sweep_text(sweep: Sweep) -> str:
    """Return the table of points with a plan, and a list of the points without one."""
    head, rows = sweep_table(sweep)
    failed = failed_points(sweep)
    text = (
        f"{sweep.name}: {format_count(len(sweep.rows), 'point')}, {len(failed):,} without a plan\n"
    )
    if rows:
        text += "\n" + table(head, rows, left=len(varied_paths(sweep)) + 1)
        text += "Pareto: no other point is better in both time and cost. "
        text += "Scaling: throughput per GPU, relative to the smallest cluster of the series.\n"
    for basis in dict.fromkeys(row.unmeasured for row in sweep.rows if row.unmeasured):
        text += f"Not measured: {basis}.\n"
    if failed:
        text += "\nPoints without a plan\n"
        text += "".join(f"  {point}: {error}\n" for point, error in failed)
    return text


def sweep_csv(sweep: Sweep) -> str:
    """Return the sweep as CSV text: one row per point, with the values, figures and errors."""
    paths = varied_paths(sweep)
    names = [one.name for one in fields(SweepRow) if one.name not in ("values", "warnings")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*paths, *names, "warnings", "scaling", "pareto"))
    for index, row in enumerate(sweep.rows):
        values = dict(row.values)
        # None becomes an empty cell
        writer.writerow(
            (
                *(values.get(path) for path in paths),
                *(getattr(row, name) for name in names),
                " ".join(row.warnings),
                sweep.scaling[index],
                int(index in sweep.pareto),
            )
        )
    return out.getvalue()


def _format_cell(column: Column, row: SweepRow) -> str:
    value = getattr(row, column.field)
    return "-" if value is None else column.format(value)
