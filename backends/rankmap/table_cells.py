"""Text for the cells of Markdown tables: shortened, escaped, with ranges and units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row")


def markdown_cell_text(text: str, width: int) -> str:
    """Return ``text`` on one line of at most ``width`` characters, without Markdown syntax."""
    plain = " ".join(text.split()).replace("\\", "/").replace("|", "/").replace("`", "'")
    return plain if len(plain) <= width else plain[: width - 3] + "..."


def clip_list(text: str, width: int) -> str:
    """Return the comma-separated list ``text``, cut after a whole item to ``width`` characters.

    A cut list reads ``a,b, ...`` or ``a[1-2,5,...]``.
    """
    if len(text) <= width:
        return text
    # 5 characters for the ending ", ..." or ",...]".
    head = text[: width - 5]
    if head.count("[") > head.count("]"):
        inside = head.rindex("[")
        if "," in head[inside:]:
            return markdown_cell_text(head[: head.rindex(",")] + ",...]", width)
        head = head[:inside]
    whole = head.rsplit(",", 1)[0] if "," in head else head
    return markdown_cell_text(f"{whole.rstrip(',')}, ...", width)


def fold_numbers(numbers: Iterable[int]) -> str:
    """Return the numbers as ascending ranges, such as ``0-7, 16-23``."""
    return fold_ranges((number, number) for number in sorted(numbers))


def fold_ranges(pairs: Iterable[tuple[int, int]]) -> str:
    """Return the ascending (first, last) pairs as text, with adjacent ranges merged."""
    parts: list[list[int]] = []
    for low, high in pairs:
        if parts and low == parts[-1][1] + 1:
            parts[-1][1] = high
        else:
            parts.append([low, high])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def shorten_rows(rows: Sequence[Row], most: int, gap: Row) -> list[Row]:
    """Return ``rows``, shortened to at most ``most`` rows.

    If rows are left out, the result is the first rows, then ``gap``, then the last row.
    """
    if len(rows) <= most:
        return list(rows)
    return [*rows[: most - 2], gap, rows[-1]]


def format_bytes(size: float) -> str:
    """Return ``size``, in bytes, as text in decimal GB or TB with three digits."""
    return f"{size / 1e9:.3g} GB" if size < 1e12 else f"{size / 1e12:.3g} TB"


def format_duration(seconds: float) -> str:
    """Return ``seconds`` as text in ms or s with three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
