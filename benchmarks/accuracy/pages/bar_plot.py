"""Horizontal bar chart of errors by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.pages.svg import box, document, polyline, text

WIDTH, LEFT, RIGHT = 840, 236, 800
TOP, BAR, GAP = 66, 11, 12
"""Top of the first bar, height of a bar, and space between two groups, in pixels."""
TICK = 5.0
"""Distance between two grid lines, in per cent."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Errors in per cent: one row of bars per group, one bar per series."""

    title: str
    label: str
    series: tuple[str, ...]
    groups: tuple[tuple[str, tuple[float, ...]], ...]
    """(name, errors in the order of ``series``) of each group."""
    breaks: tuple[int, ...] = ()
    """Indices of groups that have extra space above them."""


def bars_svg(chart: Bars) -> str:
    """Return the chart as an SVG document."""
    tops, end = _group_tops(chart)
    highest = max(max(errors) for _, errors in chart.groups)
    most = TICK * -(-(highest + 2) // TICK)
    body = [
        text((16, 24), chart.title, css="title"),
        *_draw_legend(chart.series),
        *_grid_lines(most, end),
        *(
            line
            for at, group in zip(tops, chart.groups, strict=True)
            for line in _draw_group(at, group, most)
        ),
        text(((LEFT + RIGHT) / 2, end + 36), chart.label, "middle"),
    ]
    names = ", ".join(chart.series)
    return document((WIDTH, end + 52), chart.title, f"{chart.label}: {names}.", body)


def _group_tops(chart: Bars) -> tuple[list[int], int]:
    """Return the top of every group, and the bottom of the last one."""
    tops, at = [], TOP
    for index in range(len(chart.groups)):
        at += GAP if index in chart.breaks else 0
        tops.append(at)
        at += BAR * len(chart.series) + GAP
    return tops, at - GAP + 6


def _x_of_error(error: float, most: float) -> float:
    return LEFT + (RIGHT - LEFT) * error / most


def _grid_lines(most: float, end: int) -> Iterator[str]:
    for index in range(int(most / TICK) + 1):
        at = _x_of_error(index * TICK, most)
        css = "rule axis" if index == 0 else "rule"
        yield polyline(((at, TOP - 6), (at, end)), css)
        yield text((at, end + 16), f"{index * TICK:g}", "middle", "small quiet")


def _draw_group(top: int, group: tuple[str, Sequence[float]], most: float) -> Iterator[str]:
    name, errors = group
    yield text((LEFT - 10, top + BAR * len(errors) / 2 + 4), name, "end")
    for series, error in enumerate(errors):
        y = top + BAR * series
        yield box((LEFT, y), (_x_of_error(error, most) - LEFT, BAR - 1), f"s{_color_index(series)}")
        yield text((_x_of_error(error, most) + 4, y + BAR - 2), f"{error:.1f}", css="tiny quiet")


def _color_index(series: int) -> int:
    """Return the color index. The last series is the baseline and therefore gray."""
    return (0, 1, 4)[series]


def _draw_legend(names: Sequence[str]) -> Iterator[str]:
    at = 16.0
    for series, name in enumerate(names):
        yield box((at, 38), (14, 10), f"s{_color_index(series)}")
        yield text((at + 20, 47), name)
        at += 44 + 6.6 * len(name)
