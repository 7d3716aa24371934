"""Hints at another dispatcher: when they are given, what they promise, who is left in peace."""

from __future__ import annotations

from typing import Any

import pytest

import parc

LAYOUT = {"tp": 1, "cp": 1, "pp": 1, "ep": 32, "etp": 1, "micro_batch": 1}


def spec(model: str = "qwen3-30b-a3b", ep: int = 32, **job: Any) -> dict[str, Any]:
    """32 H100 in four hosts."""
    return {
        "parc": 1,
        "name": "advice",
        "model": model,
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 4096, "global_batch": 256, **job},
        "layout": {**LAYOUT, "ep": ep},
    }


def hints(document: dict[str, Any]) -> list[str]:
    """What M16 says of it."""
    return [found.finding.label for found in parc.check(document) if found.code == "PARC-M16"]


def test_the_hint_promises_what_the_other_dispatcher_then_takes() -> None:
    (label,) = hints(spec())
    now, then = (parc.estimate(spec(**job)) for job in ({}, {"moe_dispatcher": "hybridep"}))
    assert f"{then.time.total_seconds:.3g} s" in label
    assert f"{now.time.total_seconds:.3g} s" in label
    assert then.time.total_seconds < 0.95 * now.time.total_seconds


@pytest.mark.parametrize("name", ["alltoall", "deepep", "hybridep"])
def test_who_names_a_dispatcher_is_left_in_peace(name: str) -> None:
    assert hints(spec(moe_dispatcher=name)) == []


def test_nothing_is_said_where_nothing_is_dispatched() -> None:
    assert hints(spec(ep=1)) == []


def test_a_framework_without_the_libraries_is_not_pointed_at_them() -> None:
    document = spec(ep=8)
    document["emit"] = ["deepspeed"]
    assert hints(document) == []


def test_a_gain_below_the_threshold_is_not_worth_the_trouble() -> None:
    # inside one host NVLink carries every copy
    assert hints(spec(ep=2)) == []
