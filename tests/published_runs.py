"""Published runs and their predictions, which several tests read and one process computes once."""

from __future__ import annotations

from functools import cache

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.columns import Columns, columns_without_fit


@cache
def cases() -> tuple[Case, ...]:
    """Return all published runs that the cost model can express."""
    return tuple(load(None).cases)


@cache
def scored_cases() -> tuple[Case, ...]:
    """Return the published runs whose step time is part of the error statistics."""
    return tuple(case for case in cases() if case.scored)


@cache
def ratios() -> Columns:
    """Return predicted over measured time of ``scored_cases`` without fits."""
    return columns_without_fit(scored_cases())
