"""Fixed values that mean nothing in a layout are reported, or do not disturb the verification."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.ir import Plan
from parc.compiler.pipeline import emit_plan
from tests.compiled import planned

FRAMEWORKS = ("megatron", "megatron-bridge", "deepspeed", "fsdp", "torchtitan", "accelerate")
ALONE: tuple[dict[str, Any], ...] = (
    *({"cp": 1, "cp_comm": comm} for comm in ("p2p", "all_gather", "a2a", "a2a+p2p")),
    {"cp": 1, "cp_a2a": 4},
    *(
        {"pp": 1, "schedule": schedule}
        for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v")
    ),
    *(
        {"recompute": {"granularity": granularity, **others}}
        for granularity in ("none", "selective", "full")
        for others in ({}, {"layers": 2}, {"method": "block"}, {"modules": ["mlp"]})
    ),
)


CASES = [
    # Each layout runs with half of the frameworks in all runs, and with the others in conformance.
    pytest.param(
        framework,
        layout,
        id=f"{layout}-{framework}",
        marks=[pytest.mark.conformance] if (row + column) % 2 else [],
    )
    for row, layout in enumerate(ALONE)
    for column, framework in enumerate(FRAMEWORKS)
]


@pytest.mark.parametrize(("framework", "layout"), CASES)
def test_no_layout_contradicts_its_files(framework: str, layout: dict[str, Any]) -> None:
    plan, sink = planned(
        {
            **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": [framework]},
            "cluster": {"node": "dgx-h200", "nodes": 1},
            "job": {"sequence_length": 2048, "global_batch": 64},
            "layout": layout,
        }
    )
    if isinstance(plan, Plan):
        emit_plan(plan, sink)
    errors = [one for one in sink.diagnostics if one.severity == "error"]
    assert (plan is None) == bool(errors)
    assert not [one.finding.message for one in errors if one.code.startswith("PARC-A")]


def test_selective_recompute_without_modules_is_the_short_form() -> None:
    spec: dict[str, Any] = {
        **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": ["megatron"]},
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 2048, "global_batch": 64},
    }
    plans = [
        planned({**spec, "layout": {"recompute": value}})[0]
        for value in ("selective", {"granularity": "selective"})
    ]
    assert [one.layout.recompute.modules for one in plans if isinstance(one, Plan)] == [
        ("core_attn",),
        ("core_attn",),
    ]
