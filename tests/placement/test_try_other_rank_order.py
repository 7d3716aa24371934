"""The framework's other rank order is taken where it wins by more than a hair."""

from __future__ import annotations

from typing import Any

import parc
from parc.compiler.ir import Plan

DEFAULT, TURNED = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"


def compiled(global_batch: int, **pins: Any) -> Plan:
    """One slow NIC a host, whose GPUs hold eight replicas of a stage or eight stages."""
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


def test_many_hops_go_into_the_host_where_gradients_are_few() -> None:
    made = compiled(8192)
    assert made.layout.order == made.placement.order == TURNED
    assert made.search.ranked[0].layout == made.layout
    assert f"order {DEFAULT}, stages across racks" in names(made)
    kept = compiled(8192, order=DEFAULT)
    assert made.estimate.time.total_seconds < 0.99 * kept.estimate.time.total_seconds


def test_the_default_stays_where_it_costs_no_more() -> None:
    made = compiled(256)
    assert made.layout.order == DEFAULT
    assert any(name.startswith(f"order {TURNED}, ") for name in names(made))


def test_a_pinned_order_is_not_weighed_against_another() -> None:
    made = compiled(8192, order=DEFAULT)
    assert made.layout.order == DEFAULT
    assert not any(name.startswith("order ") for name in names(made))


def test_whole_hosts_of_one_replica_are_turned_by_placement_alone() -> None:
    made = compiled(64, tp=8)
    assert not any(name.startswith("order ") for name in names(made))
