"""SVG pictures of a terminal, made from what commands print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

STYLE = re.compile(r"\x1b\[([\d;]*)m")
"""ANSI escape sequence that sets colors and weight."""
COLORS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
"""Foreground code -> color that has a contrast of at least 4.5 to the background."""
BACKGROUND, TEXT, PROMPT = "#0d1117", "#e6edf3", "#7ee787"
CHARACTER, LINE, MARGIN, BAR = 7.8, 18, 16, 28
"""Width of a character, height of a line at 13 px, margin, height of the title bar: all in px."""


@dataclass(frozen=True)
class Span:
    """Part of a line with one color and weight."""

    text: str
    color: str = TEXT
    bold: bool = False


def terminal_svg(transcript: Sequence[tuple[str, str]], title: str) -> str:
    """Return an SVG image of commands and their output, which may contain ANSI colors.

    ``title`` is the text alternative, which screen readers read.
    """
    rows = [row for command, output in transcript for row in _rows(command, output)][:-1]
    columns = max(sum(len(span.text) for span in row) for row in rows)
    width = round(columns * CHARACTER + 2 * MARGIN)
    height = len(rows) * LINE + BAR + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        # Browsers collapse spaces in spite of xml:space, which other viewers need.
        "<style>text{white-space:pre}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *(
            f'<circle cx="{MARGIN + 18 * place}" cy="16" r="5" fill="{color}"/>'
            for place, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="13" fill="{TEXT}" xml:space="preserve">',
        *(text for number, row in enumerate(rows) for text in _texts(number, row)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(command: str, output: str) -> Iterator[tuple[Span, ...]]:
    """Yield the prompt with the command, each line of the output, and an empty line."""
    yield Span("$ ", PROMPT, bold=True), Span(command, bold=True)
    for line in output.rstrip("\n").split("\n"):
        yield tuple(_spans(line))
    yield ()


def _spans(line: str) -> Iterator[Span]:
    """Split a line of output at its ANSI sequences, which reset the style at the end of a part."""
    color, bold = TEXT, False
    for place, part in enumerate(STYLE.split(line)):
        if place % 2 == 0:
            if part:
                yield Span(part, color, bold)
            continue
        codes = [int(code or 0) for code in part.split(";")]
        color = next((COLORS[code] for code in codes if code in COLORS), color)
        bold = bold or 1 in codes
        if 0 in codes:
            color, bold = TEXT, False


def _texts(number: int, row: Sequence[Span]) -> Iterator[str]:
    """Yield an SVG element per part of a line.

    Position and length of each part are stated, because viewers have different fonts.
    """
    column = 0
    for span in row:
        blank = len(span.text) - len(span.text.lstrip())
        shown = span.text.strip()
        if shown:
            x = MARGIN + (column + blank) * CHARACTER
            y = BAR + LINE * (number + 1) - 4
            color = f' fill="{span.color}"' if span.color != TEXT else ""
            weight = ' font-weight="bold"' if span.bold else ""
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{len(shown) * CHARACTER:.1f}"'
                f"{color}{weight}>{escape(shown, quote=False)}</text>"
            )
        column += len(span.text)
