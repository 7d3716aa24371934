"""Ties, bands and placements decide between layouts that are about as fast."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, LayoutVariant
from parc.compiler.placement.score_placement import placement_scorer
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.rank_layouts import KEPT, RESCORED, TIE, LayoutRanking
from parc.compiler.search.search_layouts import search_layouts
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


def _ranking(sieve: LayoutFilter, cost_model: CostModel, limit_bytes: float) -> LayoutRanking:
    return LayoutRanking(cost_model, (sieve.build_layout,), sieve.space.levels, limit_bytes)


def test_a_leader_is_a_tie_of_the_fastest(cost_model: CostModel, sieve: LayoutFilter) -> None:
    ranked = _ranking(sieve, cost_model, memory_limit_bytes(cost_model)).best_layouts(
        sieve.survivors, None
    )
    fastest = min(row.seconds for row in ranked)
    assert len(ranked) == KEPT
    assert ranked[0].seconds <= fastest * (1 + TIE)
    rest = [row.seconds for row in ranked[1:]]
    assert rest == sorted(rest)


def test_of_ties_one_whose_band_fits_leads(cost_model: CostModel, sieve: LayoutFilter) -> None:
    roomy = _ranking(sieve, cost_model, inf).best_layouts(sieve.survivors, None)
    tight = peak_stage(cost_model, roomy[0].layout).high_bytes - 1
    other = _ranking(sieve, cost_model, tight).best_layouts(sieve.survivors, None)
    assert other[0].layout != roomy[0].layout
    assert peak_stage(cost_model, other[0].layout).high_bytes <= tight


def test_where_no_band_fits_the_simplest_tie_leads(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    roomy = _ranking(sieve, cost_model, inf).best_layouts(sieve.survivors, None)
    none = _ranking(sieve, cost_model, 0.0).best_layouts(sieve.survivors, None)
    assert none[0].layout == roomy[0].layout


def test_what_a_placement_exposes_moves_a_layout_back(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, cost_model, memory_limit_bytes(cost_model))
    plain = ranking.best_layouts(sieve.survivors, None)
    slow = plain[0].layout

    def exposed(layout: Layout) -> float:
        return 1.0 if layout == slow else 0.0

    placed = ranking.best_layouts(sieve.survivors, exposed)
    assert placed[0].layout != slow
    assert {row.layout for row in placed} <= {row.layout for row in plain}
    assert all(row.seconds <= plain[-1].seconds for row in placed)


def test_where_all_leaders_are_placed_badly_other_degrees_are_tried(
    cost_model: CostModel, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, cost_model, memory_limit_bytes(cost_model))
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

    _ranking(sieve, cost_model, memory_limit_bytes(cost_model)).best_layouts(
        sieve.survivors, exposed
    )
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
