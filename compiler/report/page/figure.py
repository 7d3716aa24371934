"""Figures and tables as plain values, which a template prints as inline SVG and HTML.

All boxes of one color become one SVG path, so that a map of 100,000 GPUs stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

Anchor = Literal["start", "middle", "end"]


class TextLine(NamedTuple):
    """Line of text in a figure; ``y`` is its baseline."""

    x: str
    y: str
    text: str
    anchor: Anchor
    role: str
    """CSS class; empty for normal text."""


class TooltipArea(NamedTuple):
    """Invisible rectangle that shows the tooltip ``title``."""

    x: str
    y: str
    width: str
    height: str
    role: str
    title: str


class SvgPath(NamedTuple):
    """Boxes or lines of one color; exactly one of ``role`` and ``color`` is not empty."""

    data: str
    role: str
    color: str
    thick: str
    """Stroke width of boxes that are drawn as thick lines; empty for filled boxes."""


class Figure(NamedTuple):
    """Finished figure, ``width`` x ``height`` SVG units large."""

    title: str
    """Label for screen readers."""
    width: int
    height: int
    paths: tuple[SvgPath, ...]
    areas: tuple[TooltipArea, ...]
    words: tuple[TextLine, ...]


@dataclass(slots=True)
class Canvas:
    """Figure under construction, to which shapes are added; later shapes cover earlier ones."""

    width: int
    _paths: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _areas: list[TooltipArea] = field(default_factory=list)
    _words: list[TextLine] = field(default_factory=list)

    def draw_box(self, ink: str, x: float, y: float, width: float, height: float) -> None:
        """Fill a rectangle; ``ink`` is a CSS class, or a color that starts with ``#``."""
        wide = svg_number(width)
        data = f"M{svg_number(x)} {svg_number(y)}h{wide}v{svg_number(height)}h-{wide}z"
        self._paths.setdefault((ink, ""), []).append(data)

    def draw_bar(self, ink: str, x: float, y: float, width: float, height: float) -> None:
        """Fill a rectangle by drawing a thick line, which needs half the bytes of a box.

        Rectangles of equal ``height`` and ``ink`` share one SVG path.
        """
        # The line runs through the middle of the rectangle; its stroke width is the height.
        data = f"M{svg_number(x)} {svg_number(y + height / 2)}h{svg_number(width)}"
        self._paths.setdefault((ink, svg_number(height)), []).append(data)

    def draw_line(self, ink: str, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a straight line from (x, y) to (to_x, to_y)."""
        data = f"M{svg_number(x)} {svg_number(y)}L{svg_number(to_x)} {svg_number(to_y)}"
        self._paths.setdefault((ink, ""), []).append(data)

    def add_tooltip(self, role: str, at: tuple[float, float, float, float], title: str) -> None:
        """Add a rectangle with the tooltip ``title``; ``at`` is (x, y, width, height)."""
        x, y, width, height = map(svg_number, at)
        self._areas.append(TooltipArea(x, y, width, height, role, title))

    def write_text(
        self, x: float, y: float, text: str, anchor: Anchor = "start", *, role: str = ""
    ) -> None:
        """Write ``text`` at (x, y); ``y`` is the baseline of the line of text."""
        self._words.append(TextLine(svg_number(x), svg_number(y), text, anchor, role))

    def build_figure(self, title: str, height: float) -> Figure:
        """Return a figure of the given height that contains all shapes drawn so far."""
        paths = tuple(
            SvgPath("".join(parts), *(("", ink) if ink[0] == "#" else (ink, "")), thick)
            for (ink, thick), parts in self._paths.items()
        )
        # Rounded up, so that the lowest shape is not cut off.
        whole = int(height) + (height > int(height))
        return Figure(title, self.width, whole, paths, tuple(self._areas), tuple(self._words))


@lru_cache(maxsize=4096)
def svg_number(number: float) -> str:
    """Return ``number`` with one decimal, or as a whole number if that decimal is zero.

    Results are cached, because the coordinates of rows and columns repeat often.
    """
    text = f"{number:.1f}"
    return text[:-2] if text.endswith(".0") else text


def clip_text(text: str, length: int) -> str:
    """Return ``text`` on one line; text longer than ``length`` characters ends in an ellipsis."""
    plain = " ".join(text.split())
    return plain if len(plain) <= length else plain[: length - 1] + "\u2026"


class HtmlTable(NamedTuple):
    """Content of an HTML table. ``prose`` lists the indexes of columns with text, not numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: tuple[int, ...] = (0,)
    strong: int = -1
    """Index of the highlighted row; -1 if no row is highlighted."""

    @property
    def needs_full_width(self) -> bool:
        """True if a column after the first contains text. Such a table needs the full width."""
        return any(self.prose[1:])


def html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    prose: tuple[int, ...] = (0,),
    strong: int = -1,
) -> HtmlTable:
    """Return a table with the given head and rows. Each row has as many cells as ``head``."""
    return HtmlTable(tuple(head), tuple(tuple(row) for row in rows), prose, strong)


WIDTH = 1080
DARK = ("k1", "k5", "k9", "f0", "w0")
"""CSS classes of boxes on which text is white."""
LEFT, RIGHT, TOP, HEIGHT, FOOT = 62, 150, 12, 250, 34
"""Margins of a bar chart, and the height of its plotting area, in SVG units."""


class StackedBar(NamedTuple):
    """Stacked bar of a chart: its name, and the size of each item in the unit of the chart."""

    name: str
    sizes: tuple[float, ...]
    title: str


class LimitLine(NamedTuple):
    """Horizontal line across all bars of a chart, such as a memory limit."""

    size: float
    text: str
    role: str


class BarChart(NamedTuple):
    """Content of a stacked bar chart; ``inks`` are the CSS classes of the items, bottom first."""

    title: str
    unit: str
    below: str
    """Label of the axis below the bars."""
    inks: tuple[str, ...]
    columns: tuple[StackedBar, ...]
    marks: tuple[LimitLine, ...]


def bar_chart(chart: BarChart) -> Figure:
    """Draw a chart of stacked vertical bars, its scale, and the limit lines in ``marks``."""
    canvas = Canvas(WIDTH)
    sizes = [sum(column.sizes) for column in chart.columns] + [mark.size for mark in chart.marks]
    step = tick_distance(max(sizes), 6)
    # Negated floor division rounds up: the scale ends at the first tick at or above all bars.
    top = step * -(-max(sizes) // step)
    scale = HEIGHT / top
    base = TOP + HEIGHT
    _draw_scale(canvas, chart.unit, step, top)
    slot = (WIDTH - LEFT - RIGHT) / len(chart.columns)
    wide = min(56.0, slot * 0.78)
    # Label only every n-th bar if the labels need more than the width.
    every = -(-len(chart.columns) * 22 // (WIDTH - LEFT - RIGHT))
    for index, column in enumerate(chart.columns):
        x, y = LEFT + index * slot + (slot - wide) / 2, float(base)
        for ink, size in zip(chart.inks, column.sizes, strict=True):
            y -= size * scale
            if size * scale >= 0.05:  # thinner boxes are invisible
                canvas.draw_box(ink, x, y, wide, size * scale)
        canvas.add_tooltip("hit", (x, y, wide, base - y), column.title)
        if index % every == 0:
            canvas.write_text(x + wide / 2, base + 14, column.name, "middle", role="small")
    canvas.write_text((LEFT + WIDTH - RIGHT) / 2, base + 30, chart.below, "middle", role="small")
    _draw_limit_lines(canvas, chart.marks, scale)
    return canvas.build_figure(chart.title, base + FOOT)


def _draw_scale(canvas: Canvas, unit: str, step: float, top: float) -> None:
    for index in range(round(top / step) + 1):
        y = TOP + HEIGHT * (1 - index * step / top)
        canvas.draw_line("grid", LEFT, y, WIDTH - RIGHT, y)
        canvas.write_text(LEFT - 6, y + 4, f"{index * step:g}", "end", role="small")
    canvas.write_text(0, TOP + 4, unit, role="small")


def _draw_limit_lines(canvas: Canvas, marks: Sequence[LimitLine], scale: float) -> None:
    """Draw the lines of ``marks``, and their labels on the right without overlaps."""
    lowest = 0.0
    for mark in sorted(marks, key=lambda one: -one.size):
        y = TOP + HEIGHT - mark.size * scale
        canvas.draw_line(mark.role, LEFT, y, WIDTH - RIGHT + 4, y)
        # Labels are at least 15 units apart; a label that is too close to the one above moves down.
        lowest = max(y + 4, lowest + 15)
        canvas.write_text(WIDTH - RIGHT + 8, lowest, mark.text, role="small")


def stacked_bar(title: str, inks: Sequence[str], sizes: Sequence[float]) -> Figure:
    """Draw one stacked horizontal bar over the full width.

    Parts that are wide enough show their percentage.
    """
    canvas = Canvas(WIDTH)
    whole = sum(sizes)
    x = 0.0
    for ink, size in zip(inks, sizes, strict=True):
        wide = WIDTH * size / whole if whole else 0.0
        if wide >= 0.05:
            canvas.draw_box(ink, x, 0, wide, 26)
        if wide >= 44:  # "100 %" fits
            canvas.write_text(
                x + wide / 2, 17, f"{100 * size / whole:.0f} %", "middle", role=text_css_class(ink)
            )
        x += wide
    return canvas.build_figure(title, 26)


def text_css_class(ink: str) -> str:
    """Return the CSS class of readable text on a box of the CSS class ``ink``.

    The text is white on dark boxes, black on light boxes, and in the page's text color on idle
    boxes.
    """
    if ink == "idle":
        return "small"
    return "white" if ink in DARK else "black"


def tick_distance(largest: float, steps: int) -> float:
    """Return a round distance between ticks: 1, 2 or 5 times a power of ten.

    The result is the smallest such distance that divides an axis from 0 to ``largest`` into at most
    ``steps`` intervals.
    """
    step = 1e-9
    while True:
        for factor in (1, 2, 5):
            if step * factor * steps >= largest:
                return step * factor
        # Rounding to one digit keeps the step an exact power of ten after many multiplications.
        step = float(f"{step * 10:.0e}")
