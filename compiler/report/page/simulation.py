"""Percentiles of the simulated latencies of a service, as small charts side by side."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serving import Distribution
from parc.compiler.report.formatting import format_seconds
from parc.compiler.report.page.figure import Canvas, Figure, HtmlTable, html_table
from parc.compiler.report.text.serving_tables import (
    PERCENTILE_HEAD,
    describe_simulation,
    percentile_rows,
)

WIDTH, GAP = 1080, 40
TOP, HEIGHT = 24, 120
MARKED = (50, 90)
"""Percentiles that are labeled below the bars."""
TALLEST = 1.05
"""Height of the plot divided by that of its tallest bar."""


class SimulationChart(NamedTuple):
    """Charts of the latencies with a caption and a table, as values for the page template."""

    figure: Figure
    table: HtmlTable
    caption: str


def simulation_chart(plan: ServingPlan) -> SimulationChart | None:
    """Draw the percentiles of the latencies; return None if the plan was not simulated.

    Requests of a prefill pool have only a time to the first token.
    """
    found, goals = plan.estimate.simulated, plan.problem.goals
    if found is None:
        return None
    canvas = Canvas(WIDTH)
    charts = (
        ("time to first token", found.ttft_seconds, goals.ttft_seconds),
        ("time per token", found.tpot_seconds, goals.tpot_seconds),
        ("time of a request", found.e2e_seconds, goals.e2e_seconds),
    )[: 3 if found.tpot_seconds.p99 else 1]
    width = (WIDTH - (len(charts) - 1) * GAP) / len(charts)
    for index, (title, one, limit) in enumerate(charts):
        _draw_percentiles(canvas, (index * (width + GAP), width), (title, one, limit))
    caption = (
        f"Event simulation of the scheduler under the load of the plan: "
        f"{describe_simulation(found)}. Each bar is a percentile, from 0 to 100 in steps of 5; the "
        "dashed line, if any, is the limit of the goals."
    )
    table = html_table(PERCENTILE_HEAD, percentile_rows(found))
    return SimulationChart(
        canvas.build_figure("percentiles of simulated latencies", TOP + HEIGHT + 22), table, caption
    )


def _draw_percentiles(
    canvas: Canvas, place: tuple[float, float], chart: tuple[str, Distribution, float | None]
) -> None:
    """Draw one chart; ``place`` is (x, width), and ``chart`` is (title, percentiles, limit)."""
    (left, width), (title, found, limit) = place, chart
    # All times per token are 0 if each answer has only one token.
    highest = max(found.curve[-1], limit or 0.0) or 1.0
    scale = HEIGHT / (highest * TALLEST)
    bottom, pitch = TOP + HEIGHT, width / len(found.curve)
    step = 100 // (len(found.curve) - 1)
    canvas.write_text(left, 12, f"{title}, p99 {format_seconds(found.p99)}", role="strong")
    for index, value in enumerate(found.curve):
        x = left + index * pitch
        canvas.draw_box("k1", x, bottom - value * scale, pitch - 2, value * scale)
        name = f"p{index * step} {format_seconds(value)}"
        canvas.add_tooltip("hit", (x, TOP, pitch, HEIGHT), f"{title}: {name}")
        if index * step in MARKED:
            canvas.write_text(x + pitch / 2, bottom + 15, name, "middle", role="small")
    canvas.draw_line("grid", left, bottom, left + width, bottom)
    if limit is not None:
        y = bottom - limit * scale
        canvas.draw_line("mark", left, y, left + width, y)
