"""Measure the bounds of numeric flags with the program that reads them, and merge versions.

Some programs declare no bounds, but reject a value after they have parsed it. Their bounds follow
from the values that they accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = dict[str, Any]
WHOLE: tuple[str, ...] = ("-3", "-2", "-1", "0", "1", "2", "3", "4", "8", "64")
DECIMAL: tuple[str, ...] = ("-2", "-1", "-0.5", "0", "0.25", "0.5", "0.75", "1", "1.5", "3", "95")


def probes(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Return flag -> values to try, for each main spelling of a flag with one free number."""
    values = {"int": WHOLE, "float": DECIMAL}
    return {
        row["flag"]: values[row["type"]]
        for row in rows
        if row.get("type") in values
        and row.get("takes", 1) == 1
        and not row.keys() & {"means", "choices"}
    }


def bounds_of(accepted: Mapping[str, bool]) -> Row:
    """Return the bounds that follow from value -> whether the program accepts the value.

    A limit that is not -1, 0 or 1 is more likely a relation to another flag, and is left out, as is
    any limit if no value is accepted. An upper limit is only read from fractions, because a count
    is limited by other sizes.
    """
    sure = sorted(float(value) for value, good in accepted.items() if good)
    wrong = sorted(float(value) for value, good in accepted.items() if not good)
    whole = all(value.lstrip("-").isdigit() for value in accepted)
    found: Row = {}
    if not sure:
        return found
    low, high = sure[0], sure[-1]
    if low == high:  # one value suits the other flags; this is not a range
        return found
    if low in (-1, 0, 1) and any(value < low for value in wrong):
        found["minimum"] = int(low)
    elif not whole and low == 0.25 and 0 in wrong:
        found["exclusive_minimum"] = 0
    if not whole and high == 1:
        found["maximum"] = 1
    elif not whole and high == 0.75:
        found["exclusive_maximum"] = 1
    return found


def measure_bounds(
    rows: Iterable[Row], accepts: Callable[[list[list[str]]], list[bool]]
) -> dict[str, Row]:
    """Return flag -> bounds, for the flags that have bounds.

    Args:
        rows: rows of known_flags.json.
        accepts: function that returns, for each list of words, whether the program accepts a
            command with these words added.
    """
    asked = probes(rows)
    pairs = [(flag, value) for flag, values in asked.items() for value in values]
    answers = dict(zip(pairs, accepts([[f"{flag}={value}"] for flag, value in pairs]), strict=True))
    found = {
        flag: bounds_of({value: answers[flag, value] for value in values})
        for flag, values in asked.items()
    }
    return {flag: bounds for flag, bounds in found.items() if bounds}
