"""The law of fields for every target; `make test` checks it for the default targets only."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.laws.field_targets import ALL_TARGETS, broken_fields

pytestmark = pytest.mark.conformance


def test_every_field_has_an_effect_or_a_finding_with_every_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds: Counter[str] = Counter()
    for target in ALL_TARGETS:
        answers, broken = broken_fields(target)
        assert broken == {}, target
        kinds.update(answer.kind for answer in answers.values())
    with capsys.disabled():
        print(f"\n{kinds.total()} fields x targets, {len(ALL_TARGETS)} targets: {dict(kinds)}")
    assert kinds.total() > 2500
