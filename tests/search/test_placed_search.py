"""The search finds the best layout if the placement decides, so that no pin is faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.ir import Layout, Search
from parc.compiler.placement.place_ranks import place_ranks
from parc.compiler.placement.score_placement import PlacementOfSizes, add_placement_seconds
from parc.compiler.search.search_layouts import search_layouts
from tests.compiled import changed
from tests.samples import slow_cases
from tests.search.search_reference import cost_model_of


def _spec(model: str, batch: int, cluster: dict[str, Any], **job: Any) -> dict[str, Any]:
    return {
        "parc": 1,
        "name": "placed",
        "model": model,
        "cluster": cluster,
        "job": {"sequence_length": 4096, "global_batch": batch, **job},
    }


def _racks(*sizes: int) -> list[dict[str, str]]:
    return [{"name": f"r{i}", "nodes": f"r{i}n[1-{size}]"} for i, size in enumerate(sizes)]


def _thin(oversubscription: float, base: str = "infiniband-ndr") -> dict[str, Any]:
    return {"base": base, "oversubscription": oversubscription}


ONE_NIC = {"base": "hgx-h100", "nics": 1}
CASES = {
    "experts, NVL72": _spec(
        "deepseek-v3",
        3072,
        {"node": "gb200-nvl72", "nodes": 72, "nodes_per_rack": 18},
        precision="mxfp8",
    ),
    "experts, NVL72 with unequal racks": _spec(
        "mixtral-8x22b", 1024, {"node": "gb200-nvl72", "racks": _racks(18, 17, 13)}
    ),
    "dense, NVL72 with unequal racks": _spec(
        "llama-3-70b", 1024, {"node": "gb200-nvl72", "racks": _racks(18, 17, 13)}
    ),
    "experts, odd number of NVL72 hosts": _spec(
        "qwen3-30b-a3b", 1700, {"node": "gb200-nvl72", "racks": _racks(17, 8)}
    ),
    "dense, oversubscribed": _spec(
        "llama-3-70b", 768, {"node": "dgx-h100", "racks": _racks(9, 8, 7), "fabric": _thin(4.0)}
    ),
    "experts, oversubscribed": _spec(
        "mixtral-8x7b", 768, {"node": "dgx-h100", "racks": _racks(9, 8, 7), "fabric": _thin(8.0)}
    ),
    # Stages of 6 ranks: the first is inside a host, the second is not.
    "experts, stages that split hosts": _spec(
        "mixtral-8x7b", 48, {"node": "azure-nd-a100-v4", "nodes": 3}
    )
    | {"layout": {"pp": 4, "zero_stage": 2}},
    # Stages of 4 ranks: every second hop of the pipeline leaves the host.
    "dense, half a host per stage": _spec(
        "codellama-34b", 32, {"node": "aws-p6-b200", "nodes": 4}, sequence_length=512
    )
    | {"layout": {"cp": 1}},
    "dense, hosts of six": _spec(
        "llama-3-8b", 60, {"node": {"base": "dgx-h100", "gpus_per_node": 6}, "nodes": 5}
    ),
    "dense, one NIC": _spec(
        "llama-3-8b", 384, {"node": ONE_NIC, "racks": _racks(5, 7), "fabric": _thin(4.0)}
    ),
    "experts, one NIC": _spec(
        "mixtral-8x7b", 512, {"node": ONE_NIC, "racks": _racks(5, 3), "fabric": _thin(4.0)}
    ),
}
SMALL = {
    *("dense, oversubscribed", "dense, one NIC", "experts, one NIC"),
    *("experts, stages that split hosts", "dense, hosts of six"),
    "dense, half a host per stage",
}
AXES = ("tp", "cp", "pp", "ep", "micro_batch")


def _searched(spec: dict[str, Any]) -> Search | None:
    return search_layouts(cost_model_of(spec), Sink())


def _pins(layouts: list[Layout]) -> Iterator[tuple[str, int]]:
    """Yield the parallel sizes and micro-batch sizes of ``layouts``, and half of each."""
    for axis in AXES:
        sizes = {getattr(one, axis) for one in layouts}
        # Smaller sizes can be the ones that fit into a rack.
        sizes |= {size // 2 for size in sizes if size % 2 == 0}
        if len(sizes) > 1:
            yield from ((axis, size) for size in sorted(sizes))


@pytest.mark.parametrize("case", slow_cases(CASES, lambda case: case not in SMALL))
def test_no_fixed_size_makes_the_step_more_than_one_percent_shorter(case: str) -> None:
    free = _searched(CASES[case])
    assert free is not None
    pins = list(_pins([one.layout for one in free.ranked]))
    assert len(pins) >= 4
    least = 0.99 * free.ranked[0].step_seconds
    for axis, size in pins:
        pinned = _searched(changed(CASES[case], {f"layout.{axis}": size}))
        assert pinned is None or pinned.ranked[0].step_seconds >= least, (axis, size)


@pytest.mark.parametrize("case", slow_cases(CASES, lambda case: case not in SMALL))
def test_the_seconds_of_a_candidate_are_about_those_of_its_own_placement(case: str) -> None:
    cost_model = cost_model_of(CASES[case])
    found = search_layouts(cost_model, Sink())
    assert found is not None
    for one in found.ranked[:5]:
        estimate = estimate_layout(cost_model, one.layout)
        placement = place_ranks(cost_model.problem, cost_model.framework, one.layout, estimate)
        placed = add_placement_seconds(cost_model, one.layout, estimate, placement)
        bound = PlacementOfSizes(cost_model, one.layout).least_added_seconds
        added = placed.time.placement_seconds
        assert bound <= added * (1 + 1e-9)
        assert one.placed_seconds == pytest.approx(added, abs=0.01 * one.step_seconds)


def test_the_bound_of_groups_that_no_nvlink_domain_can_hold_is_close_to_their_time() -> None:
    # Domains of 18 hosts hold four groups of 4 hosts each, so that 2 of 18 groups are cut.
    pins = {"layout": {"tp": 2, "pp": 9, "ep": 16}}
    cost_model = cost_model_of(changed(CASES["experts, NVL72"], pins))
    found = search_layouts(cost_model, Sink())
    assert found is not None
    best = found.ranked[0]
    assert best.placed_seconds > 0.4 * best.step_seconds
    least = PlacementOfSizes(cost_model, best.layout).least_added_seconds
    assert 0.95 * best.placed_seconds < least <= best.placed_seconds
