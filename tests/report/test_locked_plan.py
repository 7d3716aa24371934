"""Tests of the reader of locked plans."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from parc.compiler.ir import Layout, Offload, Recompute
from parc.compiler.ir.serialize import as_json, from_json
from parc.compiler.report.json.locked_plan import LockUnreadable, locked_plan
from tests.placement.placement_plans import layout

SOME = replace(
    layout(tp=8, pp=4, vpp=2, dp=2),
    recompute=Recompute.selective(("core_attn", "mlp")),
    offload=Offload("cpu", "nvme", "/scratch"),
)


def text(**changes: object) -> str:
    decisions = {
        "layout": as_json(SOME),
        "order": SOME.order,
        "hosts": [f"n{number}" for number in range(8)],
        "ranks_per_node": 8,
        **changes,
    }
    return json.dumps({"decisions": decisions})


def test_a_layout_survives_a_round_trip() -> None:
    assert from_json(Layout, json.loads(json.dumps(as_json(SOME)))) == SOME
    found = locked_plan(text(unavailable=["n9"]))
    assert (found.layout, found.unavailable) == (SOME, ("n9",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": {}}, "Layout: "),
        ({"layout": {**as_json(SOME), "tp": "8"}}, "'8' is not of type int"),
        ({"layout": {**as_json(SOME), "tp": True}}, "True is not of type int"),
        ({"layout": {**as_json(SOME), "color": 1}}, "Layout has no field color"),
        ({"layout": {**as_json(SOME), "schedule": "2f2b"}}, "'2f2b' is not one of gpipe"),
        ({"layout": []}, r"\[\] is not of type Layout"),
        ({"hosts": "n1"}, "'n1' is not a list"),
        ({"hosts": ["n1"]}, "hosts x ranks per host = 1 x 8 = 8, but the layout has 64 ranks"),
        ({"ranks_per_node": 0}, "8 x 0 = 0, but the layout has 64 ranks"),
    ],
)
def test_a_lock_without_a_plan_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LockUnreadable, match=message):
        locked_plan(text(**changes))
