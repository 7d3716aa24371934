"""Formatting of numbers, JSON documents and plain-text tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

GIB = 2**30
DIGITS = 6
_encode = json.JSONEncoder(ensure_ascii=False).encode


class ExactFloat(float):
    """Float that is written to JSON with all its digits, because the spec sets this number."""


_EXACT = frozenset((str, int, bool, NoneType, ExactFloat))
"""Types of values that are never rounded."""


def round_to_six_digits(value: float) -> int | float:
    """Return ``value`` rounded to six significant digits; as an int if the result is whole."""
    short = float(f"{value:.{DIGITS}g}")
    # Above 2**53 not every integer is a float, so the digits of the int would be arbitrary.
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def round_floats_in_tree(tree: Any) -> Any:
    """Return a JSON tree whose floats are rounded to six significant digits.

    Rounding removes differences in the last digits, so equal plans give files with equal bytes.
    """
    # Most values are of these types; testing them first saves the slower isinstance calls.
    if type(tree) in _EXACT:
        return tree
    if isinstance(tree, Mapping):
        return {str(key): round_floats_in_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [round_floats_in_tree(item) for item in tree]
    return round_to_six_digits(tree) if isinstance(tree, float) else tree


def exact_tree(tree: Any) -> Any:
    """Return a copy of a JSON tree whose floats will not be rounded when they are written.

    Floats become ``ExactFloat``; whole floats become integers, as in ``round_floats_in_tree``.
    """
    if isinstance(tree, Mapping):
        return {str(key): exact_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [exact_tree(item) for item in tree]
    if not isinstance(tree, float):
        return tree
    return int(tree) if tree.is_integer() and abs(tree) < 2**53 else ExactFloat(tree)


def json_text(document: dict[str, Any]) -> str:
    """Return ``document`` as the text of a JSON file.

    Keys are sorted, floats other than ``ExactFloat`` are rounded, and the text ends with a newline.
    """
    return _indented_json(round_floats_in_tree(document), "\n") + "\n"


def _indented_json(tree: Any, margin: str) -> str:
    """Return the same text as ``json.dumps(tree, indent=2, sort_keys=True)``, but faster.

    If ``indent`` is set, ``json.dumps`` uses its slow encoder in Python. Here, Python code writes
    only the nesting, and the C encoder writes the strings. ``margin`` is a newline and the current
    indentation.
    """
    if not tree or not isinstance(tree, dict | list):
        return _encode(tree)
    inner = f"{margin}  "
    if isinstance(tree, dict):
        items = [f"{_encode(key)}: {_indented_json(tree[key], inner)}" for key in sorted(tree)]
    else:
        items = [_encode(one) if type(one) is str else _indented_json(one, inner) for one in tree]
    start, end = "{}" if isinstance(tree, dict) else "[]"
    return f"{start}{inner}{f',{inner}'.join(items)}{margin}{end}"


def format_range(first: int, last: int) -> str:
    """Return a range of numbers as text: ``3-7``, or ``3`` if both ends are equal."""
    return str(first) if first == last else f"{first}-{last}"


def format_gib(count_bytes: float) -> str:
    """Return a number of bytes as GiB with three significant digits, such as ``61.2 GiB``."""
    return f"{format_three_digits(count_bytes / GIB)} GiB"


def format_seconds(duration_seconds: float) -> str:
    """Return a duration with three significant digits, such as ``4.21 s`` or ``83.0 ms``."""
    # 0.9995 s and more would be printed as 1,000 ms.
    if abs(duration_seconds) < 0.9995:
        return f"{format_three_digits(duration_seconds * 1e3)} ms"
    return f"{format_three_digits(duration_seconds)} s"


def format_duration(duration_seconds: float) -> str:
    """Return a long time with three significant digits, such as ``4.21 h`` or ``54.0 days``."""
    for unit, seconds in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        # From two units on: 90 s and 36 h read better than 1.5 min and 1.5 days.
        if duration_seconds >= 2 * seconds:
            return f"{format_three_digits(duration_seconds / seconds)} {unit}"
    return format_seconds(duration_seconds)


def format_three_digits(value: float) -> str:
    """Return ``value`` as text with three significant digits: ``1.50``, ``29.9``, ``173``.

    The text has at most two decimals and no exponent; larger numbers keep all digits before the
    point, such as ``2,853``.
    """
    size = abs(value)
    if not size:
        return "0"
    # The limits are the values from which rounding adds a digit before the point.
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:,.{decimals}f}"


def format_percent(share: float) -> str:
    """Return the fraction ``share`` as a percentage with one decimal: 0.413 becomes ``41.3 %``."""
    return f"{share * 100:.1f} %"


def format_quantity(count: float, unit: str = "") -> str:
    """Return a quantity with three significant digits, a decimal prefix and a unit.

    The prefix is written before a unit symbol: pass ``"B"`` for ``1.99 GB``. The prefix is written
    after the number if the unit is a word: pass ``" tokens/s"``, with a leading space, for ``281k
    tokens/s``.
    """
    # 0.9995 of a factor is rounded up to 1 of it with three digits.
    for prefix, factor in zip("ZEPTGMk", (1e21, 1e18, 1e15, 1e12, 1e9, 1e6, 1e3), strict=True):
        if abs(count) >= 0.9995 * factor:
            gap = " " if unit.strip() == unit != "" else ""
            return f"{count / factor:.3g}{gap}{prefix}{unit}"
    return f"{count:.3g} {unit.lstrip()}".rstrip()


def format_without_exponent(value: float, digits: int = 4) -> str:
    """Return ``value`` with ``digits`` significant digits and no exponent, such as ``12,800``."""
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a plain-text table whose columns are separated by two spaces.

    The first ``left`` columns are aligned to the left, all further columns to the right.
    """
    body = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *body)
    ]
    return "\n".join(lines) + "\n"
