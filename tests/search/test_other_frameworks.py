"""Findings on unsupported settings name the frameworks whose rules accept the setting."""

from __future__ import annotations

import pytest

from parc.backends.registry import framework, installed_backends
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Plan
from parc.compiler.search.other_frameworks import _supporting, name_other_frameworks
from tests.cost.memory.test_static_memory import plan_of


def planned(**job: object) -> Plan:
    return plan_of(
        model="llama-3-8b",
        cluster={"node": "dgx-h100", "nodes": 2},
        job={"sequence_length": 4096, "global_batch": 64, **job},
        layout={"tp": 2, "pp": 2, "vpp": 1},
    )


def test_frameworks_with_a_pipeline_are_those_that_find_a_split() -> None:
    plan = planned()
    found = set(_supporting(plan.problem, plan.layout, "layout.pp"))
    declared = {
        one.name
        for one in installed_backends("framework")
        if {"1f1b"} & set(framework(one.name).strategies) and one.name != "megatron"
    }
    assert found == declared
    assert "megatron-bridge" in found


@pytest.mark.parametrize(
    ("path", "job", "expected"),
    [
        ("job.tp_overlap", {"tp_overlap": True}, {"megatron-bridge"}),
        ("job.precision", {"precision": "fp16"}, {"megatron-bridge", "deepspeed"}),
    ],
)
def test_a_setting_is_supported_if_no_rule_rejects_it(
    path: str, job: dict[str, object], expected: set[str]
) -> None:
    plan = planned(**job)
    assert set(_supporting(plan.problem, plan.layout, path)) == expected


def test_only_findings_on_unsupported_settings_name_frameworks() -> None:
    plan, finding = planned(), Finding("no pipeline", help="valid: pp 1")
    named = name_other_frameworks(finding, ("E11", "layout.pp"), plan.problem, plan.layout)
    assert named.help.startswith("valid: pp 1; frameworks that support this: megatron-bridge")
    at = ("D01", "layout.tp")
    assert name_other_frameworks(finding, at, plan.problem, plan.layout) == finding
