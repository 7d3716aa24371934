"""Ties, bands and placements decide between layouts that are about as fast."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import HIGH, memory_of_all_stages, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, LayoutVariant, StepTime
from parc.compiler.placement.score_placement import is_placement_relevant, placement_scorer
from parc.compiler.search.enumerate_layouts import LayoutPoint
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.rank_layouts import KEPT, LayoutRanking
from parc.compiler.search.search_layouts import search_layouts
from parc.compiler.search.survivors import ROUNDING
from parc.compiler.spec.job_spec import DEFAULT_TIE
from tests.search.search_reference import cost_model_of


def _spec(**cluster: Any) -> dict[str, Any]:
    return {
        "parc": 1,
        "name": "ranked",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 4, **cluster},
        "job": {"sequence_length": 4096, "global_batch": 128},
    }


@pytest.fixture(name="cost_model", scope="module")
def _cost_model() -> CostModel:
    return cost_model_of(_spec())


@pytest.fixture(name="sieve", scope="module")
def _sieve(cost_model: CostModel) -> LayoutFilter:
    rules = all_rules(cost_model.problem, cost_model.framework)
    space = LayoutSpace.for_variant(cost_model.problem, cost_model.framework, LayoutVariant())
    sieve = LayoutFilter(cost_model, rules, memory_limit_bytes(cost_model), space)
    sieve.filter_all_layouts()
    return sieve


class _Placed:
    """Layouts of a filter whose placement adds given seconds."""

    def __init__(self, sieve: LayoutFilter, added: Callable[[Layout], float], share: float) -> None:
        """``share`` is the lower bound of the added seconds, as a fraction of them."""
        self.build_layout, self.step_seconds = sieve.build_layout, sieve.step_seconds
        self._added, self._share = added, share
        self.tried: list[Layout] = []

    def least_placement_seconds(self, point: LayoutPoint) -> float:
        return self._share * self._added(self.build_layout(point))

    def placement_seconds(self, layout: Layout, point: LayoutPoint, time: StepTime) -> float:
        assert layout == self.build_layout(point)
        assert time.placement_seconds == 0.0
        self.tried.append(layout)
        return self._added(layout)


def _ranking(
    sieve: LayoutFilter,
    cost_model: CostModel,
    added: Callable[[Layout], float] = lambda _: 0.0,
    share: float = 0.0,
) -> tuple[LayoutRanking, _Placed]:
    placed = _Placed(sieve, added, share)
    return LayoutRanking(cost_model, {0: placed}, sieve.space.levels), placed


def test_a_leader_is_a_tie_of_the_fastest(cost_model: CostModel, sieve: LayoutFilter) -> None:
    ranked = _ranking(sieve, cost_model)[0].best_layouts(sieve.survivors)
    fastest = min(row.seconds for row in ranked)
    assert len(ranked) == KEPT
    assert ranked[0].seconds <= fastest * (1 + DEFAULT_TIE)
    rest = [row.seconds for row in ranked[1:]]
    assert rest == sorted(rest)


def _high_end(cost_model: CostModel, layout: Layout) -> float:
    return max(stage.high_bytes for stage in memory_of_all_stages(cost_model, layout))


def test_a_pick_fits_with_the_whole_interval_of_its_memory(cost_model: CostModel) -> None:
    found = search_layouts(cost_model, Sink())
    assert found is not None
    limit = memory_limit_bytes(cost_model)
    assert all(_high_end(cost_model, one.layout) <= limit for one in found.ranked)


def test_where_no_interval_fits_a_layout_fits_with_its_expected_value() -> None:
    pins = {"tp": 2, "pp": 2, "cp": 1, "micro_batch": 2, "recompute": "none", "count_loss": False}
    cost_model = cost_model_of(_spec() | {"layout": pins})
    found = search_layouts(cost_model, Sink())
    assert found is not None
    layout = found.ranked[0].layout
    expected, high = found.ranked[0].peak_bytes, _high_end(cost_model, layout)
    assert 1.02 * expected < high
    gpu_bytes = cost_model.problem.cluster.gpu.memory_bytes
    goals = {"memory_headroom": 1 - 1.01 * expected / gpu_bytes}
    tight = search_layouts(cost_model_of(_spec() | {"layout": pins, "goals": goals}), Sink())
    assert tight is not None
    assert layout in [one.layout for one in tight.ranked]


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite"])
def test_the_high_end_of_the_fast_estimate_is_that_of_the_stages(model: str) -> None:
    cost_model = cost_model_of(_spec() | {"model": model})
    found = search_layouts(cost_model, Sink())
    assert found is not None
    for one in found.ranked:
        fast = peak_bytes(cost_model, one.layout, HIGH)
        assert fast == pytest.approx(_high_end(cost_model, one.layout), rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.9, 1.0])
def test_the_order_is_that_of_all_layouts_with_their_placements(
    cost_model: CostModel, sieve: LayoutFilter, share: float
) -> None:
    # The fastest layouts are placed worst, so that others are best.
    def added(layout: Layout) -> float:
        return 3.0 / layout.pp + layout.tp % 3

    ranking, placed = _ranking(sieve, cost_model, added, share)
    found = ranking.best_layouts(sieve.survivors)
    layouts = [sieve.build_layout(row.point) for row in sieve.survivors]
    times = [step_time(cost_model, one).total_seconds + added(one) for one in layouts]
    expected = sorted(times)[:KEPT]
    assert expected[0] > 1.1 * min(step_time(cost_model, one).total_seconds for one in layouts)
    assert found[0].score <= expected[0] * (1 + DEFAULT_TIE)
    assert sorted(row.score for row in found)[: KEPT - 1] == pytest.approx(expected[: KEPT - 1])
    assert all(row.exposed_seconds == added(row.layout) for row in found)
    # The better the lower bounds, the fewer layouts are placed.
    assert KEPT <= len(placed.tried) < len(layouts)
    if share == 1.0:
        most = expected[-1] * (1 + ROUNDING)
        assert len(placed.tried) <= sum(one <= most for one in times) + len(found)


def test_the_simplest_tie_with_placement_comes_first(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    plain = _ranking(sieve, cost_model)[0].best_layouts(sieve.survivors)
    slow = plain[0].layout

    def added(layout: Layout) -> float:
        return 1.0 if layout == slow else 0.0

    found = _ranking(sieve, cost_model, added)[0].best_layouts(sieve.survivors)
    assert found[0].layout != slow
    assert found[0].score <= min(row.score for row in found) * (1 + DEFAULT_TIE)


def test_no_placement_is_tried_of_what_is_slower_without_one(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    ranking, placed = _ranking(sieve, cost_model)
    ranking.best_layouts(sieve.survivors)
    assert len(placed.tried) <= KEPT + 2


def test_placements_are_tried_where_racks_share_uplinks() -> None:
    fabric = {"base": "infiniband-ndr", "oversubscription": 4.0}

    def is_relevant(**cluster: Any) -> bool:
        return is_placement_relevant(cost_model_of(_spec(**cluster)).problem.cluster)

    assert not is_relevant()
    assert not is_relevant(nodes_per_rack=2)
    assert not is_relevant(fabric=fabric)
    assert is_relevant(fabric=fabric, nodes_per_rack=2)
    cost_model = cost_model_of(_spec(fabric=fabric, nodes_per_rack=2))
    score = placement_scorer(cost_model)
    found = search_layouts(cost_model, Sink())
    assert found is not None
    for one in found.ranked:
        assert one.placed_seconds == pytest.approx(score(one.layout), rel=0.01, abs=1e-9)


@pytest.mark.parametrize("model", ["gpt3-175b", "mixtral-8x7b"])
def test_the_fast_time_and_memory_of_a_layout_are_those_of_its_full_estimate(model: str) -> None:
    cost_model = cost_model_of(_spec(nodes=16) | {"model": model})
    sieve = LayoutFilter(
        cost_model,
        all_rules(cost_model.problem, cost_model.framework),
        memory_limit_bytes(cost_model),
        LayoutSpace.for_variant(cost_model.problem, cost_model.framework, LayoutVariant()),
    )
    sieve.filter_all_layouts()
    for survivor in Random(1).sample(sieve.survivors, 40):
        layout = sieve.build_layout(survivor.point)
        bound = step_time(cost_model, layout, is_bound=True).total_seconds
        seconds = sieve.step_seconds(survivor.point)
        assert seconds == pytest.approx(bound, rel=ROUNDING)
        assert survivor.is_lower_bound
        assert survivor.seconds <= seconds
        best = sieve.best_split_seconds(survivor.point, seconds)
        assert survivor.seconds <= best <= seconds
        assert bound <= step_time(cost_model, layout).total_seconds * (1 + ROUNDING)
        assert peak_bytes(cost_model, layout) <= memory_limit_bytes(cost_model)
