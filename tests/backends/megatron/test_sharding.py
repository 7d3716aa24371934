"""Megatron-FSDP: ZeRO-2 and 3 of Megatron and Megatron-Bridge."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.megatron.launch_files.import_arguments import read_megatron_args
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from tests.compiled import Spec, changed, emitted, plan_of, planned

SPEC: Spec = {
    "parc": 1,
    "name": "sharded",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "layout": {"tp": 2, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "full", "zero_stage": 3},
    "emit": ["megatron", "torchrun"],
}
ARGUMENTS, LAUNCH = "megatron/args.sh", "torchrun/launch.sh"
VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.parametrize(
    ("stage", "strategy"), [(1, ""), (2, "optim_grads"), (3, "optim_grads_params")]
)
def test_stages_2_and_3_are_emitted_as_megatron_fsdp(stage: int, strategy: str) -> None:
    files = emitted(plan_of(changed(SPEC, {"layout.zero_stage": stage})))
    text = files[ARGUMENTS]
    assert ("--use-megatron-fsdp" in text) is bool(strategy)
    assert f"--data-parallel-sharding-strategy {strategy}" in text or not strategy
    assert ("--init-model-with-meta-device" in text) is (stage == 3)
    assert f"--ckpt-format {'fsdp_dtensor' if strategy else 'torch_dist'}" in text
    # Megatron-FSDP does not start with the variable, other layouts with tp do not start without.
    assert (f"{VARIABLE}=1" in files[LAUNCH]) is not bool(strategy)


@pytest.mark.parametrize(
    ("gradients", "flag"),
    [("fp32", "--megatron-fsdp-main-grads-dtype fp32"), ("bf16", "--grad-reduce-in-bf16")],
)
def test_gradients_have_the_format_of_the_job(gradients: str, flag: str) -> None:
    text = emitted(plan_of(changed(SPEC, {"job.gradient_precision": gradients})))[ARGUMENTS]
    assert flag in text
    imported = read_megatron_args(text, "args.sh", Sink())
    assert imported is not None
    assert imported.spec["layout"]["zero_stage"] == 3
    assert imported.spec["job"].get("gradient_precision", "fp32") == gradients


def test_hybrid_sharding_has_several_optimizer_instances() -> None:
    plan = plan_of(changed(SPEC, {"layout.dp_shard": 4}))
    assert (plan.layout.dp_replicate, plan.layout.dp_shard) == (2, 4)
    assert "--num-distributed-optimizer-instances 2" in emitted(plan)[ARGUMENTS]


def test_the_search_shards_weights_only_if_nothing_else_fits() -> None:
    free = {"layout": {"tp": 1, "pp": 1, "cp": 1}}
    plan = plan_of(changed(SPEC, free))
    assert plan.layout.zero_stage == 1
    large = plan_of(changed(SPEC, {**free, "model": "llama-3-70b", "cluster.nodes": 4}))
    assert large.layout.zero_stage == 3


def memory_of(stage: int) -> Any:
    (memory,) = plan_of(changed(SPEC, {"layout.zero_stage": stage})).estimate.memory
    return memory


def test_each_stage_divides_one_more_part_of_the_state_by_the_ranks() -> None:
    one, two, three = (memory_of(stage) for stage in (1, 2, 3))
    assert one.optimizer_bytes == two.optimizer_bytes == three.optimizer_bytes
    assert two.weights_bytes == one.weights_bytes
    assert three.weights_bytes == pytest.approx(one.weights_bytes / 8)
    assert two.gathered_bytes == 0 < three.gathered_bytes
    # fp32: 4/8 bytes per parameter. At most 1e9 gradients wait, besides two buckets of 4e7, in
    # place of logits and activations that are freed by then.
    parameters = one.weights_bytes / 2
    waiting = two.gradients_bytes - 4 * parameters / 8
    assert 4 * (1e9 + 2 * 4e7) - two.logits_bytes - two.activations_bytes <= waiting
    assert 0 < waiting < 4 * (1e9 + 2 * 4e7)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"layout.cuda_graphs": True, "layout.recompute": "none"}, "CUDA graphs"),
        ({"versions": {"megatron": "0.17"}, "job.moment_precision": "bf16"}, "bf16 moments"),
        ({"emit": ["megatron-bridge"], "layout.order": "tp-cp-ep-pp-dp"}, "rank order"),
    ],
)
def test_a_setting_that_megatron_fsdp_excludes_is_reported(
    edit: dict[str, Any], message: str
) -> None:
    plan, sink = planned(changed(SPEC, edit))
    assert not isinstance(plan, Plan)
    assert [one.code for one in sink.diagnostics if one.severity == "error"] == ["PARC-R22"]
    assert message in str([one.finding.message for one in sink.diagnostics])


def test_the_bridge_gets_the_same_settings() -> None:
    plan = plan_of(changed(SPEC, {"emit": ["megatron-bridge"]}))
    text = emitted(plan)["megatron-bridge/config.yaml"]
    for line in (
        "  use_megatron_fsdp: true",
        '  data_parallel_sharding_strategy: "optim_grads_params"',
        "  init_model_with_meta_device: true",
        "  gradient_accumulation_fusion: false",
        '  ckpt_format: "fsdp_dtensor"',
    ):
        assert line in text.splitlines()
