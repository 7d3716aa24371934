"""Two scatter plots side by side: predicted against measured, and the ratio of the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from benchmarks.accuracy.pages.svg import document, marks, polyline, text, upright

SIZE = (776, 440)
TOP, SIDE = 50, 300
"""Top edge and side length of both panels, in pixels."""
LEFTS = (64, 452)
KEY_TOP = 420
"""Baseline of the legend, in pixels."""
LETTER = 6.6
"""Approximate width of one letter of the legend, in pixels."""
BAND = 1.1
"""Ratio at the edge of the shaded band: predictions within 10 %."""
RATIOS = {
    1.25: (0.8, 0.9, 1, 1.1, 1.25),
    1.5: (2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5),
    2: (0.5, 2 / 3, 0.8, 1, 1.25, 1.5, 2),
    4: (0.25, 1 / 3, 0.5, 2 / 3, 0.8, 1, 1.25, 1.5, 2, 3, 4),
    10: (0.1, 0.2, 0.5, 1, 2, 5, 10),
}
"""Largest ratio of an axis -> its ticks."""
STEPS = (1, 1.5, 2, 3, 5, 7, 10)
"""Valid ends of an axis within a decade."""


@dataclass(frozen=True, slots=True)
class Point:
    """Measured and predicted value of one row, in the unit of the chart."""

    measured: float
    predicted: float
    color: str
    shape: str


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """Content of one chart."""

    title: str
    quantity: str
    """Label of both axes, such as ``step time, seconds``."""
    readings: tuple[Point, ...]
    colors: tuple[str, ...]
    """Names of the series in the order of the colors; a name without points keeps its color."""
    shapes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Logarithmic axis that maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Return the pixel of ``value``. Values outside the axis are drawn at its edge."""
        inside = min(max(value, self.low), self.high)
        share = log10(inside / self.low) / log10(self.high / self.low)
        return self.start + share * (self.end - self.start)


def comparison_svg(chart: ScatterChart) -> str:
    """Return the chart as an SVG document."""
    values = [reading.measured for reading in chart.readings]
    both = values + [reading.predicted for reading in chart.readings]
    low, high, ticks = _logarithmic_axis(min(both), max(both))
    bottom = TOP + SIDE
    across = Scale(low, high, LEFTS[0], LEFTS[0] + SIDE, ticks)
    up = Scale(low, high, bottom, TOP, ticks)
    again = Scale(low, high, LEFTS[1], LEFTS[1] + SIDE, ticks)
    limit = _ratio_limit(chart.readings)
    ratio = Scale(1 / limit, limit, bottom, TOP, RATIOS[limit])
    measured = f"measured {chart.quantity}"
    body = [
        text((LEFTS[0], 24), chart.title, css="title"),
        *_draw_panel(across, up, (measured, f"predicted {chart.quantity}")),
        *_draw_diagonal(across, up),
        *_draw_points(chart, lambda row: (across.at(row.measured), up.at(row.predicted))),
        *_draw_panel(again, ratio, (measured, "predicted / measured")),
        *_draw_level_line(again, ratio),
        *_draw_points(
            chart, lambda row: (again.at(row.measured), ratio.at(row.predicted / row.measured))
        ),
        *_draw_legend(chart),
    ]
    description = f"{len(values)} rows; the shaded band is within 10 % of the measurement."
    return document(SIZE, chart.title, description, body)


def _logarithmic_axis(low: float, high: float) -> tuple[float, float, tuple[float, ...]]:
    """Return the ends of an axis that contains both values, and its ticks.

    Ticks are powers of ten if the axis spans more than 2.5 decades, and finer otherwise.
    """
    first = max(_round_numbers_around(low, lambda end: end <= low * 0.97))
    last = min(_round_numbers_around(high, lambda end: end >= high * 1.03))
    steps = (1,) if log10(last / first) > 2.5 else (1, 2, 5)
    powers = range(floor(log10(first)), ceil(log10(last)) + 1)
    ticks = (step * 10.0**power for power in powers for step in steps)
    inside = tuple(tick for tick in ticks if first * 0.999 <= tick <= last * 1.001)
    return first, last, inside


def _round_numbers_around(value: float, good: Callable[[float], bool]) -> list[float]:
    """Return the round numbers near ``value`` for which ``good`` is true."""
    power = floor(log10(value))
    numbers = [step * 10.0**exponent for exponent in range(power - 1, power + 2) for step in STEPS]
    return [number for number in numbers if good(number)]


def _ratio_limit(readings: Sequence[Point]) -> float:
    """Return the smallest ratio axis that contains all ratios, or the largest axis."""
    ratios = [reading.predicted / reading.measured for reading in readings]
    widest = max(max(ratio, 1 / ratio) for ratio in ratios)
    return next((limit for limit in RATIOS if widest <= limit), max(RATIOS))


def _draw_panel(x: Scale, y: Scale, labels: tuple[str, str]) -> Iterator[str]:
    """Draw grid, ticks and labels of a panel."""
    for tick in x.ticks:
        at = x.at(tick)
        yield polyline(((at, y.start), (at, y.end)), "rule")
        yield text((at, y.start + 16), f"{tick:g}", "middle", "small quiet")
    for tick in y.ticks:
        at = y.at(tick)
        yield polyline(((x.start, at), (x.end, at)), "rule")
        yield text((x.start - 6, at + 4), f"{round(tick, 2):g}", "end", "small quiet")
    yield polyline(((x.start, y.end), (x.start, y.start), (x.end, y.start)), "rule axis")
    yield text(((x.start + x.end) / 2, y.start + 34), labels[0], "middle")
    yield upright((x.start - 44, (y.start + y.end) / 2), labels[1])


def _draw_diagonal(x: Scale, y: Scale) -> Iterator[str]:
    """Draw the line on which prediction equals measurement, and the band around it."""
    low, high = x.low, x.high
    edge = [(low, low), (low, low * BAND), (high / BAND, high), (high, high), (high, high / BAND)]
    edge.append((low * BAND, low))
    yield polyline([(x.at(a), y.at(b)) for a, b in edge], "band")
    yield polyline(((x.start, y.start), (x.end, y.end)), "rule axis")


def _draw_level_line(x: Scale, y: Scale) -> Iterator[str]:
    """Draw the line of ratio 1, and the band around it."""
    top, bottom = y.at(BAND), y.at(1 / BAND)
    corners = ((x.start, top), (x.end, top), (x.end, bottom), (x.start, bottom))
    yield polyline(corners, "band")
    yield polyline(((x.start, y.at(1)), (x.end, y.at(1))), "rule axis")
    yield text((x.end - 4, top - 4), "10 %", "end", "small quiet")


def _draw_points(
    chart: ScatterChart, place: Callable[[Point], tuple[float, float]]
) -> Iterator[str]:
    """Draw the points, series by series."""
    for series, color in enumerate(chart.colors):
        for form, shape in enumerate(chart.shapes):
            rows = [row for row in chart.readings if (row.color, row.shape) == (color, shape)]
            if rows:
                yield marks(sorted(map(place, rows)), f"s{series}", form)


def _draw_legend(chart: ScatterChart) -> Iterator[str]:
    """Draw the colors with their counts, and the shapes if there are several."""
    entries = [
        (f"s{series}", 0, f"{name} ({count})")
        for series, name in enumerate(chart.colors)
        if (count := sum(row.color == name for row in chart.readings))
    ]
    if len(chart.shapes) > 1:
        entries += [("quiet", form, name) for form, name in enumerate(chart.shapes)]
    at = float(LEFTS[0])
    for css, form, words in entries:
        yield marks([(at + 4, KEY_TOP - 4)], css, form)
        yield text((at + 14, KEY_TOP), words, css="quiet" if css == "quiet" else "")
        at += 32 + LETTER * len(words)
