"""Weights per rank, and the cache that fits with them, equal those of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.ir import ServingPlan
from tests.conformance.tool_checkers import vllm_verdicts
from tests.conformance.vllm.cases import cases_of
from tests.conformance.vllm.specs import HYBRID, valid_service
from tests.search.serving_specs import plan_of, planned, spec

pytestmark = pytest.mark.conformance
SPECS = 600
"""Number of random specs, of which those are used whose classes can be built without a GPU."""
ROUNDING = 0.01
"""Tolerance of requests: vLLM counts whole blocks of the longest request, PARC its tokens if the
model has no states.
"""


def is_checkable(tree: dict[str, Any], plan: ServingPlan) -> bool:
    """Return True if a CPU can build the classes and vLLM uses the same page size on every stage.

    Blocks of fp8 scales and latent attention need compiled kernels; on Blackwell, the kernels of
    linear attention depend on the CUDA version of the build. A stage without attention has pages of
    another size in vLLM 0.33, and gets separate groups.
    """
    family, job = tree["model"]["family"], tree["job"]
    if family == "deepseek_v3" or job["precision"] == "fp8" or "b200" in tree["cluster"]["node"]:
        return False
    first, held = 0, []
    for stage in plan.stages:
        kinds = plan.problem.model.layer_kinds[first : first + stage.layers]
        held.append(LayerCounts.from_kinds(kinds).attention)
        first += stage.layers
    return all(held)


def differences(plan: ServingPlan, found_by_vllm: dict[str, Any]) -> list[str]:
    """Return the differences between PARC's and vLLM's weights, blocks and requests."""
    limits = plan.limits
    found = [
        f"{name}: vLLM {found_by_vllm[name]}, PARC {value}"
        for name, value in (("block_tokens", limits.block_tokens), ("blocks", limits.blocks))
        if found_by_vllm[name] != value
    ]
    weights = [stage.weights_bytes for stage in plan.stages]
    if weights != pytest.approx(found_by_vllm["weights_bytes"], rel=1e-4):
        found.append(f"weights: vLLM {found_by_vllm['weights_bytes']}, PARC {weights}")
    if limits.full_requests != pytest.approx(found_by_vllm["requests"], rel=ROUNDING):
        found.append(f"requests: vLLM {found_by_vllm['requests']}, PARC {limits.full_requests}")
    return found


def plan_differences(plans: list[ServingPlan]) -> dict[str, list[str]]:
    """Return the differences by model and layout, for plans that have any."""
    cases = [
        cases_of(plan, groups=False)[0][1]
        | {"cache": [int(stage.cache_bytes) for stage in plan.stages]}
        for plan in plans
    ]
    wrong = {}
    for plan, verdict in zip(plans, vllm_verdicts(cases), strict=True):
        assert verdict["accepted"], verdict
        name = f"{plan.problem.name} {plan.problem.model.name} {plan.layout}"
        wrong[name] = differences(plan, verdict["cache"])
    return {name: found for name, found in wrong.items() if found}


def test_weights_blocks_and_requests_of_random_specs_equal_those_of_vllm() -> None:
    plans = []
    for seed in range(SPECS):
        tree = valid_service(seed)
        plan, _ = planned(tree)
        if plan is not None and is_checkable(tree, plan):
            plans.append(plan)
    hybrids = [plan for plan in plans if plan.problem.model.family in HYBRID]
    assert len(hybrids) >= 20
    plans = [plan for plan in plans if plan not in hybrids][:20] + hybrids
    assert plan_differences(plans) == {}


CATALOG = [
    ("qwen3-next-80b-a3b", 1, {"tp": 4, "dp": 2, "ep": "on"}),
    ("qwen3-next-80b-a3b", 2, {"tp": 8, "pp": 2, "dp": 1, "replicas": 1}),
    ("nemotron-3-nano-30b-a3b", 1, {"tp": 2, "dp": 4, "ep": "on"}),
    ("nemotron-h-56b", 1, {"tp": 4, "pp": 2, "replicas": 1}),
    ("llama-3.1-70b", 1, {"tp": 4, "pp": 2, "replicas": 1}),
    ("qwen3-235b-a22b", 1, {"tp": 4, "dp": 2, "ep": "on"}),
]
"""(model, hosts of eight H200, layout)."""


def test_weights_blocks_and_requests_of_catalog_models_equal_those_of_vllm() -> None:
    job = {"max_model_len": 8192}
    trees = [spec(name, "hgx-h200", nodes, job=job, layout=at) for name, nodes, at in CATALOG]
    assert plan_differences([plan_of(tree) for tree in trees]) == {}
