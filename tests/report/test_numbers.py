"""Tests of the formats of numbers."""

from __future__ import annotations

import pytest

from parc.compiler.report.formatting import format_without_exponent


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_800.0, "12,800"), (3_600.0, "3,600"), (44.154, "44.15"), (0.05, "0.05"), (450.0, "450")],
)
def test_a_rate_has_no_exponent(value: float, text: str) -> None:
    assert format_without_exponent(value) == text
