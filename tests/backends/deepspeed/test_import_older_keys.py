"""Import of DeepSpeed's deprecated keys, and fields that a config leaves open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.topology.reading import read


def imported(**keys: Any) -> tuple[dict[str, Any], str]:
    """Return (fragment, its text) of a config with ``keys``."""
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, **keys}
    text, sink = read("deepspeed-json", json.dumps(config, indent=1))
    assert not sink.failed()
    return dict(parse_table(text)), text


@pytest.mark.parametrize(
    ("zero", "offload"),
    [
        ({}, "none"),
        ({"offload_optimizer": {"device": "none"}}, "none"),
        ({"cpu_offload": False}, "none"),
        ({"cpu_offload": True}, {"optimizer": "cpu"}),
        ({"cpu_offload_param": True}, {"parameters": "cpu"}),
        ({"cpu_offload_params": True}, None),
        ({"offload_optimizer": {"device": "auto"}}, None),
        ({"cpu_offload": "auto"}, None),
    ],
)
def test_offload_is_none_only_if_no_key_turns_it_on(zero: dict[str, Any], offload: object) -> None:
    spec, _ = imported(zero_optimization={"stage": 3, **zero})
    assert spec["layout"].get("offload") == offload


def test_a_key_outside_of_its_section_is_reported_with_its_place() -> None:
    spec, text = imported(zero_optimization={"stage": 3}, offload_optimizer={"device": "cpu"})
    assert spec["layout"]["offload"] == "none"
    assert 'offload_optimizer.device: "cpu"' in text


@pytest.mark.parametrize(("switch", "stage"), [(True, 1), (False, 0)])
def test_the_switch_of_the_first_releases_is_a_stage(switch: bool, stage: int) -> None:
    assert imported(zero_optimization=switch)[0]["layout"]["zero_stage"] == stage


def test_a_size_that_another_program_sets_stays_open() -> None:
    assert "cp" not in imported(sequence_parallel_size="auto")[0]["layout"]
    assert imported()[0]["layout"]["cp"] == 1


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [("WarmupLR", 5e-5), ("WarmupDecayLR", 5e-5), ("WarmupCosineLR", 1e-5)],
)
def test_the_rate_after_the_warm_up_is_imported(schedule: str, rate: float) -> None:
    spec, text = imported(
        optimizer={"type": "AdamW", "params": {"lr": 1e-5}},
        scheduler={"type": schedule, "params": {"warmup_max_lr": 5e-5, "total_num_steps": 10}},
    )
    assert spec["job"]["learning_rate"] == rate
    replaced = "optimizer.params.lr: 1e-05" if rate == 5e-5 else "warmup_max_lr: 5e-05"
    assert f"{replaced}" in text


def linted(**keys: Any) -> list[tuple[str, str]]:
    """Return (code, line of the file) of each finding that lint reports in a config."""
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, **keys}
    text = json.dumps(config, indent=1)
    sink, _ = lint_text(text, "ds.json", LintOptions())
    lines = text.splitlines()
    return [
        (one.code.removeprefix("PARC-"), lines[one.span.line - 1].strip().partition(":")[0])
        for one in sink.diagnostics
        if one.span is not None
    ]


def test_lint_reports_deprecated_and_misplaced_keys() -> None:
    assert linted(zero_optimization={"stage": 2, "cpu_offload": True}) == [("X30", '"cpu_offload"')]
    assert linted(zero_optimization={"stage": 2, "cpu_offload": False}) == []
    misplaced = linted(zero_optimization={"stage": 3}, offload_param={"device": "cpu"})
    assert misplaced == [("X01", '"offload_param"')]


@pytest.mark.parametrize(
    ("schedule", "rate", "found"),
    [("WarmupLR", 5e-5, ["X30"]), ("WarmupLR", 1e-5, []), ("WarmupLR", "auto", [])],
)
def test_lint_compares_the_rates_of_optimizer_and_schedule(
    schedule: str, rate: object, found: list[str]
) -> None:
    findings = linted(
        optimizer={"type": "AdamW", "params": {"lr": 1e-5}},
        scheduler={"type": schedule, "params": {"warmup_max_lr": rate}},
    )
    assert findings == [(code, '"lr"') for code in found]


@pytest.mark.parametrize("value", [False, True, "cpu"])
def test_import_and_lint_reject_an_offload_setting_that_is_no_section(value: object) -> None:
    zero = {"stage": 3, "offload_param": value}
    assert linted(zero_optimization=zero) == [("F03", '"offload_param"')]
    config = json.dumps({"train_batch_size": 8, "zero_optimization": zero})
    _, sink = read("deepspeed-json", config)
    (error,) = (one for one in sink.diagnostics if one.code == "PARC-I02")
    assert error.finding.help == "correct the value, or remove the key"
