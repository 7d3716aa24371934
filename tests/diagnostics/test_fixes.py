"""The edit that a finding offers removes the finding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.fixes import overrides_of_fix
from parc.compiler.spec.reading.source import SpecSource
from tests.compiled import changed, planned

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({"tp": 3}, {("PARC-D01", "layout.tp")}),
        ({"tp": 6}, {("PARC-D01", "layout.tp")}),
        ({"tp": 3, "pp": 7}, {("PARC-D01", "layout.tp"), ("PARC-D09", "layout.pp")}),
        ({"tp": 3, "pp": 7, "vpp": 1}, {("PARC-D01", "layout.tp"), ("PARC-D09", "layout.pp")}),
        ({"tp": 3, "cp": 3}, {("PARC-D01", "layout.tp"), ("PARC-S04", "layout.cp")}),
        ({"tp": 3, "dp": 5}, {("PARC-D01", "layout.tp"), ("PARC-B01", "job.global_batch")}),
        ({"tp": 8, "pp": 3}, {("PARC-D09", "layout.pp")}),
        ({"cp": 8, "cp_comm": "a2a+p2p", "cp_a2a": 3}, {("PARC-S06", "layout.cp_a2a")}),
        ({"pp": 1, "vpp": 3}, {("PARC-P06", "layout.vpp")}),
    ],
)
def test_one_root_cause_gives_one_error(layout: Any, expected: Any) -> None:
    spec = changed(TRAINED, {"layout": layout, "cluster.nodes": 4, "job.sequence_length": 8192})
    found = [one for one in planned(spec)[1].diagnostics if one.severity == "error"]
    assert {(one.code, one.path) for one in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("layout", [{"tp": 3, "pp": 7}, {"tp": 3, "cp": 3}, {"tp": 3, "dp": 12}])
def test_the_fixes_of_all_errors_together_give_a_plan(layout: Any) -> None:
    spec = changed(TRAINED, {"layout": layout, "cluster.nodes": 4, "job.sequence_length": 8192})
    fixes = [one.finding.fix for one in planned(spec)[1].diagnostics]
    edits = dict(text.split("=") for fix in fixes for text in overrides_of_fix(fix))
    plan, sink = planned(changed(spec, {path: int(value) for path, value in edits.items()}))
    assert plan is not None
    assert not sink.failed()


SERVED = {
    "parc": 1,
    "name": "served",
    "model": "llama-3.1-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 2000, "output_tokens": 100, "concurrency": 8},
    },
}
TRAINED = {
    "parc": 1,
    "name": "trained",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
}


@pytest.mark.parametrize(
    ("base", "mistake", "fix"),
    [
        (SERVED, {"layout": {"pcp": 2, "tp": 2}}, "layout.pcp: 1"),
        (SERVED, {"layout": {"redundant_experts": 1}}, "remove layout.redundant_experts"),
        (SERVED, {"job.max_model_len": 1024}, "job.max_model_len: 2100"),
        (TRAINED, {"emit": []}, "emit: [megatron, preflight, rankmap, slurm, torchrun]"),
        (TRAINED, {"job.precision": "nvfp4"}, "job.precision: fp8"),
        (TRAINED, {"layout": {"tp": 4, "pp": 3}}, "layout.pp: 2"),
    ],
)
def test_a_mistake_is_reported_with_the_edit_that_fixes_it(
    base: Any, mistake: Any, fix: str
) -> None:
    _, sink = planned(changed(base, mistake))
    assert fix in {one.finding.fix for one in sink.diagnostics if one.severity == "error"}


def test_weights_that_every_replica_keeps_are_not_called_sharded() -> None:
    # The user's program reduces gradients as Accelerate does: in bf16, unless zero_stage is 0.
    own = {"emit": ["accelerate"], "launch": {"program": "train.py"}}
    _, sink = planned(changed(TRAINED, own))
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-R17"]
    assert "zero_stage 0" in found.finding.help
    assert "PARC-E11" in found.finding.help


def errors_of(spec: Any) -> list[Diagnostic]:
    return [one for one in planned(spec)[1].diagnostics if one.severity == "error"]


def test_a_rotary_base_that_is_almost_an_integer_is_rounded() -> None:
    spec = changed(TRAINED, {"model": "starcoder2-3b"})
    (found,) = errors_of(spec)
    assert found.finding.fix == "model.position.base: 999999"
    rounded = {"base": "starcoder2-3b", "position": {"base": 999999}}
    plan, sink = planned(changed(spec, {"model": rounded}))
    assert plan is not None
    assert not sink.failed()


FALCON = {"model": "falcon-180b", "cluster.nodes": 64, "job.sequence_length": 2048}


def test_a_model_that_megatron_cannot_express_is_sent_to_targets_that_train_it() -> None:
    spec = changed(TRAINED, {**FALCON, "job.global_batch": 512})
    (found,) = errors_of(spec)
    assert found.code == "PARC-E07"
    assert found.finding.help.startswith("fsdp, deepspeed and accelerate train it")
    assert found.finding.fix == "emit: [fsdp, preflight, rankmap, slurm, torchrun]"
    for target in ("deepspeed", "fsdp", "accelerate"):
        plan, _ = planned(changed(spec, {"emit": [target, "slurm"]}))
        assert plan is not None


def test_a_model_without_a_class_in_transformers_is_sent_to_the_users_program() -> None:
    spec = changed(TRAINED, {"model": "grok-1", "cluster.nodes": 64, "job.global_batch": 512})
    (found,) = [one for one in errors_of(spec) if one.code == "PARC-E07"]
    assert found.finding.help.startswith("fsdp, deepspeed and accelerate start your own program")
    for target in ("deepspeed", "fsdp"):
        alone = changed(spec, {"emit": [target, "slurm"]})
        assert "PARC-E10" in {one.code for one in errors_of(alone)}
        assert planned(changed(alone, {"launch": {"program": "train.py"}}))[0] is not None


def test_a_constant_without_an_argument_is_a_warning_and_megatron_is_emitted() -> None:
    """Megatron has no flag for beta_fast of YaRN in latent attention; recipes train Kimi K2."""
    edits = {"model": "kimi-k2", "cluster.nodes": 128, "job.global_batch": 2048}
    plan, sink = planned(changed(TRAINED, {**edits, "emit": ["megatron"]}))
    assert plan is not None
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-K06"]
    assert found.severity == "warning"
    assert "beta_fast" in found.finding.message


@pytest.mark.parametrize(
    ("model", "fix"),
    [("grok-1", ""), ("ling-lite-1.5", "[megatron]"), ("falcon-180b", "[fsdp]")],
)
def test_another_target_is_offered_only_if_it_can_train_the_model(model: str, fix: str) -> None:
    spec = changed(TRAINED, {**FALCON, "model": model, "emit": ["torchtitan"]})
    sink = Sink()
    plan_spec(SpecSource("spec.yaml", json.dumps(spec), None), (), sink)
    (found,) = [one.finding for one in sink.diagnostics if one.code == "PARC-E12"]
    assert found.fix == (f"emit: {fix}" if fix else "")


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"head_dim": 64}, "model.head_dim: 128"),
        ({"norm_epsilon": 1e-5}, "model.norm_epsilon: 1e-06"),
        ({"position": {"base": 500000}}, "model.position.base: 1000000"),
        ({"attention_output_bias": True}, "model.attention_output_bias: false"),
        ({"mlp_bias": True}, "model.mlp_bias: false"),
        ({"mlp_bias": True, "head_dim": 64}, ""),  # biases of MLPs alone: Megatron has no flag
        ({"norm_epsilon": 1e-5, "head_dim": 64}, "emit: [megatron]"),
    ],
)
def test_a_feature_that_differs_from_a_registered_model_is_named(change: Any, fix: str) -> None:
    spec = changed(TRAINED, {"emit": ["torchtitan"], "model": {"base": "qwen3-8b", **change}})
    (found,) = errors_of(spec)
    assert (found.code, found.finding.fix) == ("PARC-E12", fix)
    for name in change:
        assert f"model.{name}" in found.finding.label
    plan, sink = planned(changed(spec, {"model": "qwen3-8b"}))
    assert plan is not None
    assert not sink.failed()


@pytest.mark.parametrize(
    ("edit", "fix"),
    [
        ({"model": "llama3-70b"}, "model: llama-3-70b"),
        ({"model": "lama-3-8b"}, "model: llama-3-8b"),
        ({"model": "gemma-7b"}, ""),
        ({"cluster.node": "dgxh100"}, "cluster.node: dgx-h100"),
        ({"cluster.node": "dgx-h900"}, ""),
    ],
)
def test_other_hardware_or_another_size_of_model_is_no_fix(edit: Any, fix: str) -> None:
    (found,) = [one for one in errors_of(changed(TRAINED, edit)) if one.code == "PARC-K01"]
    assert found.finding.fix == fix
    assert "did you mean" in found.finding.help


@pytest.mark.parametrize(
    ("edit", "path", "fix"),
    [
        ({"layout": {"cp": 2, "cp_a2a": 2}}, "layout.cp_a2a", "layout.cp_a2a: 1"),
        # 12 divides the NVLink domain of 72 GPUs, but not the 32 heads.
        (
            {"layout": {"tp": 16, "dp": 3}, "cluster.node": "gb200-nvl72", "cluster.nodes": 4},
            "layout.tp",
            "layout.tp: 8",
        ),
        # 4 is nearer, but expert tensor parallelism stays unsupported with it.
        (
            {
                "layout": {"ep": 8, "etp": 3, "last_stage_layers": 5, "count_loss": True},
                "cluster": {"node": "l40s-8", "nodes": 5},
                "job.sequence_length": 8192,
                "emit": ["fsdp"],
            },
            "layout.etp",
            "layout.etp: 1",
        ),
    ],
)
def test_the_first_of_several_fixes_agrees_with_all_rules_of_its_value(
    edit: Any, path: str, fix: str
) -> None:
    (found,) = [one for one in errors_of(changed(TRAINED, edit)) if one.path == path]
    assert found.finding.fix == fix


@pytest.mark.parametrize(
    ("emit", "fixed"),
    [
        (["torchtitan"], "emit: [fsdp]"),
        (["torchtitan", "rankmap", "slurm"], "emit: [fsdp, rankmap, slurm]"),
        (["rankmap", "torchrun", "torchtitan"], "emit: [fsdp, rankmap, torchrun]"),
    ],
)
def test_another_framework_keeps_the_other_targets(emit: list[str], fixed: str) -> None:
    spec = changed(TRAINED, {"model": "mixtral-8x7b", "emit": emit, "layout": {}})
    (found,) = [one for one in errors_of(spec) if one.code == "PARC-E12"]
    assert found.finding.fix == fixed


def test_a_fix_that_needs_another_fix_names_it() -> None:
    cluster = {"node": {"base": "hgx-h100", "gpus_per_node": 4}, "nodes": 3}
    spec = {"model": "qwen3-8b", "cluster": cluster, "layout": {"tp": 3, "pp": 5}}
    first, second = errors_of(changed(TRAINED, {**spec, "job.global_batch": 96}))
    assert (first.finding.fix, second.finding.fix) == ("layout.tp: 4", "layout.pp: 3")
    assert second.finding.help.endswith("valid pp with tp 3: 1, 2, 4; the fix assumes layout.tp: 4")
