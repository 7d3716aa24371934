"""Ties, bands and placements decide between layouts that are about as fast."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, LayoutVariant
from parc.compiler.placement.score_placement import placement_scorer
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.rank_layouts import KEPT, RESCORED, TIE, LayoutRanking
from parc.compiler.search.search_layouts import search_layouts
from tests.search.search_reference import pricing_of


def _spec(**cluster: Any) -> dict[str, Any]:
    return {
        "parc": 1,
        "name": "ranked",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 4, **cluster},
        "job": {"sequence_length": 4096, "global_batch": 128},
    }


@pytest.fixture(name="pricing", scope="module")
def _pricing() -> Pricing:
    return pricing_of(_spec())


@pytest.fixture(name="sieve", scope="module")
def _sieve(pricing: Pricing) -> LayoutFilter:
    rules = all_rules(pricing.problem, pricing.framework)
    space = LayoutSpace.for_variant(pricing.problem, pricing.framework, LayoutVariant())
    sieve = LayoutFilter(pricing, rules, memory_limit_bytes(pricing), space)
    sieve.filter_all()
    return sieve


def _ranking(sieve: LayoutFilter, pricing: Pricing, limit_bytes: float) -> LayoutRanking:
    return LayoutRanking(pricing, (sieve.build_layout,), sieve.space.levels, limit_bytes)


def test_a_leader_is_a_tie_of_the_fastest(pricing: Pricing, sieve: LayoutFilter) -> None:
    ranked = _ranking(sieve, pricing, memory_limit_bytes(pricing)).best_layouts(
        sieve.survivors, None
    )
    fastest = min(row.seconds for row in ranked)
    assert len(ranked) == KEPT
    assert ranked[0].seconds <= fastest * (1 + TIE)
    rest = [row.seconds for row in ranked[1:]]
    assert rest == sorted(rest)


def test_of_ties_one_whose_band_fits_leads(pricing: Pricing, sieve: LayoutFilter) -> None:
    roomy = _ranking(sieve, pricing, inf).best_layouts(sieve.survivors, None)
    tight = peak_stage(pricing, roomy[0].layout).high_bytes - 1
    other = _ranking(sieve, pricing, tight).best_layouts(sieve.survivors, None)
    assert other[0].layout != roomy[0].layout
    assert peak_stage(pricing, other[0].layout).high_bytes <= tight


def test_where_no_band_fits_the_simplest_tie_leads(pricing: Pricing, sieve: LayoutFilter) -> None:
    roomy = _ranking(sieve, pricing, inf).best_layouts(sieve.survivors, None)
    none = _ranking(sieve, pricing, 0.0).best_layouts(sieve.survivors, None)
    assert none[0].layout == roomy[0].layout


def test_what_a_placement_exposes_moves_a_layout_back(
    pricing: Pricing, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, pricing, memory_limit_bytes(pricing))
    plain = ranking.best_layouts(sieve.survivors, None)
    slow = plain[0].layout

    def exposed(layout: Layout) -> float:
        return 1.0 if layout == slow else 0.0

    placed = ranking.best_layouts(sieve.survivors, exposed)
    assert placed[0].layout != slow
    assert {row.layout for row in placed} <= {row.layout for row in plain}
    assert all(row.seconds <= plain[-1].seconds for row in placed)


def test_where_all_leaders_are_placed_badly_other_degrees_are_tried(
    pricing: Pricing, sieve: LayoutFilter
) -> None:
    ranking = _ranking(sieve, pricing, memory_limit_bytes(pricing))
    bad = {(row.layout.tp, row.layout.pp) for row in ranking.best_layouts(sieve.survivors, None)}

    def exposed(layout: Layout) -> float:
        return 5.0 if (layout.tp, layout.pp) in bad else 0.0

    first, *others = ranking.best_layouts(sieve.survivors, exposed)
    assert (first.layout.tp, first.layout.pp) not in bad
    assert first.score < min(row.seconds for row in others if row.exposed_seconds) + 5.0


def test_no_placement_is_tried_of_what_is_slower_without_one(
    pricing: Pricing, sieve: LayoutFilter
) -> None:
    tried: list[Layout] = []

    def exposed(layout: Layout) -> float:
        tried.append(layout)
        return 0.0

    _ranking(sieve, pricing, memory_limit_bytes(pricing)).best_layouts(sieve.survivors, exposed)
    assert len(tried) <= RESCORED + 1


def test_placements_are_tried_where_racks_share_uplinks() -> None:
    fabric = {"base": "infiniband-ndr", "oversubscription": 4.0}
    assert placement_scorer(pricing_of(_spec())) is None
    assert placement_scorer(pricing_of(_spec(nodes_per_rack=2))) is None
    assert placement_scorer(pricing_of(_spec(fabric=fabric))) is None
    pricing = pricing_of(_spec(fabric=fabric, nodes_per_rack=2))
    score = placement_scorer(pricing)
    assert score is not None
    found = search_layouts(pricing, Sink())
    assert found is not None
    assert all(score(one.layout) >= 0.0 for one in found.ranked)
