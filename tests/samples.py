"""Samples of long lists of cases: ``make test`` runs a part, ``make conformance`` the others."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest


def sample_of(cases: Iterable[Any], count: int) -> list[Any]:
    """Return ``cases`` as parameters; all but ``count`` random ones run only in conformance."""
    every = list(cases)
    kept = set(Random(0).sample(range(len(every)), count))
    return [
        case if number in kept else pytest.param(case, marks=pytest.mark.conformance)
        for number, case in enumerate(every)
    ]
