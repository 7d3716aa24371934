"""Points of a sweep: the values that each point sets, read from options, files and mappings."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from math import prod
from typing import Any

MAX_POINTS = 100_000
"""Largest number of points of a sweep. A larger grid is usually a mistake in a step."""
Point = tuple[tuple[str, str], ...]
"""Point of a sweep: (spec path, value as YAML text) pairs."""
Axis = tuple[Point, ...]
"""Alternatives for one or more fields. The grid combines each alternative with those of the other
axes."""

_RANGE = re.compile(r"(?P<low>[+-]?\d*\.?\d+)\.\.(?P<high>[^:,]+)(?::(?P<step>[^,]+))?")


class SweepError(ValueError):
    """Error in the points of a sweep; the message is a single line for the user."""


def axis_of_option(text: str) -> Axis:
    """Return the axis that ``text``, the value of an option ``--vary``, describes.

    The text is PATH=V1,V2, PATH=LOW..HIGH:STEP, or PATH=LOW..HIGH:xFACTOR (geometric range).

    Raises:
        SweepError: the text has another form, or a range has no values.
    """
    path, equals, values = text.partition("=")
    if not equals or not path or not values.strip():
        raise SweepError(f"{text[:80]!r} is not PATH=V1,V2 or PATH=LOW..HIGH:STEP")
    parts = [part.strip() for part in _split_at_commas(values)]
    return tuple(((path, value),) for part in parts for value in _expand_range(part))


def axes_of_mapping(vary: Mapping[str, Iterable[Any]]) -> list[Axis]:
    """Return the axes of spec path -> values. Values become JSON text, which is valid YAML."""
    return [tuple(((path, json.dumps(value)),) for value in vary[path]) for path in vary]


def axis_of_points(points: Iterable[Mapping[str, Any]]) -> Axis:
    """Return the axis whose alternatives are ``points``, mappings of spec paths to values."""
    return tuple(
        tuple((path, json.dumps(value)) for path, value in point.items()) for point in points
    )


def axis_of_list(text: str) -> Axis:
    """Return the axis of a CSV text: the head has spec paths, and each row is one alternative.

    An empty cell keeps the value of the spec.

    Raises:
        SweepError: a row has more cells than the head, or there are no rows.
    """
    # strict, because without it the csv module accepts a quotation mark that never ends
    rows = csv.reader(text.splitlines(), strict=True)
    try:
        head, *points = [[cell.strip() for cell in row] for row in rows if any(row)] or [[]]
    except csv.Error as error:
        raise SweepError(f"the list of points is not valid CSV: {error}") from None
    if not points or not all(head):
        raise SweepError("the list of points needs a head of spec paths, and one row per point")
    for number, row in enumerate(points, start=1):
        if len(row) > len(head):
            raise SweepError(f"point {number} has {len(row)} cells; the head has {len(head)}")
    return tuple(
        tuple((path, cell) for path, cell in zip(head, row, strict=False) if cell) for row in points
    )


def combine_axes(axes: Sequence[Axis]) -> list[Point]:
    """Return all points of the grid; the last axis varies fastest.

    Raises:
        SweepError: there are no points, too many of them, or two axes set the same field.
    """
    count = prod(map(len, axes)) if axes else 0
    if not 0 < count <= MAX_POINTS:
        raise SweepError(f"the sweep has {count:,} points; it must have 1 to {MAX_POINTS:,}")
    paths = [path for axis in axes for path in {path: None for one in axis for path, _ in one}]
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    if repeated:
        raise SweepError(f"{repeated[0]} is varied twice; list all of its values once")
    return [tuple(pair for one in point for pair in one) for point in product(*axes)]


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts of ``text`` between commas that are outside of brackets and quotes."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _expand_range(text: str) -> Iterator[str]:
    """Yield the numbers of the range ``text``; if it is not a range, the text itself."""
    found = _RANGE.fullmatch(text)
    if found is None:
        yield text
        return
    step = found["step"] or "1"
    is_factor = step.startswith("x")
    try:
        value, high = Decimal(found["low"]), Decimal(found["high"])
        by = Decimal(step.removeprefix("x"))
    except InvalidOperation:
        raise SweepError(f"{text!r} is not a range of numbers, LOW..HIGH:STEP") from None
    if not (value.is_finite() and high.is_finite() and by.is_finite()) or value > high:
        raise SweepError(f"the range {text!r} has no values")
    if by <= 0 or (is_factor and (by <= 1 or value <= 0)):
        raise SweepError(f"the range {text!r} never ends: its step must increase the value")
    for _ in range(MAX_POINTS + 1):
        if value > high:
            break
        yield format(value.normalize(), "f")
        value = value * by if is_factor else value + by
