"""Ranges of numeric settings, as columns of the tables of known flags and keys.

The columns are those of a JSON schema: ``minimum``, ``exclusive_minimum``, ``maximum`` and
``exclusive_maximum``. All are optional. ``source`` names the file of the framework that needs the
range, if the parser itself does not check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.diagnostics import Finding

BOUNDS = ("minimum", "exclusive_minimum", "maximum", "exclusive_maximum")
"""Columns with bounds."""


LAST_PORT = 65535
"""Largest port of TCP; no other setting has this maximum."""


def find_range_fault(
    name: str, value: str | float, row: Mapping[str, Any], written: str = "{name} {value}"
) -> Finding | None:
    """Return a finding if the number ``value`` of a setting is outside its range, else None.

    Values that are not plain numbers, such as ``auto`` or ``4k``, are not checked here.

    Args:
        name: flag or key, for the messages.
        value: the value as text, or the number.
        row: row of the setting in a table, with the bounds.
        written: how the file writes a setting, for the fix.
    """
    number = _number(value)
    if number is None or _is_inside(number, row):
        return None
    near = _nearest_valid_value(number, row)
    return Finding(
        f"{name} {value} is outside the valid range",
        label=f"the value must be {format_range(row)}",
        fix=written.format(name=name, value=near) if near else "",
    )


def _number(value: str | float) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _is_inside(number: float, row: Mapping[str, Any]) -> bool:
    """Return True if ``number`` satisfies all bounds of ``row``; NaN satisfies none."""
    return all(
        (
            "minimum" not in row or number >= row["minimum"],
            "exclusive_minimum" not in row or number > row["exclusive_minimum"],
            "maximum" not in row or number <= row["maximum"],
            "exclusive_maximum" not in row or number < row["exclusive_maximum"],
        )
    )


def format_range(row: Mapping[str, Any]) -> str:
    """Return the range of ``row`` in words, such as ``above 0 and at most 1``."""
    if {"minimum", "maximum"} <= row.keys():
        return f"from {row['minimum']} to {row['maximum']}"
    words = (
        ("minimum", "at least"),
        ("exclusive_minimum", "above"),
        ("exclusive_maximum", "below"),
        ("maximum", "at most"),
    )
    return " and ".join(f"{word} {row[key]}" for key, word in words if key in row)


def _nearest_valid_value(number: float, row: Mapping[str, Any]) -> str:
    """Return a valid value that the user may have meant; empty if none is likely.

    A percentage of at least 10 becomes a fraction. A number below an inclusive minimum becomes the
    minimum. A port above the range loses its last digit, which is probably one too many.
    """
    fraction = number / 100
    ends = row.keys() & {"maximum", "exclusive_maximum"}
    if 10 <= number <= 100 and any(row[end] == 1 for end in ends) and _is_inside(fraction, row):
        return f"{fraction:g}"
    if row.get("minimum") is not None and number < row["minimum"]:
        return str(row["minimum"])
    if row.get("exclusive_minimum") == 0 and number <= 0 and row.get("type") == "int":
        return "1"
    shorter = int(number) // 10 if row.get("maximum") == LAST_PORT else 0
    return str(shorter) if 1024 <= shorter <= LAST_PORT else ""
