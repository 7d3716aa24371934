"""The model that Megatron-Core builds from the arguments has as many parameters as PARC counts."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.counts import params
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.ir import Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import planned
from tests.conformance.megatron.cases import case_of, megatron_verdicts
from tests.conformance.megatron.hybrid_specs import hybrid_spec
from tests.conformance.megatron.specs import valid_spec

pytestmark = pytest.mark.conformance
MODELS, HYBRIDS, STAGED = 40, 16, 16
PUBLISHED = (
    *("gpt2-small", "llama-3-8b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-30b-a3b"),
    *("nemotron-3-nano-30b-a3b", "nemotron-h-8b", "qwen3-next-80b-a3b"),
)


def single_gpu_spec(model: Any) -> dict[str, Any]:
    """Return a spec for the whole model on one GPU, so that no weight is split and no count is
    summed over ranks.
    """
    return {
        "parc": 1,
        "name": "alone",
        "model": model,
        "cluster": {
            "node": {"base": "dgx-b200", "gpus_per_node": 1},
            "gpu": {"base": "b200-180gb", "memory": 100_000.0},
            "nodes": 1,
        },
        "job": {"sequence_length": 1024, "global_batch": 1},
        "layout": {"tp": 1, "pp": 1, "cp": 1, "dp": 1},
        "emit": ["megatron"],
    }


def models() -> dict[str, Any]:
    """Return random models with a vocabulary that needs no padding, and published models."""
    found: dict[str, Any] = {name: name for name in PUBLISHED}
    for seed in range(MODELS):
        model = valid_spec(seed)["model"]
        if "q_lora_rank" not in model.get("latent", {"q_lora_rank": 0}):
            continue  # a layer that Megatron builds with TransformerEngine only
        found[f"random {seed}"] = {**model, "vocab": model["vocab"] // 128 * 128}
    for seed in range(HYBRIDS):
        model = hybrid_spec(seed)["model"]
        found[f"hybrid {seed}"] = {**model, "vocab": model["vocab"] // 128 * 128}
    return found


def test_megatron_builds_as_many_parameters_as_parc_counts() -> None:
    plans: dict[str, Plan] = {}
    for name, model in models().items():
        plan, sink = planned(single_gpu_spec(model))
        assert plan is not None, (name, sink.diagnostics)
        plans[name] = plan
    cases = [{**case_of(name, p.problem, p.layout, 1), "build": True} for name, p in plans.items()]
    verdicts = megatron_verdicts(cases)
    different = {}
    for name, plan in plans.items():
        own, model = params.total_params(plan.problem.model, mtp=True), plan.problem.model
        padding = (-model.vocab % 128) * model.hidden * (1 if model.tied_embeddings else 2)
        if verdicts[name].get("parameters") != own + padding:
            different[name] = (own + padding, verdicts[name].get("parameters"), verdicts[name])
    assert different == {}


def test_the_first_and_last_stage_of_a_hybrid_have_as_many_parameters_as_parc_counts() -> None:
    cases, own = [], {}
    for seed in range(STAGED):
        spec = hybrid_spec(seed)
        spec["job"] |= {"precision": "bf16", "moe_dispatcher": "alltoall"}
        plan, _ = planned(spec)
        if not isinstance(plan, Plan):
            continue
        problem, layout = plan.problem, plan.layout
        cost_model = cost_model_for(problem, framework("megatron"))
        for rank, stage in ((0, 0), (layout.world - 1, layout.pp - 1)):
            name = f"hybrid {seed} stage {stage}"
            case = case_of(name, problem, layout, layout.world)
            cases.append({**case, "ranks": [rank], "build": True, "built_rank": rank})
            load = stage_contents(problem.model, layout.split, stage)
            own[name] = sum(cost_model.stage_parameters(layout, load))
    found = {name: verdict.get("parameters") for name, verdict in megatron_verdicts(cases).items()}
    assert len(own) >= STAGED * 3 // 2
    assert found == own
