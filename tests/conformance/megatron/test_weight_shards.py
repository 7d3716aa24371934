"""Megatron-Core accepts layouts with shared weights, and builds the planned process groups."""

from __future__ import annotations

from random import Random

import pytest

from tests.compiled import planned
from tests.conformance.megatron.specs import Spec, valid_spec
from tests.conformance.megatron.test_accepts import plan_differences

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
