"""Megatron-Bridge's own classes accept the emitted settings, and mean what Megatron-LM means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.megatron.bridge.verify import CONFIG, VERIFIER
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.verify.verify_settings import verify_settings
from tests.compiled import emitted, examples, planned
from tests.conformance.megatron.bridge_cases import bridge_case, bridge_verdicts
from tests.conformance.megatron.specs import valid_spec

pytestmark = pytest.mark.conformance
SPECS = 60
SHARDED = 12
"""Number of random specs with Megatron-FSDP."""
WITHOUT_EFFECT = {
    "model.add_qkv_bias": "add_bias_linear adds the same biases",
    "model.apply_rope_fusion": "the models without rotary positions rotate nothing",
    "model.cp_comm_type": "one context rank exchanges nothing",
    "model.expert_tensor_parallel_num_weight_shards": "finalize computes it again",
    "model.fp8_recipe": "relevant only with fp8",
    "model.inference_sampling_seed": "inference",
    "model.masked_softmax_fusion": "a kernel of attention without TransformerEngine",
    "model.num_layers_at_end_in_bf16": "relevant only with first_last_layers_bf16",
    "model.num_layers_at_start_in_bf16": "relevant only with first_last_layers_bf16",
    "model.persist_layer_norm": "a kernel of norms without TransformerEngine",
    "model.rotary_scaling_factor": "relevant only with YaRN",
    "model.tensor_parallel_num_weight_shards": "finalize computes it again",
    "model.use_cpu_initialization": "None and False",
    "model.wgrad_deferral_limit": "relevant only with defer_embedding_wgrad_compute",
    "optimizer.barrier_with_L1_time": "timers",
    "optimizer.fp8_recipe": "relevant only with fp8",
    "optimizer.muon_momentum": "another optimizer",
    "optimizer.optimizer_offload_fraction": "relevant only with optimizer_cpu_offload",
    "ddp.align_param_gather": "relevant only with the distributed optimizer",
    "ddp.bucket_size": "Megatron-LM computes a size of at least 40 million, the Bridge has 128 Mi",
    "ddp.data_parallel_sharding_strategy": "relevant only with Megatron-FSDP",
    "ddp.use_custom_fsdp": "deprecated name of use_megatron_fsdp that nothing reads",
}
"""Field of Megatron-Core whose value differs from that of Megatron-LM -> reason why it may."""
LABEL = "hf_model_id"
"""Setting for exports, which has no effect on the training."""
NEEDS: dict[str, tuple[str, ...]] = {
    "model.apply_rope_fusion": ('position_embedding_type: "none"', '"learned_absolute"'),
    "model.cp_comm_type": ("context_parallel_size: 1\n",),
    "model.add_qkv_bias": ("add_bias_linear: true",),
    "model.rotary_scaling_factor": ('rope_type: "rope"',),
    "ddp.align_param_gather": ("  use_distributed_optimizer: false",),
    "ddp.data_parallel_sharding_strategy": ("  use_megatron_fsdp: false",),
}
"""Field -> texts of the file of which one must be there if the field differs."""


def bridge_plans() -> dict[str, Plan]:
    """Return random plans with every parallelism and feature, and the examples."""
    plans: dict[str, Any] = dict(examples("megatron-bridge"))
    for seed in range(SPECS):
        spec = valid_spec(seed) | {"emit": ["megatron-bridge", "rankmap"]}
        spec.pop("versions", None)
        spec["layout"].pop("cuda_graphs", None)  # refused (E08)
        if seed < SHARDED and not spec["job"].get("moe_overlap"):
            spec["layout"] |= {"zero_stage": 2 + seed % 2, "order": "auto"}  # others: R22
        plan, sink = planned(spec)
        if plan is not None:
            plans[f"valid {seed}"] = plan
        else:
            assert {one.code for one in sink.diagnostics if one.severity == "error"} == {"PARC-E11"}
    return plans


def unreported_removals(plan: Plan) -> list[int]:
    """Return lines of the file that the verifier does not miss, even if all are removed."""
    files = emitted(plan)
    lines, tree = files[CONFIG].splitlines(), json.loads(files["plan.json"])
    found: list[int] = []
    for number, line in enumerate(lines, 1):
        kept = [one for at, one in enumerate(lines, 1) if at not in (*found, number)]
        sink = Sink()
        if line.startswith(" ") and LABEL not in line:
            edited = {**files, CONFIG: "\n".join([*kept, ""])}
            verify_settings(tree, VERIFIER.derive_settings(edited), sink)
            found += [] if sink.failed() else [number]
    return found


def test_the_real_container_accepts_every_plan_and_equals_the_configs_of_megatron_lm() -> None:
    plans = bridge_plans()
    assert len(plans) >= 45
    cases = [bridge_case(name, plan) for name, plan in plans.items()]
    verdicts = bridge_verdicts(cases)
    wrong = {}
    for case in cases:
        verdict = verdicts[case["name"]]
        if not verdict["accepted"] or verdict["unread"]:
            wrong[case["name"]] = verdict
            continue
        assert verdict["shape"]["dp"] == plans[case["name"]].layout.dp
        for field, values in verdict["differences"].items():
            texts = NEEDS.get(field, ("",))
            if field not in WITHOUT_EFFECT or not any(one in case["config"] for one in texts):
                wrong[f"{case['name']} {field}"] = values
    assert wrong == {}


def test_a_removed_setting_that_the_verifier_does_not_miss_has_the_default_of_the_container() -> (
    None
):
    (plan,) = examples("megatron-bridge").values()
    assert isinstance(plan, Plan)
    removed = unreported_removals(plan)
    assert 20 < len(removed) < 80
    case = bridge_case("removed", plan) | {"removed": removed}
    verdict = bridge_verdicts([case])["removed"]
    assert verdict["accepted"], verdict
    # Python tests both as false.
    alike = ({"None", "False"},)
    assert {f: v for f, v in verdict["changed"].items() if set(v) not in alike} == {}


def test_an_override_on_the_command_line_changes_one_field() -> None:
    (plan,) = examples("megatron-bridge").values()
    assert isinstance(plan, Plan)
    case = bridge_case("override", plan, ("train.train_iters=7",))
    verdict = bridge_verdicts([case])["override"]
    assert verdict["shape"]["train_iters"] == 7
