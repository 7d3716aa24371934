"""Stacked bar charts: memory per stage, seconds of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from parc.compiler.report.page.figure import Canvas, Figure

WIDTH = 1080
DARK = ("k1", "k5", "k9", "f0", "w0")
"""CSS classes of boxes on which text is white."""
LEFT, RIGHT, TOP, HEIGHT, FOOT = 62, 150, 12, 250, 34


class Column(NamedTuple):
    """Bar of a chart: its name, and the size of each item in the unit of the scale."""

    name: str
    sizes: tuple[float, ...]
    title: str


class Mark(NamedTuple):
    """Line across all bars, such as a limit."""

    size: float
    text: str
    role: str


class Chart(NamedTuple):
    """Content of a bar chart; ``inks`` are the CSS classes of the items."""

    title: str
    unit: str
    below: str
    """Label of the axis below the bars."""
    inks: tuple[str, ...]
    columns: tuple[Column, ...]
    marks: tuple[Mark, ...]


def bar_chart(chart: Chart) -> Figure:
    """Draw vertical bars with the first item at the bottom, and the lines of ``marks``."""
    canvas = Canvas(WIDTH)
    sizes = [sum(column.sizes) for column in chart.columns] + [mark.size for mark in chart.marks]
    step = nice_step(max(sizes), 6)
    top = step * -(-max(sizes) // step)
    scale = HEIGHT / top
    base = TOP + HEIGHT
    _scale(canvas, chart.unit, step, top)
    slot = (WIDTH - LEFT - RIGHT) / len(chart.columns)
    wide = min(56.0, slot * 0.78)
    # Label only every n-th bar if the labels need more than the width.
    every = -(-len(chart.columns) * 22 // (WIDTH - LEFT - RIGHT))
    for index, column in enumerate(chart.columns):
        x, y = LEFT + index * slot + (slot - wide) / 2, float(base)
        for ink, size in zip(chart.inks, column.sizes, strict=True):
            y -= size * scale
            if size * scale >= 0.05:  # thinner boxes are invisible
                canvas.box(ink, x, y, wide, size * scale)
        canvas.area("hit", (x, y, wide, base - y), column.title)
        if index % every == 0:
            canvas.word(x + wide / 2, base + 14, column.name, "middle", role="small")
    canvas.word((LEFT + WIDTH - RIGHT) / 2, base + 30, chart.below, "middle", role="small")
    _marks(canvas, chart.marks, scale)
    return canvas.figure(chart.title, base + FOOT)


def _scale(canvas: Canvas, unit: str, step: float, top: float) -> None:
    for index in range(round(top / step) + 1):
        y = TOP + HEIGHT * (1 - index * step / top)
        canvas.line("grid", LEFT, y, WIDTH - RIGHT, y)
        canvas.word(LEFT - 6, y + 4, f"{index * step:g}", "end", role="small")
    canvas.word(0, TOP + 4, unit, role="small")


def _marks(canvas: Canvas, marks: Sequence[Mark], scale: float) -> None:
    """Draw the marks with their text at the right, without overlaps of text."""
    lowest = 0.0
    for mark in sorted(marks, key=lambda one: -one.size):
        y = TOP + HEIGHT - mark.size * scale
        canvas.line(mark.role, LEFT, y, WIDTH - RIGHT + 4, y)
        lowest = max(y + 4, lowest + 15)
        canvas.word(WIDTH - RIGHT + 8, lowest, mark.text, role="small")


def flat_bar(title: str, inks: Sequence[str], sizes: Sequence[float]) -> Figure:
    """Draw one horizontal bar over the full width, its parts in order."""
    canvas = Canvas(WIDTH)
    whole = sum(sizes)
    x = 0.0
    for ink, size in zip(inks, sizes, strict=True):
        wide = WIDTH * size / whole if whole else 0.0
        if wide >= 0.05:
            canvas.box(ink, x, 0, wide, 26)
        if wide >= 44:
            canvas.word(
                x + wide / 2, 17, f"{100 * size / whole:.0f} %", "middle", role=text_class(ink)
            )
        x += wide
    return canvas.figure(title, 26)


def text_class(ink: str) -> str:
    """Return the CSS class of text on a box of ``ink``: white, black, or the colour of the page."""
    if ink == "idle":
        return "small"
    return "white" if ink in DARK else "black"


def nice_step(largest: float, steps: int) -> float:
    """Return the smallest distance (1, 2 or 5 x a power of ten) with at most ``steps`` ticks."""
    step = 1e-9
    while True:
        for factor in (1, 2, 5):
            if step * factor * steps >= largest:
                return step * factor
        step = float(f"{step * 10:.0e}")
