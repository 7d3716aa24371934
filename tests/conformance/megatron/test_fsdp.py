"""Each version of Megatron-Core accepts plans with Megatron-FSDP (ZeRO-2 and 3)."""

from __future__ import annotations

import math
from random import Random

import pytest

from parc.backends.megatron.capabilities import VERSIONS
from parc.compiler.ir import Plan
from tests.compiled import Spec, planned
from tests.conformance.megatron.hybrid_specs import hybrid_spec
from tests.conformance.megatron.specs import GPUS_PER_NODE, valid_spec
from tests.conformance.megatron.test_accepts import plan_differences

pytestmark = pytest.mark.conformance
SPECS, HYBRIDS = 120, 12
"""Numbers of random specs per version. At least 100 of them have a valid layout."""


def sharded_spec(seed: int, version: str) -> Spec:
    """Return a random spec with ZeRO stage 2 or 3, and some with several shard groups."""
    dice = Random(f"sharded {seed}")
    spec = hybrid_spec(seed) if seed < HYBRIDS else valid_spec(seed)
    layout = {**spec["layout"], "zero_stage": dice.choice([2, 3]), "cuda_graphs": False}
    ranks = spec["cluster"]["nodes"] * GPUS_PER_NODE
    dp = ranks // math.prod(layout.get(axis, 1) for axis in ("tp", "cp", "pp"))
    if "experts" not in spec["model"] and dp % 2 == 0 and dice.random() < 0.5:
        layout["dp_shard"] = dp // 2
    if version == "0.17":
        spec = {**spec, "job": {**spec["job"], "moe_overlap": False, "moment_precision": "fp32"}}
    return {**spec, "layout": layout, "versions": {"megatron": version}}


@pytest.mark.parametrize("version", VERSIONS)
def test_random_sharded_specs_are_accepted_with_the_same_sizes_layers_and_groups(
    version: str,
) -> None:
    specs = {f"sharded {seed}": sharded_spec(seed, version) for seed in range(SPECS + HYBRIDS)}
    found = {name: planned(spec)[0] for name, spec in specs.items()}
    plans = {name: plan for name, plan in found.items() if isinstance(plan, Plan)}
    assert len(plans) >= 100
    layouts = [plan.layout for plan in plans.values()]
    assert {layout.zero_stage for layout in layouts} == {2, 3}
    assert {layout.dp_replicate for layout in layouts} == {1, 2}
    assert plan_differences(plans, version) == {}
