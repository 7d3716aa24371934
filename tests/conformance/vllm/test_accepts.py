"""vLLM accepts the commands that PARC emits, and derives the same plan from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parc.backends.registry import engine
from parc.backends.vllm.processes import plan_processes
from parc.compiler.ir import ServingPlan
from tests.compiled import examples
from tests.conformance.shared.feature_specs import POOLS, feature_plans, pool_plans
from tests.conformance.tool_checkers import vllm_verdicts
from tests.conformance.vllm.cases import case_of, cases_of, differences
from tests.conformance.vllm.specs import valid_service
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
SPECS = 210


def plan_differences(plans: list[ServingPlan], version: str = "") -> dict[str, list[str]]:
    """Return the differences by command, for commands that have any.

    ``version`` is that of vllm_verdicts.
    """
    running = [(plan, *pair) for plan in plans for pair in cases_of(plan)]
    verdicts = vllm_verdicts([case for _, _, case in running], version)
    found = {
        case["name"]: differences(plan, process, verdict)
        for (plan, process, case), verdict in zip(running, verdicts, strict=True)
    }
    return {name: rows for name, rows in found.items() if rows}


def test_every_command_of_every_example_is_accepted_with_the_same_sizes_and_groups() -> None:
    plans = list(examples("vllm").values())
    assert len(plans) >= 3
    assert plan_differences(plans) == {}


def test_the_command_for_ray_is_accepted_with_ray_as_the_executor() -> None:
    cases = []
    for plan in examples("vllm").values():
        if plan.layout.dp == 1:
            process = plan_processes(plan)[0]
            words = list(engine("vllm").command(plan, "ray"))[1:]
            cases.append(case_of(plan, process, False) | {"argv": words})
    assert len(cases) >= 2
    for verdict in vllm_verdicts(cases):
        assert verdict["accepted"], verdict
        assert verdict["sizes"]["executor"] == "ray"


def test_random_valid_specs_are_accepted_with_the_same_sizes_and_groups() -> None:
    plans = []
    for seed in range(SPECS):
        plan, sink = planned(valid_service(seed))
        assert plan is not None or sink.failed()
        plans += [plan] if plan is not None else []
    assert len(plans) >= 200
    assert plan_differences(plans) == {}


def test_optional_features_are_accepted_and_resolved_to_the_planned_values(tmp_path: Path) -> None:
    plans = feature_plans("vllm", tmp_path)
    cases = [case_of(plan, plan_processes(plan)[0], False) for plan in plans.values()]
    cases[list(plans).index("mtp")]["config"]["num_nextn_predict_layers"] = 1
    verdicts = dict(zip(plans, vllm_verdicts(cases), strict=True))
    rejected = {name: one["error"] for name, one in verdicts.items() if not one["accepted"]}
    assert rejected == {}
    found = {name: one["sizes"]["features"] for name, one in verdicts.items()}
    drafts = {name: one["draft"] for name, one in found.items() if one["draft"]}
    assert drafts == {
        "ngram": ["ngram", 4],
        "eagle": ["eagle", 2],
        "draft": ["draft_model", 3],
        "mtp": ["mtp", 1],
        "together": ["eagle", 2],
    }
    adapters = {name: one["lora"] for name, one in found.items() if one["lora"]}
    assert adapters == {name: [2, 32, 2] for name in ("lora", "together")}
    copies = {name: one["offload_gib"] for name, one in found.items() if one["offload_gib"]}
    assert copies == dict.fromkeys(("copies", "together"), pytest.approx(100e9 / 2**30, rel=1e-5))
    assert [name for name, one in found.items() if not one["prefix_caching"]] == ["uncached"]


CONTEXTS: list[tuple[Any, dict[str, Any], int]] = [
    ("deepseek-v3", {"tp": 4, "pp": 1, "dp": 1, "pcp": 2}, 1),
    ("deepseek-v3", {"tp": 4, "pp": 1, "dp": 2, "pcp": 2, "ep": "on"}, 2),
    ("deepseek-v3", {"tp": 8, "pp": 1, "dp": 1, "dcp": 8}, 1),
    ("deepseek-v3", {"tp": 2, "pp": 1, "dp": 4, "dcp": 2, "ep": "on"}, 1),
    ("qwen3-235b-a22b", {"tp": 8, "pp": 1, "dp": 1, "dcp": 2, "ep": "on"}, 1),
    ("llama-3.1-70b", {"tp": 16, "pp": 1, "dcp": 2, "replicas": 1}, 2),
    ({**QWEN3_NEXT, "family": "qwen3_next"}, {"tp": 8, "dp": 1, "dcp": 4, "ep": "on"}, 1),
    ({**NEMOTRON_NANO, "family": "nemotron_h"}, {"tp": 4, "dp": 2, "dcp": 2, "ep": "on"}, 1),
]
"""(model, layout, hosts): both kinds of context parallelism, and the settings that they combine
with.
"""


def test_context_parallelism_is_accepted_with_the_same_sizes_and_groups() -> None:
    plans = []
    for model, layout, nodes in CONTEXTS:
        wide = not isinstance(model, str) or model.startswith("llama")
        job = {
            "kind": "serve",
            "precision": "bf16" if wide else "fp8",
            "checkpoint": "/models/context",
            "max_model_len": 8192,
            "traffic": {"input_tokens": 4000, "output_tokens": 1000, "concurrency": 64},
        }
        plan, sink = planned(
            {
                "parc": 1,
                "name": "context",
                "model": model,
                "cluster": {"node": "hgx-h200", "nodes": nodes},
                "job": job,
                "layout": layout,
                "emit": ["vllm"],
            }
        )
        assert plan is not None, [found.finding.message for found in sink.diagnostics]
        plans.append(plan)
    assert plan_differences(plans) == {}


@pytest.mark.parametrize(("version", "names"), [("", tuple(POOLS)), ("0.28", ("dense",))])
def test_both_pools_are_accepted_with_the_same_sizes_groups_and_roles(
    version: str, names: tuple[str, ...]
) -> None:
    plans = pool_plans("vllm", names)
    running = [(key, *pair) for key, plan in plans.items() for pair in cases_of(plan)]
    for (name, _), _, case in running:
        case["config"] |= {"num_nextn_predict_layers": 1} if name == "drafts" else {}
    verdicts = vllm_verdicts([case for _, _, case in running], version)
    for (key, process, _), verdict in zip(running, verdicts, strict=True):
        assert differences(plans[key], process, verdict) == [], key
        role = {"prefill": "kv_producer", "decode": "kv_consumer"}[key[1]]
        assert verdict["sizes"]["features"]["pool"] == ["NixlConnector", role]
