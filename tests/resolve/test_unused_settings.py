"""Settings that reach no emitted file are reported, and pins that a framework cannot express."""

from __future__ import annotations

import pytest

from parc.compiler.ir import Plan
from tests.compiled import Spec, changed, emitted, planned
from tests.laws.field_pairs import DENSE, PLAIN, SERVICE

FLAVOR: Spec = {
    **PLAIN,
    "model": {"base": "qwen3-8b", "norm_epsilon": 0.01},
    "emit": ["torchtitan", "torchrun"],
}


def codes(spec: Spec, **changes: object) -> set[str]:
    found = planned(changed(spec, {key.replace("__", "."): one for key, one in changes.items()}))[1]
    return {one.code.removeprefix("PARC-") for one in found.diagnostics}


@pytest.mark.parametrize("target", ["fsdp", "torchtitan"])
@pytest.mark.parametrize(
    "layout", [{}, {"dp": 1, "cp": 4, "tp": 8}, {"dp": 1, "cp": 1, "tp": 8, "pp": 4}]
)
def test_a_pinned_zero_stage_of_another_framework_is_refused_with_any_sizes(
    target: str, layout: Spec
) -> None:
    assert "E08" in codes(DENSE, layout={**layout, "zero_stage": 1}, emit=[target])


def test_a_framework_behind_a_front_uses_no_launch_settings_itself() -> None:
    front = changed(PLAIN, {"launch.env": {"A": "1"}, "emit": ["accelerate", "deepspeed"]})
    assert "E13" in codes(front)
    assert "E13" not in codes(front, emit=["accelerate", "deepspeed", "torchrun"])
    assert "E13" not in codes(front, emit=["deepspeed"])


def test_a_launcher_starts_the_framework_or_a_program_of_the_user() -> None:
    assert "E15" in codes(DENSE, emit=["slurm"])
    assert "E15" in codes(DENSE, emit=["slurm"], launch__program="/opt/pretrain_gpt.py")
    assert "E15" not in codes(DENSE, emit=["slurm"], launch__program="train.py")
    assert "E15" not in codes(DENSE, emit=["rankmap"])
    assert "E15" not in codes(DENSE, emit=["megatron", "slurm"])


def test_a_change_of_a_catalog_model_that_a_service_ignores_is_reported() -> None:
    assert "E14" in codes(SERVICE, model__norm_epsilon=0.01)
    assert "E14" not in codes(SERVICE, model__norm_epsilon=0.01, job__checkpoint="/models/mine")


def test_a_change_of_a_model_that_a_registered_flavor_hides_is_reported() -> None:
    assert "E12" in codes(FLAVOR)
    assert "E12" not in codes(FLAVOR, model={"base": "qwen3-8b"})


@pytest.mark.parametrize("emit", [["fsdp", "torchrun"], ["torchtitan", "torchrun"], ["deepspeed"]])
def test_a_folder_on_nvme_without_data_on_nvme_is_reported_and_not_planned(emit: list[str]) -> None:
    spec = changed(PLAIN, {"emit": emit, "layout.offload": {"nvme_path": "/local"}})
    plan, sink = planned(spec)
    assert {one.path for one in sink.diagnostics if one.code == "PARC-E14"} == {
        "layout.offload.nvme_path"
    }
    assert plan is not None
    emitted(plan)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"fp8_recipe": "delayed"}, "the precision is not fp8"),
        ({"async_checkpoint": True}, "no checkpoint_dir is set"),
        ({"checkpoint_interval": 100}, "no checkpoint_dir is set"),
        ({"moe_imbalance": 1.2}, "the model has no experts"),
    ],
)
def test_a_job_setting_that_needs_another_one_is_reported(job: Spec, why: str) -> None:
    _, sink = planned({**DENSE, "job": {**DENSE["job"], **job}})
    (found,) = (one for one in sink.diagnostics if one.code == "PARC-E14")
    (name,) = job
    assert (found.path, found.finding.label) == (f"job.{name}", why)
    assert found.finding.fix == f"remove job.{name}"


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({"cp": 1, "cp_a2a": 2}, ["PARC-E14"]),
        ({"cp": 1, "cp_a2a": 1}, []),
        ({"cp": 1}, []),
        ({"cp_a2a": 2, "cp_comm": "a2a+p2p"}, ["PARC-E14"]),  # PARC chooses cp 1
        ({"cp": 4, "cp_a2a": 2, "cp_comm": "a2a+p2p"}, []),
    ],
)
def test_groups_of_an_exchange_need_context_parallelism(layout: Spec, expected: list[str]) -> None:
    _, sink = planned(changed(PLAIN, {"layout": layout, "emit": ["megatron"]}))
    assert [one.code for one in sink.diagnostics if one.path == "layout.cp_a2a"] == expected


@pytest.mark.parametrize(
    ("stage", "expected"), [(0, ["PARC-E14"]), (2, []), (None, [])], ids=["DDP", "ZeRO-2", "auto"]
)
def test_a_shard_size_needs_shards(stage: int | None, expected: list[str]) -> None:
    layout = {"dp_shard": 2, "zero_stage": "auto" if stage is None else stage}
    small = {"model": "qwen3-0.6b", "layout": layout, "emit": ["torchtitan"]}
    plan, sink = planned(changed(PLAIN, small))
    assert [one.code for one in sink.diagnostics if one.path == "layout.dp_shard"] == expected
    assert isinstance(plan, Plan)
    assert (plan.layout.zero_stage == 0) is (stage == 0)


def test_a_finding_offers_only_targets_that_can_be_added() -> None:
    spec = {
        "parc": 1,
        "name": "t",
        "model": "llama-3.1-8b",
        "cluster": {"node": "hgx-h100", "nodes": 1},
        "job": {"sequence_length": 8192, "global_batch": 64},
        "emit": ["fsdp", "torchrun"],
        "launch": {"logging": {"tensorboard": "logs"}, "slurm": {"partition": "gpu"}},
    }
    found = [one.finding for one in planned(spec)[1].diagnostics if one.code == "PARC-E13"]
    helps = {one.message: one.help for one in found}
    assert helps["no target uses launch.slurm.partition"].endswith("add slurm"), helps
    assert helps["no target uses launch.logging.tensorboard"].endswith("none of them can use it")


@pytest.mark.parametrize(
    ("model", "unused"),
    [
        ({"base": "llama-3-8b", "full_attention_every": 2}, True),
        ({"base": "llama-3-8b", "full_attention_every": 2, "window": 1024}, False),
        ({"base": "llama-3-8b", "position": {"scaling_factor": 4.0}}, True),
        ({"base": "llama-3-8b", "position": {"original_max_positions": 1024}}, True),
        ({"base": "llama-3-8b", "position": {"mscale": 2.0}}, True),
        ({"base": "llama-3-8b", "position": {"scaling": "linear", "scaling_factor": 4.0}}, False),
        ({"base": "deepseek-v2-lite", "position": {"percent": 0.5}}, True),
        ({"base": "qwen3-30b-a3b", "experts": {"shared_gate": True}}, True),
    ],
)
def test_a_field_of_the_model_without_effect_is_reported(model: Spec, unused: bool) -> None:
    spec = {**PLAIN, "layout": {}, "model": model}
    assert ("E14" in codes(spec)) is unused


def test_a_version_of_a_target_that_is_not_emitted_is_reported() -> None:
    spec = changed(PLAIN, {"emit": ["megatron", "slurm"]})
    assert "E13" in codes(spec, versions={"deepspeed": "0.18"})
    assert "E13" not in codes(spec, versions={"slurm": "24.11"})
    # The framework of the layout counts, even if another program than its own is started.
    assert "E13" not in codes(spec, emit=["slurm"], versions={"megatron": "0.19"})


def test_the_nics_of_the_gpus_are_nics_of_the_host() -> None:
    node = {"base": "dgx-h100", "nic_names": ["a", "b"], "nics": 2}
    for gpu_nics, code in ((["a"] * 4 + ["b"] * 4, set()), (["a"] * 7 + ["c"], {"H07"})):
        spec = changed(PLAIN, {"cluster.node": {**node, "gpu_nics": gpu_nics}})
        assert codes(spec) & {"H07"} == code
