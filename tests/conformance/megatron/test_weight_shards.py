"""Megatron-Core accepts layouts with shared weights, and builds the planned process groups."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from parc.backends.megatron.meshes import megatron_group_families, megatron_meshes
from parc.compiler.ir import Layout
from tests.compiled import planned
from tests.conformance.megatron.cases import megatron_verdicts
from tests.conformance.megatron.specs import Spec, valid_spec
from tests.conformance.megatron.test_accepts import plan_differences
from tests.conformance.megatron.test_groups import case, grids, problem_and_layout

pytestmark = pytest.mark.conformance
SPECS = 240


def sharing_spec(seed: int) -> Spec | None:
    """Return a valid random spec with gtp or egtp above 1, as far as its replicas allow."""
    spec, dice = valid_spec(seed), Random(f"shared {seed}")
    pins = spec["layout"]
    world = spec["cluster"]["nodes"] * 8
    dp = world // (pins["tp"] * pins["cp"] * pins["pp"])
    edp = world // (pins.get("etp", pins["tp"]) * pins.get("ep", 1) * pins["pp"])
    gtp = dice.choice([n for n in range(1, dp + 1) if dp % n == 0])
    routed = "experts" in spec["model"]
    egtp = dice.choice([n for n in range(1, edp + 1) if edp % n == 0]) if routed else 1
    if gtp == egtp == 1:
        return None
    pins |= {"gtp": gtp, "egtp": egtp}
    return spec


def test_real_process_groups_and_sizes_equal_those_of_the_plan() -> None:
    plans, both, uneven = {}, 0, 0
    for seed in range(SPECS):
        spec = sharing_spec(seed)
        plan = planned(spec)[0] if spec is not None else None
        if plan is not None:
            plans[f"sharing {seed}"] = plan
            both += plan.layout.gtp > 1 and plan.layout.egtp > 1
            uneven += plan.layout.gtp > 1 and plan.layout.cp > 1
    assert len(plans) >= 100
    assert both >= 10
    assert uneven >= 10
    assert plan_differences(plans) == {}


LAYOUTS = 120


def groups_of_rank(layout: Layout, rank: int) -> dict[str, list[int]]:
    """Return the groups of ``rank`` that initialize_model_parallel has functions for."""
    meshes = dict(zip(("dense", "expert"), megatron_meshes(layout), strict=True))
    return {
        one.name: next(g for g in meshes[one.mesh].groups_along(*one.axes) if rank in g)
        for one in megatron_group_families(layout)
        if one.name not in {"tp-dp", "tp-dp-cp"}
    }


def test_groups_of_random_sizes_equal_those_of_initialize_model_parallel() -> None:
    problem, layout = problem_and_layout()
    dice, made, expected = Random("shared groups"), [], {}
    sizes = [grid for grid in grids(3 * LAYOUTS) if grid[3] * grid[0] * grid[1] * grid[2] <= 512]
    for index, grid in enumerate(sizes):
        tp, cp, pp, dp, ep, etp, order = grid
        edp = tp * cp * dp // (ep * etp)
        gtp = dice.choice([n for n in range(1, dp + 1) if dp % n == 0])
        egtp = dice.choice([n for n in range(1, edp + 1) if edp % n == 0])
        # With pp before dp, initialize_model_parallel needs equal numbers of other replicas.
        if gtp == egtp == 1 or (order == 1 and pp > 1 and dp // gtp != edp // egtp):
            continue
        shared = replace(layout, gtp=gtp, egtp=egtp, dp_shard=dp // gtp)
        one, whole = case(problem, shared, grid)
        whole = replace(whole, gtp=gtp, egtp=egtp, dp_shard=dp // gtp)
        ranks = sorted({0, dice.randrange(whole.world), whole.world - 1})
        name = f"{index} {grid} {gtp} {egtp}"
        made.append({**one, "name": name, "ranks": ranks, "digests": False})
        expected[name] = {str(rank): groups_of_rank(whole, rank) for rank in ranks}
    verdicts = megatron_verdicts(made)
    assert len(made) >= LAYOUTS
    for name, groups in expected.items():
        assert verdicts[name]["accepted"], (name, verdicts[name])
        assert verdicts[name]["groups"] == groups, name
