"""Whatever Megatron-Core refuses, PARC has refused first."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.compiled import planned, resolved
from tests.conformance.megatron_cases import case_as_pinned, judge, layout_as_pinned
from tests.conformance.megatron_specs import variation

pytestmark = pytest.mark.conformance
VARIATIONS = 420
REFUSALS = 200


def test_every_random_variation_that_megatron_refuses_is_refused_by_check() -> None:
    cases, refused_by_parc = [], {}
    for seed in range(VARIATIONS):
        spec = variation(seed)
        problem, _ = resolved(spec)
        layout = layout_as_pinned(problem) if problem is not None else None
        if problem is None or layout is None:
            continue
        name = f"variation {seed}"
        # a pinned dp may leave GPUs idle; ranks that do not exist are not started
        cases.append(case_as_pinned(name, problem, layout, min(layout.world, problem.cluster.gpus)))
        plan, sink = planned(spec)
        refused_by_parc[name] = plan is None and sink.failed()
    verdicts = judge(cases)
    refused = {name: verdict for name, verdict in verdicts.items() if not verdict["accepted"]}
    missed = {name: v["error"] for name, v in refused.items() if not refused_by_parc[name]}
    assert missed == {}
    stages = Counter(verdict["stage"] for verdict in refused.values())
    assert len(refused) >= REFUSALS, stages
    assert len(stages) >= 5, stages
