"""A smooth maximum: what two parts that overlap imperfectly take together."""

from __future__ import annotations


def overlap(first: float, second: float, norm: float) -> float:
    """The ``norm``-norm of two durations: their sum at 1, nearly their maximum at 8.

    Scaled by the larger one, so that neither a nanosecond nor an hour leaves the range of floats.
    """
    if first < second:
        first, second = second, first
    if second <= 0.0:
        return first
    return float(first * (1.0 + (second / first) ** norm) ** (1.0 / norm))
