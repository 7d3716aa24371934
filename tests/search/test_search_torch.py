"""The search against the same search done plainly, for PyTorch's own frameworks."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import peak_bytes
from parc.compiler.diagnostics import Sink
from parc.compiler.search.search_layouts import search_layouts
from tests.search.search_reference import (
    cost_model_of,
    search_without_placement,
    sift,
    split_rows,
)

PINS: dict[str, tuple[dict[str, Any], ...]] = {
    "fsdp": ({}, {"tp": 2}, {"zero_stage": 0}, {"zero_stage": 2}, {"dp_shard": 4}),
    "torchtitan": (
        {},
        {"pp": 4, "schedule": "zb-v"},
        {"pp": 2, "schedule": "gpipe"},
        {"pp": 4, "schedule": "dualpipe-v", "recompute": "full"},
        {"pp": 2, "schedule": "zb-h1"},
        {"cp": 2},
        {"dp_shard": 4, "tp": 2},
    ),
    "accelerate": ({}, {"zero_stage": 2}, {"cp": 4, "cp_comm": "p2p"}),
}
MODELS = {
    "fsdp": ("llama-3-8b", "llama-2-13b"),
    "torchtitan": ("llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite"),
    "accelerate": ("llama-3-8b",),
}
CASES = [(name, number) for name, pins in PINS.items() for number in range(len(pins))]


def _case(framework: str, number: int) -> dict[str, Any]:
    """A spec, the same for the same framework and number."""
    draw = Random(f"{framework} {number}")
    models = MODELS[framework]
    job = {"sequence_length": 4096, "global_batch": draw.choice((48, 64, 96, 128))}
    if framework == "accelerate":
        job["gradient_precision"] = "bf16"
    return {
        "parc": 1,
        "name": "case",
        "model": models[number % len(models)],
        "cluster": {"node": draw.choice(("dgx-h100", "gb200-nvl72")), "nodes": draw.choice((2, 4))},
        "job": job,
        "layout": PINS[framework][number],
        "launch": {"program": "train.py"} if framework == "accelerate" else {},
        "emit": [framework],
    }


LARGE = (("torchtitan", 4), ("torchtitan", 5))
"""Cases whose plain search takes more than half a CPU second."""


@pytest.mark.parametrize(
    ("framework", "number"),
    [pytest.param(*one, marks=pytest.mark.conformance) if one in LARGE else one for one in CASES],
)
def test_the_search_equals_a_plain_one(framework: str, number: int) -> None:
    cost_model = cost_model_of(_case(framework, number))
    found = search_without_placement(cost_model)
    enumerated, dropped, rows = sift(cost_model)
    assert rows
    assert found is not None
    assert found.enumerated == enumerated == len(rows) + sum(dropped.values())
    assert dict(found.dropped) == dropped
    ranked = [(one.step_seconds, one.peak_bytes, one.layout) for one in found.ranked]
    rows += split_rows(cost_model, rows)
    assert set(ranked) <= set(rows)
    best = sorted(row[0] for row in rows)
    # The simplest of those within ``goals.tie`` leads; of the others the fastest are kept.
    assert ranked[0][0] <= best[0] * (1 + cost_model.problem.goals.tie)
    assert sorted(row[0] for row in ranked)[:19] == best[:19]


def test_a_schedule_that_holds_less_is_seen_by_the_search() -> None:
    """ZB-V holds 2 p half-stages on every rank, GPipe all micro-batches."""
    spec = _case("torchtitan", 0) | {"model": "llama-3-8b"}
    spec["job"] = {"sequence_length": 4096, "global_batch": 256}
    peaks = {}
    for schedule, vpp in (("gpipe", 1), ("1f1b", 1), ("zb-v", 2)):
        pins = {"pp": 4, "tp": 1, "vpp": vpp, "micro_batch": 1, "schedule": schedule}
        cost_model = cost_model_of(spec | {"layout": pins | {"recompute": "full"}})
        search = search_layouts(cost_model, Sink())
        assert search is not None
        peaks[schedule] = peak_bytes(cost_model, search.ranked[0].layout)
    assert peaks["gpipe"] > peaks["1f1b"]
