"""SGLang accepts the commands that PARC emits, and derives the same plan from them."""

from __future__ import annotations

import pytest

from tests.conformance.sglang.cases import cases_of, differences
from tests.conformance.sglang.specs import valid_sglang_service
from tests.conformance.tool_checkers import sglang_verdicts
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
SPECS = 250


def test_random_valid_specs_are_accepted_with_the_same_sizes_and_groups() -> None:
    plans = []
    for seed in range(SPECS):
        plan, sink = planned(valid_sglang_service(seed))
        assert plan is not None or sink.failed()
        plans += [plan] if plan is not None else []
    assert len(plans) >= 200
    assert sum(plan.layout.dp > 1 for plan in plans) >= 20
    running = [(plan, *pair) for plan in plans for pair in cases_of(plan)]
    verdicts = sglang_verdicts([case for _, _, case in running])
    found = {
        case["name"]: rows
        for (plan, process, case), verdict in zip(running, verdicts, strict=True)
        if (rows := differences(plan, process, verdict))
    }
    assert found == {}
