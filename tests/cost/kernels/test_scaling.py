"""Casts of scaled operands, and their part in the time of a layer."""

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.kernels.scaling import NONE, SCALINGS, cast_bytes
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.ir import DENSE
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.cost.memory.test_static_memory import plan_of


def test_casts_move_inputs_forward_and_output_gradients_backward() -> None:
    moved = cast_bytes([(8, 3, 5), (8, 7, 2)], SCALINGS["delayed"])
    assert moved.forward == 4 * 8 * (5 + 2)
    assert moved.backward == 4 * 8 * (3 + 7)


def test_every_low_precision_of_a_job_has_a_scaling_and_16_bit_operands_have_no_casts() -> None:
    assert {"fp8", "mxfp8", "nvfp4"} <= SCALINGS.keys()
    assert cast_bytes([(8, 3, 5)], NONE).forward == 0
    # Each low precision reads an operand and writes it twice.
    assert all(each.cast_bytes >= 2 for each in SCALINGS.values())


@pytest.mark.parametrize(("cheap", "dear"), [("delayed", "fp8"), ("fp8", "rowwise")])
def test_more_passes_over_an_operand_make_a_layer_slower(cheap: str, dear: str) -> None:
    plan = plan_of(
        model="llama-3-8b",
        cluster={"node": "dgx-h100", "nodes": 1},
        job={"sequence_length": 8192, "global_batch": 64, "precision": "fp8"},
    )
    times = []
    for name in (cheap, dear):
        cost_model = cost_model_for(plan.problem, framework("megatron"))
        cost_model.scaling = SCALINGS[name]
        times.append(layer_time(cost_model, replace(plan.layout, tp=1), DENSE).compute)
    assert times[0] < times[1]
