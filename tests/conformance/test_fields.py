"""The law of fields for every target; `make test` checks it for the default targets only."""

from __future__ import annotations

import pytest

from tests.laws.field_targets import ALL_TARGETS, Target, broken_fields

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("target", ALL_TARGETS, ids=str)
def test_every_field_has_an_effect_or_a_finding(target: Target) -> None:
    answers, broken = broken_fields(target)
    assert answers
    assert not broken
