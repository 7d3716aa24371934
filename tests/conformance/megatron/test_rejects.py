"""PARC rejects every random variation that Megatron-Core rejects."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.megatron.cases import rejected_as_pinned
from tests.conformance.megatron.specs import variation

pytestmark = pytest.mark.conformance
VARIATIONS = 420
REJECTIONS = 200


def test_random_variations_that_megatron_rejects_are_rejected_by_parc() -> None:
    rejected, missed = rejected_as_pinned([variation(seed) for seed in range(VARIATIONS)])
    assert missed == {}
    stages = Counter(verdict["stage"] for verdict in rejected.values())
    assert len(rejected) >= REJECTIONS, stages
    assert len(stages) >= 5, stages
