"""Fit source lines to terminal columns: tabs, wide, combining and control characters."""

from __future__ import annotations

import unicodedata

TAB = "    "
ZERO_WIDTH_JOINERS = "\u200c\u200d"
"""Format characters of ordinary text: they join letters and emoji, and have width 0."""
MAX_COLUMNS = 120
"""Columns of source text to print; a longer line is cut around its span."""
LEADING_COLUMNS = 30
"""Columns to keep before the span if a line is cut."""


def make_printable(text: str) -> str:
    """Return ``text`` on one line, with all characters escaped that control a terminal."""
    return "".join(_escape(character) for character in text)


def display_width(text: str) -> int:
    """Return the number of terminal columns of a printable ``text``."""
    return sum(_column_count(character) for character in text)


def cut_excerpt(line: str, column: int, length: int) -> tuple[str, int, int]:
    """Return the part of ``line`` to print, and the offset and length of its marker.

    Args:
        line: source text.
        column: first marked character, counted from 1.
        length: marked characters.

    Returns:
        (text, offset, length); offset and length count terminal columns, offset from 0.
    """
    start = min(max(column - 1, 0), len(line))
    before = make_printable(line[:start])
    marked = make_printable(line[start : start + length])
    after = make_printable(line[start + length :])
    offset, marker_length = display_width(before), max(1, display_width(marked))
    if offset + marker_length + display_width(after) <= MAX_COLUMNS:
        return before + marked + after, offset, marker_length
    if offset > LEADING_COLUMNS:
        before = "..." + before[-(LEADING_COLUMNS - 3) :]
        offset = display_width(before)
    text = _first_columns(before + marked + after, MAX_COLUMNS - 3) + "..."
    return text, offset, min(marker_length, max(1, MAX_COLUMNS - 3 - offset))


def _first_columns(text: str, columns: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _column_count(character)
        if used > columns:
            return text[:index]
    return text


def _escape(character: str) -> str:
    if character == "\t":
        return TAB
    category = unicodedata.category(character)
    # Cc contains escape sequences, Cf bidirectional overrides; Cs (lone surrogates) cannot be
    # encoded; Zl and Zp also end a line.
    if category not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in ZERO_WIDTH_JOINERS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _column_count(character: str) -> int:
    # Terminals print East Asian wide (W) and full-width (F) characters over two columns.
    if unicodedata.combining(character) or character in ZERO_WIDTH_JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
