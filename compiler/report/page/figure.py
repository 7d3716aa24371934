"""Figures and tables as plain values, which a template prints as inline SVG and HTML.

All boxes of one ink become one path, so that a map of a hundred thousand GPUs stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

Anchor = Literal["start", "middle", "end"]


class Word(NamedTuple):
    """Line of text; ``y`` is its baseline."""

    x: str
    y: str
    text: str
    anchor: Anchor
    role: str
    """CSS class; empty for normal text."""


class Area(NamedTuple):
    """Rectangle with a tooltip."""

    x: str
    y: str
    width: str
    height: str
    role: str
    title: str


class Path(NamedTuple):
    """Boxes or lines of one ink; exactly one of ``role`` and ``color`` is not empty."""

    data: str
    role: str
    color: str
    thick: str
    """Stroke width of boxes that are drawn as thick lines; empty for filled boxes."""


class Figure(NamedTuple):
    """Finished figure of ``width`` x ``height`` units."""

    title: str
    """Label for screen readers."""
    width: int
    height: int
    paths: tuple[Path, ...]
    areas: tuple[Area, ...]
    words: tuple[Word, ...]


@dataclass(slots=True)
class Canvas:
    """Figure under construction; later shapes cover earlier ones."""

    width: int
    _paths: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _areas: list[Area] = field(default_factory=list)
    _words: list[Word] = field(default_factory=list)

    def box(self, ink: str, x: float, y: float, width: float, height: float) -> None:
        """Fill a rectangle; ``ink`` is a CSS class, or a colour that starts with ``#``."""
        wide = svg_number(width)
        data = f"M{svg_number(x)} {svg_number(y)}h{wide}v{svg_number(height)}h-{wide}z"
        self._paths.setdefault((ink, ""), []).append(data)

    def bar(self, ink: str, x: float, y: float, width: float, height: float) -> None:
        """Fill a rectangle as a thick line: half the bytes, for many boxes of one height."""
        data = f"M{svg_number(x)} {svg_number(y + height / 2)}h{svg_number(width)}"
        self._paths.setdefault((ink, svg_number(height)), []).append(data)

    def line(self, ink: str, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a straight line."""
        data = f"M{svg_number(x)} {svg_number(y)}L{svg_number(to_x)} {svg_number(to_y)}"
        self._paths.setdefault((ink, ""), []).append(data)

    def area(self, role: str, at: tuple[float, float, float, float], title: str) -> None:
        """Add a rectangle ``at`` (x, y, width, height) with the tooltip ``title``."""
        x, y, width, height = map(svg_number, at)
        self._areas.append(Area(x, y, width, height, role, title))

    def word(
        self, x: float, y: float, text: str, anchor: Anchor = "start", *, role: str = ""
    ) -> None:
        """Write ``text``; ``y`` is the baseline."""
        self._words.append(Word(svg_number(x), svg_number(y), text, anchor, role))

    def figure(self, title: str, height: float) -> Figure:
        """Build the figure from everything drawn so far."""
        paths = tuple(
            Path("".join(parts), *(("", ink) if ink[0] == "#" else (ink, "")), thick)
            for (ink, thick), parts in self._paths.items()
        )
        whole = int(height) + (height > int(height))
        return Figure(title, self.width, whole, paths, tuple(self._areas), tuple(self._words))


@lru_cache(maxsize=4096)
def svg_number(number: float) -> str:
    """Return ``number`` with one decimal, or none if it is zero.

    The results are cached, because the coordinates of rows and columns repeat often.
    """
    text = f"{number:.1f}"
    return text[:-2] if text.endswith(".0") else text


def clip_text(text: str, length: int) -> str:
    """Return ``text`` on one line, clipped to ``length`` characters."""
    plain = " ".join(text.split())
    return plain if len(plain) <= length else plain[: length - 1] + "\u2026"


class Grid(NamedTuple):
    """Table with a head. The columns in ``prose`` hold text, the other columns numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: tuple[int, ...] = (0,)
    strong: int = -1
    """Index of the highlighted row; -1 if there is none."""

    @property
    def wide(self) -> bool:
        """True if the table needs the full width, because a later column holds text."""
        return any(self.prose[1:])


def grid(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    prose: tuple[int, ...] = (0,),
    strong: int = -1,
) -> Grid:
    """Return a table of ``rows``, each as long as ``head``."""
    return Grid(tuple(head), tuple(tuple(row) for row in rows), prose, strong)
