"""Megatron-Core and PARC agree about models whose layers use different token mixers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.ir import Layout, Plan, Problem
from tests.compiled import planned, resolved
from tests.conformance.megatron.cases import case_of, megatron_verdicts, rejected_as_pinned
from tests.conformance.megatron.hybrid_specs import hybrid_spec, hybrid_variation
from tests.conformance.megatron.test_accepts import plan_differences
from tests.every_layout import enumerate_layouts

pytestmark = pytest.mark.conformance
SPECS, VARIATIONS, OFFERED = 160, 160, 12
REJECTIONS = 60


def test_random_valid_hybrids_are_accepted_with_the_same_sizes_layers_and_groups() -> None:
    plans: dict[str, Plan] = {}
    codes: Counter[str] = Counter()
    for seed in range(SPECS):
        plan, sink = planned(hybrid_spec(seed))
        if isinstance(plan, Plan):
            plans[f"hybrid {seed}"] = plan
        codes.update(found.code for found in sink.diagnostics if found.severity == "error")
    assert len(plans) >= SPECS - 5, codes
    kinds = Counter(bool(plan.problem.model.pattern) for plan in plans.values())
    assert min(kinds[True], kinds[False]) >= SPECS // 3
    assert plan_differences(plans) == {}


def offered_layouts(spec: dict[str, Any], seed: int) -> tuple[Problem, list[Layout]]:
    """Return some of the valid layouts for a spec without pins."""
    problem, sink = resolved({**spec, "layout": {}})
    assert isinstance(problem, Problem), sink.diagnostics
    rules = framework("megatron").rules(problem)
    every = (one for family in enumerate_layouts(problem, framework("megatron")) for one in family)
    legal = [
        layout
        for layout in every
        if not any(rule.broken(problem, layout) for rule in rules)
        and layout.world == problem.cluster.gpus
    ]
    return problem, Random(seed).sample(legal, min(OFFERED, len(legal)))


def test_megatron_accepts_the_layouts_that_the_search_offers_for_a_hybrid() -> None:
    cases, names = [], Counter[str]()
    for seed in range(16):
        problem, layouts = offered_layouts(hybrid_spec(seed), seed)
        for k, layout in enumerate(layouts):
            cases.append(case_of(f"{seed} {k}", problem, layout, layout.world))
            names["pattern" if problem.model.pattern else "linear"] += 1
    assert min(names["pattern"], names["linear"]) >= 60
    rejected = {n: v["error"] for n, v in megatron_verdicts(cases).items() if not v["accepted"]}
    assert rejected == {}


def test_random_variations_of_hybrids_that_megatron_rejects_are_rejected_by_parc() -> None:
    rejected, missed = rejected_as_pinned([hybrid_variation(seed) for seed in range(VARIATIONS)])
    assert missed == {}
    assert len(rejected) >= REJECTIONS, Counter(verdict["stage"] for verdict in rejected.values())
