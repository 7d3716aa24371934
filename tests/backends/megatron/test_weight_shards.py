"""Weights that data-parallel ranks share: groups, flags, memory, time and search agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.megatron.backend import BACKEND
from parc.backends.megatron.launch_files.import_arguments import read_megatron_args
from parc.backends.megatron.meshes import megatron_meshes
from parc.compiler.cost.memory.peak import peak_bytes, peak_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Layout, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import Files, Spec, emitted, plan_of, verification_codes

SPEC: Spec = {
    **{"parc": 1, "name": "shared", "model": "mixtral-8x7b", "emit": ["megatron", "rankmap"]},
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "layout": {"tp": 2, "cp": 2, "pp": 1, "ep": 4, "etp": 1} | {"gtp": 4, "egtp": 2},
}
ARGS = "megatron/args.sh"


@pytest.fixture(name="plan", scope="module")
def _plan() -> Plan:
    return plan_of(SPEC)


@pytest.fixture(name="files", scope="module")
def _files(plan: Plan) -> Files:
    return emitted(plan)


def without_sharing(layout: Layout) -> Layout:
    return replace(layout, gtp=1, egtp=1, dp_shard=layout.dp)


def test_the_sizes_are_those_of_the_groups(plan: Plan) -> None:
    # parallel_state.py: tp-gtp_remat-cp-ep-dp-pp and tp-cp-ep-gtp_remat-dp-pp
    dense, expert = megatron_meshes(plan.layout)
    assert [(a.name, a.size, a.stride) for a in dense.axes] == [
        *(("tp", 2, 1), ("gtp", 4, 2), ("cp", 2, 8), ("dp_shard", 2, 16), ("pp", 1, 32)),
    ]
    assert [(a.name, a.size, a.stride) for a in expert.axes] == [
        *(("tp", 1, 1), ("ep", 4, 1), ("gtp", 2, 4), ("dp_shard", 4, 8), ("pp", 1, 32)),
    ]
    assert plan.layout.dp == 8
    assert plan.layout.optimizer_shards == (4, 4)


def test_the_flags_are_the_products_and_are_imported_as_quotients(files: Files) -> None:
    words = files[ARGS].split()
    assert words[words.index("--tensor-parallel-num-weight-shards") + 1] == "8"
    assert words[words.index("--expert-tensor-parallel-num-weight-shards") + 1] == "2"
    fragment = read_megatron_args(files[ARGS], ARGS, Sink())
    assert fragment is not None
    assert (fragment.spec["layout"]["gtp"], fragment.spec["layout"]["egtp"]) == (4, 2)


@pytest.mark.parametrize("shards", ["4", "16", "3", "1"])
def test_an_edited_number_of_shards_is_reported(files: Files, shards: str) -> None:
    flag = "--tensor-parallel-num-weight-shards"
    edited = {**files, ARGS: files[ARGS].replace(f"{flag} 8", f"{flag} {shards}")}
    assert verification_codes(edited) & {"A05", "A06", "A17"}


def test_each_rank_stores_a_part_of_every_weight(plan: Plan) -> None:
    cost_model = plan_cost_model(plan)
    shared, alone = (
        peak_stage(cost_model, layout) for layout in (plan.layout, without_sharing(plan.layout))
    )
    for term in ("weights_bytes", "gradients_bytes"):
        # Norms and routers stay whole; experts, most of the model, are shared by two ranks.
        assert 0.4 < getattr(shared, term) / getattr(alone, term) < 0.5
    # The same ranks divide the optimizer state, in another order.
    assert shared.optimizer_bytes == pytest.approx(alone.optimizer_bytes, rel=0.01)
    assert shared.gathered_bytes > 0 == alone.gathered_bytes
    assert peak_bytes(cost_model, plan.layout) == pytest.approx(shared.total_bytes)


def test_traffic_is_two_gathers_and_one_reduction_per_micro_batch(plan: Plan) -> None:
    traffic = {one.axis: one.bytes_per_rank for one in plan.estimate.traffic}
    assert {"gtp", "egtp", "dp_shard_cp", "edp_shard"} <= traffic.keys()
    model = plan.problem.model
    experts = model.layers * model.experts.count / 4 * 3 * model.experts.size * model.hidden
    micro_batches = plan.layout.micro_batches(64)
    assert traffic["egtp"] == pytest.approx(micro_batches * experts * (2 * 2 + 4) / 2)


def test_the_search_computes_the_memory_and_time_of_single_layouts(plan: Plan) -> None:
    cost_model = plan_cost_model(plan)
    assert len(plan.search.ranked) > 1
    for one in plan.search.ranked:
        assert one.layout.gtp == 4
        assert one.peak_bytes == pytest.approx(peak_bytes(cost_model, one.layout))
        seconds = step_time(cost_model, one.layout).total_seconds + one.placed_seconds
        assert one.step_seconds == pytest.approx(seconds)


def test_preflight_requires_the_transformer_engine_that_shares_weights(plan: Plan) -> None:
    assert BACKEND.required_packages(plan) == (("transformer-engine", "2.19"),)
    alone = replace(plan, layout=without_sharing(plan.layout))
    assert BACKEND.required_packages(alone) == ()


def plan_cost_model(plan: Plan) -> CostModel:
    return cost_model_for(plan.problem, BACKEND)
