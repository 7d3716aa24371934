"""LoRA training: the files of fsdp and accelerate, and the jobs that no target can train."""

from __future__ import annotations

import json
from typing import Any

import pytest

import parc
from parc.backends.registry import built_in_backends, framework
from tests.compiled import changed, files_of

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "tuned", "model": "llama-3-8b"},
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {
        **{"kind": "finetune", "load_dir": "/base", "checkpoint_dir": "/saved"},
        **{"sequence_length": 4096, "global_batch": 64, "lora": {"rank": 16}},
    },
    "emit": ["fsdp", "torchrun"],
}
ACCELERATE = {"emit": ["accelerate", "torchrun"]}
MOST = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize(("target", "config"), [("fsdp", "config"), ("accelerate", "job")])
def test_the_settings_contain_the_adapters_and_a_module_adds_them(target: str, config: str) -> None:
    files = files_of(changed(SPEC, {"emit": [target, "torchrun"], "job.lora.dropout": 0.1}))
    settings = json.loads(files[f"{target}/{config}.json"])
    assert settings["lora"] == {"rank": 16, "alpha": 32, "dropout": 0.1, "targets": MOST}
    assert "get_peft_model" in files[f"{target}/adapters.py"]


def test_without_adapters_the_files_do_not_mention_them() -> None:
    files = files_of(changed(SPEC, {"job.lora": None}))
    assert "fsdp/adapters.py" not in files
    assert "lora" not in json.loads(files["fsdp/config.json"])


def test_targets_are_in_the_order_of_the_layer_whatever_the_spec_lists() -> None:
    files = files_of(changed(SPEC, {"job.lora.targets": ["down_proj", "v_proj", "q_proj"]}))
    targets = json.loads(files["fsdp/config.json"])["lora"]["targets"]
    assert targets == ["q_proj", "v_proj", "down_proj"]


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"job.kind": "pretrain"}, "X31", "trains all weights", "job.kind: finetune"),
    ({"job.lora.rank": 1024}, "X31", "not smaller than v_proj", "job.lora.rank: 64"),
    ({"model": "mixtral-8x7b"}, "X31", "all linear layers", "job.lora.targets: attention"),
    (
        {"model": "mixtral-8x7b", "job.lora.targets": ["up_proj"]},
        "X31",
        "mixtral-8x7b has no up_proj",
        "",
    ),
    ({"model": "deepseek-v2-lite", "job.lora.targets": "attention"}, "X31", "has no q_proj", ""),
    ({"job.lora.targets": []}, "X31", "selects no projection", "job.lora.targets: all-linear"),
    ({"layout.tp": 2}, "E11", "does not split LoRA adapters", "layout.tp: 1"),
    ({"versions.fsdp": "2.7"}, "E11", "LoRA needs fsdp 2.8", 'versions.fsdp: "2.8"'),
    (
        {**ACCELERATE, "versions.accelerate": "1.12"},
        "E11",
        "LoRA needs accelerate 1.13",
        'versions.accelerate: "1.13"',
    ),
    (
        {"launch.program": "decoder"},
        "E10",
        "only with transformers",
        "launch.program: transformers",
    ),
    (
        {**ACCELERATE, "launch.program": "trainer"},
        "E10",
        "only with transformers",
        "launch.program: transformers",
    ),
]


@pytest.mark.parametrize(("settings", "code", "message", "fix"), REFUSED)
def test_adapters_that_cannot_be_trained_are_refused(
    settings: dict[str, Any], code: str, message: str, fix: str
) -> None:
    found = [one for one in parc.check(changed(SPEC, settings)) if one.severity == "error"]
    assert [one.code for one in found] == [f"PARC-{code}"]
    assert message in found[0].finding.message
    assert found[0].finding.fix == fix


OTHERS = [
    one.name
    for one in built_in_backends("framework")
    if "lora" not in framework(one.name).strategies
]


@pytest.mark.parametrize("name", OTHERS)
def test_other_frameworks_refuse_adapters_and_name_those_that_train_them(name: str) -> None:
    found = parc.check(changed(SPEC, {"emit": [name, "torchrun"]}))
    (error,) = (one for one in found if one.code == "PARC-E08")
    assert f"{name} does not support LoRA fine-tuning" in error.finding.message
    assert "frameworks that support this: fsdp, accelerate" in error.finding.help
    assert error.finding.fix == "emit: [fsdp, torchrun]"


def test_adapters_of_attention_are_planned_beside_frozen_experts() -> None:
    spec = changed(SPEC, {"model": "mixtral-8x7b", "job.lora.targets": "attention"})
    assert json.loads(files_of(spec)["fsdp/config.json"])["lora"]["targets"] == MOST[:4]
