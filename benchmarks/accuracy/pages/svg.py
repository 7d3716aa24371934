"""Writer of small SVG documents from plain elements; colors follow the reader's light or dark
theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]

LIGHT = ("#1769aa", "#c2570c", "#197a48", "#7b4bb7", "#6e7781")
"""Colors of series 0 to 4 on white: equal lightness, distinguishable with any color vision."""
DARK = ("#6cb6ff", "#f69d50", "#57c98b", "#bd98f5", "#9aa4af")
"""Colors of the same series on a dark page."""
SERIES = len(LIGHT)

BASE = """\
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
.title{font-weight:600}.small{font-size:11px}.tiny{font-size:10px}.rule{fill:none;stroke-width:1}
.mark{fill-opacity:.7}circle{r:2.8px}\
"""


def document(size: tuple[int, int], title: str, description: str, body: Iterable[str]) -> str:
    """Return an SVG document. Screen readers use ``title`` and ``description``."""
    width, height = size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="t d">'
    )
    parts = [
        head,
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(description)}</desc>',
        f"<style>\n{_style_sheet()}\n</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style_sheet() -> str:
    light = _theme(LIGHT, ("#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#eef2f6"))
    dark = _theme(DARK, ("#0d1117", "#e6edf3", "#9198a1", "#333b45", "#1a212b"))
    return f"{BASE}\n{light}\n@media (prefers-color-scheme:dark){{{dark}}}"


def _theme(series: Sequence[str], rest: tuple[str, str, str, str, str]) -> str:
    """Return the CSS rules of one theme; ``rest`` is page, text, quiet text, grid and band."""
    page, text, quiet, grid, band = rest
    rules = [f".s{index}{{fill:{color}}}" for index, color in enumerate(series)]
    rules += [f".page{{fill:{page}}}", f"text{{fill:{text}}}", f".quiet{{fill:{quiet}}}"]
    rules += [f".rule{{stroke:{grid}}}", f".axis{{stroke:{quiet}}}", f".band{{fill:{band}}}"]
    return "".join(rules)


def format_coordinate(value: float) -> str:
    """Format a coordinate in tenths of a pixel, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def text(at: tuple[float, float], words: str, anchor: Anchor = "start", css: str = "") -> str:
    """Return a text element with its baseline at ``at``."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    x, y = format_coordinate(at[0]), format_coordinate(at[1])
    return f'<text x="{x}" y="{y}"{place}{_css(css)}>{escape(words)}</text>'


def upright(at: tuple[float, float], words: str, css: str = "") -> str:
    """Return a text element that runs upwards, centered on ``at``."""
    x, y = format_coordinate(at[0]), format_coordinate(at[1])
    turned = f'transform="rotate(-90 {x} {y})"'
    return f'<text x="{x}" y="{y}" text-anchor="middle" {turned}{_css(css)}>{escape(words)}</text>'


def polyline(points: Sequence[tuple[float, float]], css: str) -> str:
    """Return straight lines through ``points``, filled if ``css`` fills them."""
    path = "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in points)
    return f'<path d="M{path}"{_css(css)}/>'


def box(corner: tuple[float, float], size: tuple[float, float], css: str) -> str:
    """Return a rectangle."""
    x, y, width, height = (format_coordinate(value) for value in (*corner, *size))
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{_css(css)}/>'


SHAPES = ("circle", "diamond", "triangle")


def mark(at: tuple[float, float], shape: int) -> str:
    """Return one data point, in the color of the surrounding group element."""
    x, y = at
    if shape == 0:
        return f'<circle cx="{format_coordinate(x)}" cy="{format_coordinate(y)}"/>'
    if shape == 1:
        return f'<path d="M{format_coordinate(x)} {format_coordinate(y - 4)}l4 4-4 4-4-4z"/>'
    return f'<path d="M{format_coordinate(x)} {format_coordinate(y - 3.8)}l3.6 6.4h-7.2z"/>'


def marks(points: Iterable[tuple[float, float]], css: str, shape: int) -> str:
    """Return the data points of one series, in whole pixels and each place once.

    ``css`` sets the color: ``s0`` to ``s4``, or ``quiet``.
    """
    places = dict.fromkeys((round(x), round(y)) for x, y in points)
    inner = "".join(mark(place, shape) for place in places)
    return f'<g class="{css} mark">{inner}</g>'


def _css(css: str) -> str:
    return f' class="{css}"' if css else ""
