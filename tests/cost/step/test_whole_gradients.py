"""Whole gradients at ZeRO stage 1: reduction, accumulation, clipping, gather of weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.step.gradients import (
    data_parallel_bytes,
    data_parallel_round_seconds,
    weight_gather_seconds,
)
from parc.compiler.cost.step.step_time import optimizer_seconds
from parc.compiler.cost.step.whole_gradients import whole_update_seconds
from parc.compiler.ir import Layout, Plan
from tests.cost.step.test_stack_facts import cost_model_with, eight_b_on_four_hosts


@pytest.fixture(scope="module")
def plan() -> Plan:
    return eight_b_on_four_hosts()


def at_zero_stage(plan: Plan, zero_stage: int) -> Layout:
    """Return the layout of ``plan`` with another ZeRO stage."""
    return replace(plan.layout, zero_stage=zero_stage)


def test_whole_gradients_are_all_reduced(plan: Plan) -> None:
    usual, whole = cost_model_with(plan), cost_model_with(plan, whole_gradients=True)
    layout = at_zero_stage(plan, 1)
    gradient = plan.problem.job.gradient_bytes
    scattered, reduced = (data_parallel_bytes(model, layout)[0] for model in (usual, whole))
    assert reduced / scattered == pytest.approx((2 * gradient + 2) / (gradient + 2), rel=0.05)
    assert (
        data_parallel_round_seconds(whole, layout)[0]
        > data_parallel_round_seconds(usual, layout)[0]
    )


def test_whole_gradients_are_clipped_and_weights_gathered_after_the_optimizer(plan: Plan) -> None:
    usual, whole = cost_model_with(plan), cost_model_with(plan, whole_gradients=True)
    layout = at_zero_stage(plan, 1)
    parameters = sum(usual.stage_parameters(layout, usual.equal_stage_groups(layout.split)[0].load))
    more = optimizer_seconds(whole, layout) - optimizer_seconds(usual, layout)
    assert more >= weight_gather_seconds(whole, layout)
    alone = whole_update_seconds(whole, at_zero_stage(plan, 0), parameters)
    assert 0.0 < alone < whole_update_seconds(whole, layout, parameters)
    # Sharded gradients (ZeRO 2) are not kept whole.
    assert optimizer_seconds(whole, at_zero_stage(plan, 3)) == optimizer_seconds(
        usual, at_zero_stage(plan, 3)
    )
