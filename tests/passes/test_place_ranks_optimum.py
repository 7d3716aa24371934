"""Placement against brute force and against its own bound."""

from __future__ import annotations

from statistics import median

import pytest

from parc.compiler.ir import Placement
from parc.compiler.passes.place_ranks import place_ranks
from tests.passes.brute_force import least_seconds
from tests.passes.placement_plans import MegatronOrder, model, problem
from tests.passes.random_clusters import Case, irregular, tiny

FEW = 60
"""Cases of each kind here; benchmarks/placement.py looks at 300."""


def placed(case: Case) -> Placement:
    on, of, costs = case
    return place_ranks(problem(on, model(of.pp, 64)), MegatronOrder(), of, costs)


@pytest.mark.parametrize("start", range(0, FEW, 10))
def test_a_few_hosts_are_placed_as_well_as_any_order_can(start: int) -> None:
    for seed in range(start, start + 10):
        on, of, costs = tiny(seed)
        proof = placed((on, of, costs)).proof
        best = least_seconds(on, of, costs)
        assert proof.exposed_seconds == pytest.approx(best), seed
        assert proof.bound_seconds <= best * (1 + 1e-9), seed
        assert proof.quality == "optimal", seed
