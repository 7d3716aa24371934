"""The other rank order of the framework is chosen if it saves more than 1 % of the step."""

from __future__ import annotations

from typing import Any

import parc
from parc.compiler.ir import Plan

DEFAULT, OTHER = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"


def compiled(global_batch: int, **pins: Any) -> Plan:
    """Compile for hosts with a slow NIC that have eight replicas of a stage or eight stages."""
    racks = [{"name": "r01", "nodes": "a[1-4]"}, {"name": "r02", "nodes": "b[1-4]"}]
    slow = {"base": "dgx-h100", "nics": 1, "nic_speed": 25, "nic_names": ["a"]}
    layout = {"tp": 1, "cp": 1, "pp": 8, "vpp": 1, "micro_batch": 1, **pins}
    return parc.compile(
        {
            "parc": 1,
            "name": "turn",
            "model": "llama-3-8b",
            "cluster": {"node": slow, "racks": racks},
            "job": {"sequence_length": 8192, "global_batch": global_batch},
            "layout": layout,
        }
    )


def names(of: Plan) -> list[str]:
    return [one.name for one in of.placement.alternatives]


def test_stages_share_a_host_if_hops_cost_more_than_gradients() -> None:
    made = compiled(8192)
    assert made.layout.order == made.placement.order == OTHER
    assert made.search.ranked[0].layout == made.layout
    assert f"order {DEFAULT}, stages across racks" in names(made)
    kept = compiled(8192, order=DEFAULT)
    assert made.estimate.time.total_seconds < 0.99 * kept.estimate.time.total_seconds


def test_the_default_order_is_kept_if_it_costs_no_more() -> None:
    made = compiled(256)
    assert made.layout.order == DEFAULT
    assert any(name.startswith(f"order {OTHER}, ") for name in names(made))


def test_a_pinned_order_is_not_compared_with_another() -> None:
    made = compiled(8192, order=DEFAULT)
    assert made.layout.order == DEFAULT
    assert not any(name.startswith("order ") for name in names(made))


def test_no_other_order_is_tried_if_hosts_have_a_single_replica_and_stage() -> None:
    made = compiled(64, tp=8)
    assert not any(name.startswith("order ") for name in names(made))
