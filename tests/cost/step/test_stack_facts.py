"""Facts of a software stack that change the time of a step: launches and hops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.launch_time import BACKWARD_LAUNCH, launch_seconds
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.step_time import (
    blocking_hops,
    exposed_hops,
    stage_boundary_seconds,
    step_time,
)
from parc.compiler.ir import DENSE, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.cost.memory.test_static_memory import plan_of


def eight_b_on_four_hosts() -> Plan:
    """Return the plan of an 8B model on four hosts, with two pipeline stages."""
    return plan_of(
        model="llama-3-8b",
        cluster={"node": "dgx-h100", "nodes": 4},
        job={"sequence_length": 8192, "global_batch": 128},
        layout={"tp": 1, "pp": 2, "vpp": 1, "micro_batch": 1},
    )


@pytest.fixture(scope="module")
def plan() -> Plan:
    return eight_b_on_four_hosts()


def cost_model_with(plan: Plan, **facts: bool) -> CostModel:
    """Return the cost model of ``plan``, with other facts of its stack."""
    row = cost_model_for(plan.problem, framework("megatron")).efficiency
    return cost_model_for(plan.problem, framework("megatron"), replace(row, **facts))  # type: ignore[arg-type]


def test_blocking_launches_add_the_host_time_to_that_of_the_device(plan: Plan) -> None:
    usual, blocking = cost_model_with(plan), cost_model_with(plan, blocking_launches=True)
    apart = replace(usual.efficiency, launch_seconds=0.0)
    device = layer_time(
        cost_model_for(plan.problem, framework("megatron"), apart), plan.layout, DENSE
    )
    one, other = (layer_time(model, plan.layout, DENSE) for model in (usual, blocking))
    launch = launch_seconds(usual, plan.layout, DENSE)
    assert other.forward - device.forward == pytest.approx(launch)
    assert other.forward > one.forward >= device.forward
    assert other.total - device.total == pytest.approx((1 + BACKWARD_LAUNCH) * launch)


@pytest.mark.parametrize(
    ("pp", "micro_batches", "hops"), [(1, 8, 0), (2, 8, 18), (3, 8, 36), (8, 16, 78)]
)
def test_a_rank_exchanges_two_messages_with_each_neighbor_per_micro_batch(
    pp: int, micro_batches: int, hops: int
) -> None:
    assert blocking_hops(pp, micro_batches) == hops
    assert hops >= exposed_hops(pp, 1, micro_batches)


def test_nothing_hides_blocking_hops(plan: Plan) -> None:
    usual, blocking = cost_model_with(plan), cost_model_with(plan, blocking_hops=True)
    hop = stage_boundary_seconds(blocking, plan.layout)
    assert stage_boundary_seconds(usual, plan.layout) == pytest.approx(usual.efficiency.pp * hop)
    count = plan.layout.micro_batches(plan.problem.job.global_batch)
    waits = step_time(blocking, plan.layout).pp_seconds
    assert waits == pytest.approx(hop * blocking_hops(plan.layout.pp, count))
