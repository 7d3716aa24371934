"""SGLang accepts the commands that PARC emits, and derives the same plan from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parc.backends.sglang.arguments import PACKAGE
from parc.backends.shared.extra_arguments import rows_of_parser
from tests.conformance.sglang.cases import cases_of, differences
from tests.conformance.sglang.flag_rows import rows_with_bounds
from tests.conformance.sglang.specs import valid_sglang_service
from tests.conformance.shared.feature_specs import feature_plans, pool_plans
from tests.conformance.tool_checkers import sglang_verdicts
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
SPECS = 210


def test_the_known_flags_and_their_bounds_are_those_of_the_server() -> None:
    theirs = {row["flag"]: row for row in rows_with_bounds()}
    assert rows_of_parser(PACKAGE) == theirs


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


def test_optional_features_are_accepted_and_resolved_to_the_planned_values(tmp_path: Path) -> None:
    plans = feature_plans("sglang", tmp_path)
    cases = [cases_of(plan)[0][1] | {"groups": False} for plan in plans.values()]
    verdicts = dict(zip(plans, sglang_verdicts(cases), strict=True))
    rejected = {name: one["error"] for name, one in verdicts.items() if not one["accepted"]}
    assert rejected == {}
    found = {name: one["sizes"]["features"] for name, one in verdicts.items()}
    drafts = {name: one["draft"] for name, one in found.items() if one["draft"]}
    assert drafts == {
        "ngram": ["NGRAM", 5],
        "eagle": ["EAGLE", 3],
        "draft": ["STANDALONE", 4],
        "mtp": ["EAGLE", 2],
        "together": ["EAGLE", 3],
    }
    adapters = {name: one["lora"] for name, one in found.items() if one["lora"]}
    assert adapters == {name: [3, 32, ["sql", "chat"]] for name in ("lora", "together")}
    copies = {name: one["offload_gb"] for name, one in found.items() if one["offload_gb"]}
    assert copies == dict.fromkeys(("copies", "together"), 50)
    assert [name for name, one in found.items() if not one["prefix_caching"]] == ["uncached"]
    assert {one["balancer"] for one in found.values()} == {"round_robin"}


def test_both_pools_are_accepted_with_the_same_sizes_groups_and_ports() -> None:
    plans = pool_plans("sglang")
    running = [(key, *pair) for key, plan in plans.items() for pair in cases_of(plan)]
    for (name, _), _, case in running:
        case["config"] |= {"num_nextn_predict_layers": 1} if name == "drafts" else {}
    verdicts = sglang_verdicts([case for _, _, case in running])
    for (key, process, _), verdict in zip(running, verdicts, strict=True):
        assert differences(plans[key], process, verdict) == [], key
        found = verdict["sizes"]["features"]
        # constants.yaml declares these as random and round_robin.
        expected = "follow_bootstrap" if key[1] == "prefill" else "round_robin"
        assert found["balancer"].startswith(expected)
        first = 8998 if key[1] == "decode" else 8998 + process.replica
        assert found["pool"] == [key[1], first]
        # The decode pool receives prompts, so SGLang turns its prefix cache off.
        assert found["prefix_caching"] == (key[1] == "prefill")
