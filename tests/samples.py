"""Samples of long lists of cases: ``make test`` runs a part, ``make conformance`` the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest


def sample_of(cases: Iterable[Any], count: int) -> list[Any]:
    """Return ``cases`` as parameters; all but ``count`` random ones run only in conformance."""
    every = list(cases)
    kept = set(Random(0).sample(range(len(every)), count))
    numbers = iter(range(len(every)))
    return slow_cases(every, lambda _: next(numbers) not in kept)


def slow_cases(cases: Iterable[Any], is_slow: Callable[[Any], bool]) -> list[Any]:
    """Return ``cases`` as parameters; those that are slow run only in conformance."""
    return [
        pytest.param(case, marks=pytest.mark.conformance) if is_slow(case) else case
        for case in cases
    ]
