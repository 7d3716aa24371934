"""HTML page of a sweep: time against cost, scaling efficiency, and the table of all points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, log10
from typing import Any, NamedTuple

from parc.backends.shared.render import render
from parc.compiler.report.formatting import format_percent
from parc.compiler.report.page.figure import (
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Canvas,
    Figure,
    clip_text,
    html_table,
)
from parc.compiler.report.page.report_page import inline_text
from parc.compiler.tools.sweep.sweep import SIZE_PATHS, Series, Sweep, describe_point, series
from parc.compiler.tools.sweep.sweep_text import failed_points, sweep_table, varied_paths

INKS = ("k1", "k6", "k4", "k5", "k7", "k2", "k8", "k9")
"""CSS classes of the series; the last one stands for all further series."""
SPEND_NAMES = {
    "cost": "cost of the run",
    "gpu_hours": "GPU-hours of the run",
    "cost_per_hour": "cost per hour",
    "gpus": "GPUs",
}
BOX = 7.0
"""Side of the box that marks a point, in SVG units."""
TICKS = (1, 2, 5)


class Dot(NamedTuple):
    """Point of a chart."""

    x: float
    y: float
    ink: str
    title: str


class Scale(NamedTuple):
    """Logarithmic axis from ``low`` to ``high``, drawn from ``start`` over ``length`` units."""

    low: float
    high: float
    start: float
    length: float

    def position(self, value: float) -> float:
        """Return the coordinate of ``value`` in SVG units."""
        share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return self.start + share * self.length

    def ticks(self) -> list[float]:
        """Return the round numbers on the axis: 1, 2 and 5 times powers of ten."""
        powers = range(int(log10(self.low)) - 2, int(log10(self.high)) + 2)
        found = (factor * 10.0**power for power in powers for factor in TICKS)
        return [tick for tick in found if self.low <= tick <= self.high]


def sweep_page(sweep: Sweep, answer: str = "") -> str:
    """Return the page as HTML text; it loads no other file and contains no script.

    ``answer`` is the text on the best point.
    """
    names = list(dict.fromkeys(series(row) for row in sweep.planned))
    inks = {name: INKS[min(index, len(INKS) - 1)] for index, name in enumerate(names)}
    head, rows = sweep_table(sweep)
    texts = tuple(range(len(varied_paths(sweep)) + 1))
    values: dict[str, Any] = {
        "style": inline_text("style.css.j2"),
        "name": sweep.name,
        "answer": answer,
        "points": f"{len(sweep.rows):,} points, {len(sweep.rows) - len(rows):,} without a plan",
        "trade": _trade_chart(sweep, inks),
        "scaling": _scaling_chart(sweep, inks),
        "legend_entries": _legend_entries(names),
        "table_of_points": html_table(head, rows, prose=texts),
        "failed": html_table(("point", "error"), failed_points(sweep), prose=(0, 1)),
    }
    return render("report", "sweep.html.j2", values)


def _legend_entries(names: Sequence[Series]) -> list[tuple[str, str]]:
    """Return (name, CSS class) of each series; the series that share the last class are one."""
    named = [
        (clip_text(" ".join((gpu, *(f"{path}={value}" for path, value in pairs))), 80), ink)
        for (gpu, pairs), ink in zip(names, INKS, strict=False)
    ]
    if len(names) > len(INKS):
        named[-1] = (f"{len(names) - len(INKS) + 1} further series", INKS[-1])
    return named


def _trade_chart(sweep: Sweep, inks: dict[Series, str]) -> Figure | None:
    """Return the chart of time against cost with the Pareto front; None without such points."""
    dots, front = [], []
    for index, row in enumerate(sweep.rows):
        time, spend = (inf, inf) if row.error else sweep.time_and_spend(row)
        if time == inf or spend == inf:
            continue
        # Days for a run, milliseconds for the token of a service.
        x = time / 86_400 if row.tpot_seconds is None else 1e3 * time
        dots.append(Dot(x, spend, inks[series(row)], f"{describe_point(row)}: {row.layout}"))
        if index in sweep.pareto:
            front.append((x, spend))
    below = "time per output token, ms" if _is_service(sweep) else "length of the run, days"
    return _draw_scatter(dots, ("Time against cost", SPEND_NAMES[sweep.spend_field], below), front)


def _scaling_chart(sweep: Sweep, inks: dict[Series, str]) -> Figure | None:
    """Return the chart of scaling efficiency against GPUs; None if no point changes their number.

    The efficiency is a percentage.
    """
    if not any(path.startswith(SIZE_PATHS) for path in varied_paths(sweep)):
        return None
    dots = [
        Dot(
            float(row.gpus or 1),
            100 * share,
            inks[series(row)],
            f"{describe_point(row)}: {format_percent(share)}",
        )
        for row, share in zip(sweep.rows, sweep.scaling, strict=True)
        if share
    ]
    return _draw_scatter(dots, ("Scaling efficiency", "throughput per GPU, %", "GPUs"), ())


def _is_service(sweep: Sweep) -> bool:
    return any(row.tpot_seconds is not None for row in sweep.rows)


def _draw_scatter(
    dots: Sequence[Dot], labels: tuple[str, str, str], front: Sequence[tuple[float, float]]
) -> Figure | None:
    """Draw a chart of points on logarithmic axes; None without points.

    ``labels`` are the title, the vertical and the horizontal axis. ``front`` are the corners of a
    line of steps.
    """
    if not dots:
        return None
    title, unit, below = labels
    base = TOP + HEIGHT
    across = _logarithmic_axis([dot.x for dot in dots], LEFT + 30, WIDTH - RIGHT - LEFT - 30)
    upward = _logarithmic_axis([dot.y for dot in dots], base, -HEIGHT + 24)
    canvas = Canvas(WIDTH)
    for tick in upward.ticks():
        y = upward.position(tick)
        canvas.draw_line("grid", LEFT, y, WIDTH - RIGHT, y)
        canvas.write_text(LEFT - 6, y + 4, f"{tick:,.10g}", "end", role="small")
    for tick in across.ticks():
        x = across.position(tick)
        canvas.draw_line("grid", x, TOP + 20, x, base)
        canvas.write_text(x, base + 14, f"{tick:,.10g}", "middle", role="small")
    canvas.write_text(LEFT, TOP + 6, unit, role="small")
    canvas.write_text((LEFT + WIDTH - RIGHT) / 2, base + 32, below, "middle", role="small")
    corners = [(across.position(x), upward.position(y)) for x, y in sorted(front)]
    for (x, y), (next_x, next_y) in pairwise(corners):
        canvas.draw_line("mark", x, y, next_x, y)
        canvas.draw_line("mark", next_x, y, next_x, next_y)
    for dot in dots:
        x, y = across.position(dot.x) - BOX / 2, upward.position(dot.y) - BOX / 2
        canvas.draw_box(dot.ink, x, y, BOX, BOX)
        canvas.add_tooltip("hit", (x, y, BOX, BOX), dot.title)
    return canvas.build_figure(title, base + 38)


def _logarithmic_axis(values: Sequence[float], start: float, length: float) -> Scale:
    """Return an axis with a margin around ``values``, which are positive.

    The axis covers at least a factor of two, so that it has a tick.
    """
    low, high = min(values) / 1.1, max(values) * 1.1
    if high < 2 * low:
        low, high = low / 1.5, high * 1.5
    return Scale(low, high, start, length)
