"""Predictions near a fit as straight lines of logarithms: a refit follows them, not the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

STEP = 0.02
"""Log step over which a slope is taken."""


@dataclass(frozen=True, slots=True)
class Tangent:
    """Log seconds of one run at a point, and its slope by log parameter."""

    at: float
    slopes: tuple[float, ...]
    """In the order of the parameters."""


def tangents(
    predict: Callable[[Mapping[str, float]], Sequence[float]], parameters: Mapping[str, float]
) -> list[Tangent]:
    """The line of every run at ``parameters``; ``predict`` gives their seconds, in order."""
    here = [log(seconds) for seconds in predict(parameters)]
    slopes = []
    for name, value in parameters.items():
        moved = predict({**parameters, name: value * exp(-STEP)})
        slopes.append([(old - log(new)) / STEP for old, new in zip(here, moved, strict=True)])
    return [Tangent(at, slope) for at, slope in zip(here, zip(*slopes, strict=True), strict=True)]


def along(
    lines: Sequence[Tangent], origin: Mapping[str, float], values: Mapping[str, float]
) -> list[float]:
    """Seconds of every run by its line from ``origin``."""
    moves = [log(values[name] / value) for name, value in origin.items()]
    return [
        exp(line.at + sum(slope * move for slope, move in zip(line.slopes, moves, strict=True)))
        for line in lines
    ]
