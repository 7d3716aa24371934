"""Hints to train in 8 bit: conditions, and the gain that they promise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiled import Spec, changed, findings_of, plan_of

SPEC: Spec = {
    "parc": 1,
    "name": "advice",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "cp": 1, "pp": 1, "micro_batch": 1, "cuda_graphs": False},
}


@pytest.mark.parametrize(
    ("node", "tp", "precisions"), [("dgx-h100", 2, ["fp8"]), ("dgx-b200", 1, ["fp8", "mxfp8"])]
)
def test_the_hint_gives_the_step_time_of_the_fastest_precision(
    node: str, tp: int, precisions: list[str]
) -> None:
    spec = changed(SPEC, {"cluster.node": node, "layout.tp": tp})
    (found,) = findings_of(spec, "PARC-G12")
    plans = {one: plan_of(changed(spec, {"job.precision": one})) for one in precisions}
    seconds = {one: plan.estimate.time.total_seconds for one, plan in plans.items()}
    best = min(seconds, key=lambda one: seconds[one])
    assert found.fix == f"job.precision: {best}"
    assert f"{seconds[best]:.3g} s per step instead of" in found.label


@pytest.mark.parametrize(
    "changes",
    [
        {"job.precision": "bf16"},
        {"cluster.node": "dgx-a100"},
        {"emit": ["fsdp"], "layout": {"tp": 1, "micro_batch": 1}},
    ],
)
def test_no_hint_for_a_chosen_precision_or_without_units_for_8_bit(changes: Any) -> None:
    assert findings_of(changed(SPEC, changes), "PARC-G12") == []
