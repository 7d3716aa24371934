"""Megatron-FSDP (ZeRO-2 and 3): random plans for every version, the real class on CPU ranks."""

from __future__ import annotations

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from parc.backends.megatron.capabilities import VERSIONS
from parc.backends.registry import framework
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.cost.memory.states import (
    gathered_weight_bytes,
    unreduced_gradient_bytes,
)
from parc.compiler.ir import Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import Spec, plan_of, planned
from tests.conformance.megatron.cases import folder_of
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


RANKS, UNIT = 4, 200_000
SMALL: Spec = {
    "parc": 1,
    "name": "small",
    "model": {
        "name": "small",
        "layers": 16,
        "hidden": 64,
        "ffn": 256,
        "heads": 4,
        "vocab": 640,
        "tied_embeddings": False,
        "position": {"kind": "rope", "max_positions": 2048},
    },
    "cluster": {"node": {"base": "dgx-h100", "gpus_per_node": RANKS}, "nodes": 1},
    "job": {"sequence_length": 2048, "global_batch": 8},
    "emit": ["megatron"],
}


def ran(case: dict[str, Any]) -> dict[str, float]:
    """Return the bytes of the real MegatronFSDP on CPU ranks."""
    program = str(Path(__file__).with_name("fsdp_ranks.py"))
    command = [os.environ["PARC_CONFORMANCE_PYTHON"], "-W", "ignore", program, folder_of("0.19")]
    done = subprocess.run(
        [*command, json.dumps(case)],
        capture_output=True,
        text=True,
        check=False,
        env={name: one for name, one in os.environ.items() if name != "PYTHONPATH"},
    )
    assert not done.returncode, done.stderr[-2000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("stage", "copies"), [(2, 1), (3, 1), (3, 2)])
def test_the_real_class_stores_and_gathers_the_bytes_of_the_plan(stage: int, copies: int) -> None:
    pins = {"tp": 1, "pp": 1, "cp": 1, "zero_stage": stage, "dp_shard": RANKS // copies}
    plan = plan_of({**SMALL, "layout": pins})
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    (stages,) = cost_model.equal_stage_groups(plan.layout.split)
    load, layout, model = stages.load, plan.layout, plan.problem.model
    tables = 2 * cost_model.framework.padded_vocab(plan.problem, 1) * model.hidden
    layer = sum(cost_model.layer_parameters(model.last_kind, layout))
    assert 2 * layer < UNIT < sum(cost_model.stage_parameters(layout, load)) / 3
    # Small models would never reach the numbers of parameters of Megatron's defaults.
    program = replace(
        memory_model_at_zero_stage(cost_model, stage),
        prefetched_parameters=UNIT / 2,
        waiting_gradients=UNIT,
        bucket_parameters=(UNIT, 0.0),
    )
    found = ran(
        {
            "strategy": {2: "optim_grads", 3: "optim_grads_params"}[stage],
            "ranks": RANKS,
            "copies": copies,
            "layers": model.layers,
            "layer": int(layer),
            "tables": tables,
            "communication_unit": UNIT,
        }
    )
    parameters = model.layers * layer + tables
    weights, gradients, optimizer = program.state.bytes_on_rank(stage, RANKS // copies)
    assert found["weights"] == pytest.approx(weights * parameters, rel=0.01)
    assert found["gradients"] == pytest.approx(gradients * parameters, rel=0.01)
    # Adam adds two moments of 4 bytes to the main weights.
    assert 3 * found["main_weights"] == pytest.approx(optimizer * parameters, rel=0.01)
    gathered = gathered_weight_bytes(cost_model, layout, load, program)
    whole = unreduced_gradient_bytes(cost_model, layout, load, program)
    assert found["gathered"] == pytest.approx(gathered, rel=0.01)
    # Buckets of ZeRO-2 end with the parameter that exceeds their size: three may be too large.
    slack = 0.01 * whole if stage == 3 else 3 * program.state.gradient * layer
    assert 0.9 * whole <= found["whole"] <= whole + slack
