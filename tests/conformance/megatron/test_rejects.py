"""Whatever Megatron-Core refuses, PARC has refused first."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.megatron.cases import refused_as_pinned
from tests.conformance.megatron.specs import variation

pytestmark = pytest.mark.conformance
VARIATIONS = 420
REFUSALS = 200


def test_every_random_variation_that_megatron_refuses_is_refused_by_check() -> None:
    refused, missed = refused_as_pinned([variation(seed) for seed in range(VARIATIONS)])
    assert missed == {}
    stages = Counter(verdict["stage"] for verdict in refused.values())
    assert len(refused) >= REFUSALS, stages
    assert len(stages) >= 5, stages
