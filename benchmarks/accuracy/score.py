"""Error statistics of predicted / measured ratios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a group. All fields except ``count`` are fractions, 0.05 for 5 %."""

    count: int
    mape: float
    median: float
    p90: float
    bias: float
    """Median of the signed errors; positive if predictions are too slow."""


def score(ratios: Sequence[float]) -> Score:
    """Return the error statistics of predicted / measured ``ratios``."""
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    if not errors:
        return Score(0, 0.0, 0.0, 0.0, 0.0)
    tail = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return Score(len(errors), fmean(errors), median(errors), tail, median(ratios) - 1)


def format_median_errors(errors: Iterable[float | None], digits: int = 1) -> str:
    """Return the median of the absolute errors and, in brackets, of the signed errors, in %.

    ``errors`` are fractions; None is skipped. The text is empty if there are no errors.
    """
    known = [error for error in errors if error is not None]
    if not known:
        return ""
    return f"{100 * median(map(abs, known)):.{digits}f} ({100 * median(known):+.{digits}f})"
