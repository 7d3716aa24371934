"""Ties, bands and placements decide between layouts that are about as fast."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import HIGH, memory_of_all_stages, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, LayoutVariant
from parc.compiler.placement.score_placement import placement_scorer
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.rank_layouts import KEPT, RESCORED, LayoutRanking
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


def _ranking(sieve: LayoutFilter, cost_model: CostModel) -> LayoutRanking:
    return LayoutRanking(cost_model, {0: sieve}, sieve.space.levels)


def test_a_leader_is_a_tie_of_the_fastest(cost_model: CostModel, sieve: LayoutFilter) -> None:
    ranked = _ranking(sieve, cost_model).best_layouts(sieve.survivors, None)
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


def test_what_a_placement_exposes_moves_a_layout_back(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, cost_model)
    plain = ranking.best_layouts(sieve.survivors, None)
    slow = plain[0].layout

    def exposed(layout: Layout) -> float:
        return 1.0 if layout == slow else 0.0

    placed = ranking.best_layouts(sieve.survivors, exposed)
    assert placed[0].layout != slow
    assert {row.layout for row in placed} <= {row.layout for row in plain}
    assert all(row.seconds <= plain[-1].seconds for row in placed)


def test_a_layout_that_was_not_placed_has_the_seconds_of_its_parallel_sizes(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    tried: set[Layout] = set()

    def exposed(layout: Layout) -> float:
        tried.add(layout)
        return 1.0 * layout.pp + layout.tp

    rows = _ranking(sieve, cost_model).best_layouts(sieve.survivors, exposed)
    assert len({row.key for row in rows}) == len(rows)
    sizes = {(one.tp, one.pp) for one in tried}
    rest = [row for row in rows if row.layout not in tried]
    same = [row for row in rest if (row.layout.tp, row.layout.pp) in sizes]
    assert same
    assert all(row.exposed_seconds == exposed(row.layout) for row in same)
    assert all(row.score >= rows[0].score for row in same)


def test_where_all_leaders_are_placed_badly_other_degrees_are_tried(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, cost_model)
    bad = {(row.layout.tp, row.layout.pp) for row in ranking.best_layouts(sieve.survivors, None)}

    def exposed(layout: Layout) -> float:
        return 5.0 if (layout.tp, layout.pp) in bad else 0.0

    first, *others = ranking.best_layouts(sieve.survivors, exposed)
    assert (first.layout.tp, first.layout.pp) not in bad
    assert first.score < min(row.seconds for row in others if row.exposed_seconds) + 5.0


def test_no_placement_is_tried_of_what_is_slower_without_one(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    tried: list[Layout] = []

    def exposed(layout: Layout) -> float:
        tried.append(layout)
        return 0.0

    _ranking(sieve, cost_model).best_layouts(sieve.survivors, exposed)
    assert len(tried) <= RESCORED + 1


def test_placements_are_tried_where_racks_share_uplinks() -> None:
    fabric = {"base": "infiniband-ndr", "oversubscription": 4.0}
    assert placement_scorer(cost_model_of(_spec())) is None
    assert placement_scorer(cost_model_of(_spec(nodes_per_rack=2))) is None
    assert placement_scorer(cost_model_of(_spec(fabric=fabric))) is None
    cost_model = cost_model_of(_spec(fabric=fabric, nodes_per_rack=2))
    score = placement_scorer(cost_model)
    assert score is not None
    found = search_layouts(cost_model, Sink())
    assert found is not None
    assert all(score(one.layout) >= 0.0 for one in found.ranked)


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
