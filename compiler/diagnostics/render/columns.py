"""Terminal columns of a source line: tabs, wide and combining characters, control characters."""

from __future__ import annotations

import unicodedata

TAB = "    "
JOINERS = "\u200c\u200d"
"""Format characters of ordinary text: they join letters and emoji, and take no column."""
WIDEST = 120
"""Columns of source text that are shown; a longer line is cut around its span."""
MARGIN = 30
"""Columns kept before the span where a line is cut."""


def printable(text: str) -> str:
    """``text`` on one line, without anything that a terminal would act on."""
    return "".join(_shown(character) for character in text)


def width(text: str) -> int:
    """Columns that printable ``text`` takes."""
    return sum(_columns(character) for character in text)


def excerpt(line: str, column: int, length: int) -> tuple[str, int, int]:
    """What to print of ``line``, and where the marker starts and how long it is.

    ``column`` counts characters from 1 and ``length`` characters, as in a span; the answer
    counts terminal columns from 0.
    """
    start = min(max(column - 1, 0), len(line))
    before = printable(line[:start])
    marked = printable(line[start : start + length])
    after = printable(line[start + length :])
    offset, run = width(before), max(1, width(marked))
    if offset + run + width(after) <= WIDEST:
        return before + marked + after, offset, run
    if offset > MARGIN:
        before = "..." + before[-(MARGIN - 3) :]
        offset = width(before)
    text = _first_columns(before + marked + after, WIDEST - 3) + "..."
    return text, offset, min(run, max(1, WIDEST - 3 - offset))


def _first_columns(text: str, columns: int) -> str:
    kept = 0
    for index, character in enumerate(text):
        kept += _columns(character)
        if kept > columns:
            return text[:index]
    return text


def _shown(character: str) -> str:
    if character == "\t":
        return TAB
    category = unicodedata.category(character)
    # Cc: escape sequences; Cf: bidirectional overrides; Cs: lone surrogates cannot be encoded;
    # Zl and Zp: other ways to end a line.
    if category not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in JOINERS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
