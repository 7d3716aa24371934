"""Findings name the setting that is the mistake, and never a condition that holds."""

from __future__ import annotations

from typing import Any

import pytest

import parc
from tests.compiled import Spec, changed

BASE: Spec = {
    "parc": 1,
    "name": "causes",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 8192, "global_batch": 256},
}


@pytest.mark.parametrize(
    ("settings", "code", "message", "fix"),
    [
        (
            {"layout.dp": 5},
            "B01",
            "32 GPUs are not divisible by dp 5",
            "layout.dp: 4",
        ),
        (
            {"layout.dp": 3, "layout.micro_batch": 1, "job.global_batch": 250},
            "B01",
            "32 GPUs are not divisible by dp 3",
            "layout.dp: 2",
        ),
        (
            {"layout.pp": 2, "layout.first_stage_layers": 40},
            "P04",
            "the first stage would have 40 layers, but the model has 32",
            "layout.first_stage_layers: 31",
        ),
        (
            {"layout.tp": 8, "goals.limits": {"tp": {"max": 4}}},
            "G01",
            "goals.limits.tp excludes tp 8",
            "remove goals.limits.tp",
        ),
        (
            {"job.warmup_steps": "150%"},
            "X02",
            "job.warmup_steps is 150%, which is above the maximum",
            "",
        ),
    ],
)
def test_the_message_names_the_cause(
    settings: dict[str, Any], code: str, message: str, fix: str
) -> None:
    (found,) = (one for one in parc.check(changed(BASE, settings)) if one.severity == "error")
    assert found.code == f"PARC-{code}"
    assert message in found.finding.message
    assert found.finding.fix == fix


@pytest.mark.parametrize(
    ("settings", "code", "help"),
    [
        ({"job.kind": "lora"}, "X09", "for LoRA, set job.kind to finetune, and job.lora.rank"),
        ({"job.lora": {"rank": 8}}, "X31", "set job.kind to finetune, and job.load_dir"),
        ({"job.lora": {"adapters": {}}}, "X01", "with job.lora.rank and targets"),
    ],
)
def test_a_mistake_about_lora_training_names_the_field_to_set(
    settings: dict[str, Any], code: str, help: str
) -> None:
    found = [one for one in parc.check(changed(BASE, settings)) if one.severity == "error"]
    assert any(one.code == f"PARC-{code}" and help in one.finding.help for one in found)
