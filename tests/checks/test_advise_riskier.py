"""Hints at faster layouts whose memory is uncertain."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

import parc
from parc.compiler.checks.check_memory import describe_recompute
from parc.compiler.evaluate.layout_fields import format_sizes
from tests.compiled import changed, findings_of, plan_of

TIGHT: dict[str, Any] = {
    "parc": 1,
    "name": "tight",
    "model": "llama-2-13b",
    "cluster": {"node": "dgx-a100", "nodes": 8},
    "job": {"sequence_length": 2048, "global_batch": 512},
    "layout": {"pp": 1, "tp": 2, "zero_stage": 1},
    "goals": {"memory_headroom": 0.14},
    "emit": ["deepspeed"],
}

ONE_HOST = {"node": "hgx-h100", "nodes": 1}
FREE: dict[str, Any] = {
    **{"model": "qwen3-30b-a3b", "layout": {}, "goals": {}},
    **{"job.sequence_length": 4096, "job.global_batch": 64},
}


def codes(spec: dict[str, Any]) -> set[str]:
    """Return the codes of all findings on ``spec``."""
    return {found.code for found in parc.check(spec)}


def test_the_headroom_that_the_hint_names_allows_the_faster_layout() -> None:
    (finding,) = findings_of(TIGHT, "PARC-G05")
    promised = re.search(r"is (\d+) % faster", finding.message)
    headroom = re.search(r"memory_headroom (0[.\d]+)", finding.help)
    assert promised
    assert headroom
    now = parc.estimate(TIGHT)
    then = parc.estimate(changed(TIGHT, {"goals.memory_headroom": float(headroom[1])}))
    gain = 1 - then.time.total_seconds / now.time.total_seconds
    assert 100 * gain >= int(promised[1]) - 1
    assert then.high_bytes <= then.limit_bytes
    assert now.high_bytes <= now.limit_bytes < then.high_bytes


def test_the_riskier_layout_itself_gets_the_warning_about_memory() -> None:
    pinned = changed(TIGHT, {"layout.micro_batch": 1, "layout.recompute": "none"})
    assert "PARC-G02" in codes(pinned)
    assert "PARC-G05" not in codes(pinned)


@pytest.mark.parametrize(
    "edits",
    [
        FREE | {"emit": ["megatron"], "cluster": {"node": "hgx-h100", "nodes": 4}},
        {
            **FREE,
            **{"model": "qwen3-8b", "emit": ["fsdp"]},
            "cluster": ONE_HOST,
        },
        {},
        # Hardly any layout fits, so the advice compares all meshes.
        FREE | {"emit": ["megatron"], "cluster": ONE_HOST, "job.global_batch": 24},
    ],
    ids=["megatron", "fsdp", "deepspeed", "another mesh"],
)
def test_the_fields_that_the_hint_names_give_the_promised_step(edits: dict[str, Any]) -> None:
    spec = changed(TIGHT, edits)
    (finding,) = findings_of(spec, "PARC-G05")
    promised = re.search(r"(tp .+): ([\d.]+) s instead of", finding.label)
    fields = re.search(r"layout: (\{.*?\})(;|$)", finding.help)
    assert promised
    assert fields
    plan = parc.compile(changed(spec, {"layout": YAML(typ="safe").load(fields[1])}))
    # The search may find better stages or CUDA graphs for the same layout.
    assert plan.estimate.time.total_seconds <= 1.005 * float(promised[2])
    recompute = describe_recompute(plan.layout.recompute)
    sizes = format_sizes(plan.layout)
    assert promised[1] == f"{sizes}, micro-batch {plan.layout.micro_batch}, {recompute}"


def test_if_memory_is_scarce_another_mesh_is_suggested() -> None:
    spec = changed(
        TIGHT, FREE | {"emit": ["megatron"], "cluster": ONE_HOST, "job.global_batch": 24}
    )
    (finding,) = findings_of(spec, "PARC-G05")
    assert format_sizes(plan_of(spec).layout) not in finding.label


def test_a_plan_with_ample_memory_gets_no_hint() -> None:
    assert "PARC-G05" not in codes(changed(TIGHT, {"model": "llama-3-8b"}))


def test_the_warning_names_a_layout_of_last_resort_that_is_slower_and_safe() -> None:
    spec = {
        **{"parc": 1, "name": "tight", "model": "qwen3.5-397b-a17b", "emit": ["deepspeed"]},
        "cluster": {"node": "dgx-b300", "nodes": 4},
        "job": {"sequence_length": 512, "global_batch": 512},
        "layout": {"micro_batch": 1},
    }
    (finding,) = findings_of(spec, "PARC-G02")
    promised = re.search(r"optimizer on cpu needs at most ([\d.]+) GiB", finding.help)
    fields = re.search(r"set these fields: layout: (\{.*\})$", finding.help)
    assert promised
    assert fields
    safer = parc.compile(changed(spec, {"layout": YAML(typ="safe").load(fields[1])}))
    assert safer.estimate.high_bytes <= safer.estimate.limit_bytes
    assert safer.estimate.high_bytes / 2**30 == pytest.approx(float(promised[1]), abs=0.06)
