"""Time and traffic of tensor parallelism follow from one list of collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.kernels.layer_kernels import ForwardBackward
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.tensor_exchange import (
    collective_forward_backward_seconds,
    dense_collectives,
    exchange_copy_bytes,
    expert_collectives,
    hidden_state_bytes,
    sent_bytes,
)
from parc.compiler.evaluate.estimate_layout import traffic_by_axis
from parc.compiler.ir import DENSE, Layout
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.cost.memory.test_static_memory import plan_of
from tests.cost.setup.test_links import LINKS

TP = 8
GROUP = GroupSpan(TP, TP)


def case(model: str, **layout: object) -> tuple[CostModel, Layout]:
    """Return the memo of a small job and a layout of one stage with eight tensor ranks."""
    pins = {"tp": TP, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "full"}
    pins |= {"ep": 1, "etp": TP} if model.startswith("mixtral") else {}
    plan = plan_of(
        model=model,
        cluster={"node": "dgx-h200", "nodes": 4},
        job={"sequence_length": 4096, "global_batch": 64},
        layout=pins,
    )
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    return cost_model, replace(plan.layout, **layout)  # type: ignore[arg-type]


def traffic(cost_model: CostModel, layout: Layout) -> dict[str, float]:
    """Return the bytes per micro-batch by axis."""
    count = layout.micro_batches(cost_model.problem.job.global_batch)
    return {row.axis: row.bytes_per_rank / count for row in traffic_by_axis(cost_model, layout)}


@pytest.mark.parametrize(("sequence_parallel", "messages"), [(True, 5), (False, 4)])
def test_a_layer_part_sends_five_messages_or_two_all_reduces(
    sequence_parallel: bool, messages: int
) -> None:
    cost_model, layout = case("llama-3-8b", sequence_parallel=sequence_parallel)
    sent = 2 * 32 * messages * hidden_state_bytes(cost_model, layout) * (TP - 1) / TP
    assert hidden_state_bytes(cost_model, layout) == 2 * 4096 * 4096
    assert traffic(cost_model, layout)["tp"] == pytest.approx(sent)


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_bytes_over_bandwidth_are_the_time_without_latency(sequence_parallel: bool) -> None:
    cost_model, layout = case("llama-3-8b", sequence_parallel=sequence_parallel)
    cost_model.links = LINKS  # 300 GB/s, no latency
    exchanges = dense_collectives(cost_model, layout, DENSE)
    assert collective_forward_backward_seconds(cost_model, exchanges, GROUP).total == pytest.approx(
        sent_bytes(exchanges, TP) / 300e9
    )


@pytest.mark.parametrize(("model", "backward"), [("llama-3-8b", 5), ("gpt2-medium", 4)])
def test_autotp_exchanges_the_gradient_of_the_input_of_each_split_matrix(
    model: str, backward: int
) -> None:
    plan = plan_of(
        model=model,
        cluster={"node": "dgx-h200", "nodes": 1},
        job={"sequence_length": 1024, "global_batch": 64},
        layout={"tp": 2, "pp": 1, "micro_batch": 1},
        emit=["deepspeed"],
    )
    cost_model = cost_model_for(plan.problem, framework("deepspeed"))
    (exchange,) = dense_collectives(cost_model, plan.layout, DENSE)
    # queries, keys, values, and one or two matrices of the MLP
    assert (exchange.operation, exchange.forward, exchange.backward) == ("all_reduce", 2, backward)


def test_tensor_parallel_experts_have_a_separate_axis() -> None:
    cost_model, layout = case("mixtral-8x7b")
    kind = cost_model.problem.model.last_kind
    assert layout.etp == TP
    assert kind.routed
    visits = hidden_state_bytes(cost_model, layout) * cost_model.problem.model.experts.top_k
    found = traffic(cost_model, layout)
    assert found["etp"] == pytest.approx(32 * 4 * visits * (TP - 1) / TP)
    assert found["tp"] == pytest.approx(
        32 * 5 * hidden_state_bytes(cost_model, layout) * (TP - 1) / TP
    )


def test_a_single_tensor_rank_sends_no_bytes() -> None:
    cost_model, layout = case("llama-3-8b", tp=1)
    assert dense_collectives(cost_model, layout, DENSE) == ()
    assert expert_collectives(cost_model, layout, DENSE) == ()


def test_all_collectives_are_exposed_if_the_program_overlaps_none() -> None:
    cost_model, layout = case("llama-3-8b", sequence_parallel=True)
    # Launches that take time would hide a part of the collectives.
    row = replace(cost_model.efficiency, tp=1.0, launch_seconds=0.0)
    cost_model.links = LINKS
    hidden, exposed = [], []
    for overlaps, found in ((True, hidden), (False, exposed)):
        cost_model.efficiency = replace(row, overlaps_tp=overlaps)
        found.append(layer_time(cost_model, layout, DENSE).tp)
    whole = collective_forward_backward_seconds(
        cost_model, dense_collectives(cost_model, layout, DENSE), GROUP
    )
    assert exposed[0] == pytest.approx(whole.total)
    assert hidden[0] < exposed[0]


def test_experts_that_are_split_without_sequence_parallelism_are_added_up_like_an_mlp() -> None:
    cost_model, layout = case("mixtral-8x7b", sequence_parallel=False)
    kind = cost_model.problem.model.last_kind
    assert expert_collectives(cost_model, layout, kind) == ()
    (one,) = dense_collectives(cost_model, layout, kind)
    assert (one.operation, one.forward, one.backward) == ("all_reduce", 2, 2)


def test_a_program_of_torch_copies_exchanged_tensors_of_several_sequences() -> None:
    cost_model, layout = case("llama-3-8b", sequence_parallel=True)
    assert exchange_copy_bytes(cost_model, layout, DENSE) == ForwardBackward(0, 0)
    torch = cost_model_for(cost_model.problem, framework("torchtitan"))
    assert exchange_copy_bytes(torch, layout, DENSE) == ForwardBackward(0, 0)  # one sequence
    two = replace(layout, micro_batch=2)
    # Two gathers and two scatters in each pass, and a read and a write of each.
    each = 4 * 2 * hidden_state_bytes(torch, two)
    assert exchange_copy_bytes(torch, two, DENSE) == ForwardBackward(each, each)


def test_a_program_that_saves_its_gathered_inputs_does_not_gather_them_again() -> None:
    cost_model, layout = case("llama-3-8b", sequence_parallel=True)
    torch = cost_model_for(cost_model.problem, framework("torchtitan"))
    backward = [dense_collectives(one, layout, DENSE)[0].backward for one in (cost_model, torch)]
    assert backward == [4, 2]
