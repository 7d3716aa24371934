"""Time and traffic of tensor parallelism follow from one list of collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.tensor_exchange import (
    collective_forward_backward_seconds,
    dense_collectives,
    expert_collectives,
    hidden_state_bytes,
    sent_bytes,
)
from parc.compiler.evaluate.estimate_layout import traffic_by_axis
from parc.compiler.ir import DENSE, Layout
from parc.compiler.resolve.resolve_kernels import pricing_for
from tests.cost.memory.test_static_memory import plan_of
from tests.cost.setup.test_links import LINKS

TP = 8
GROUP = GroupSpan(TP, TP)


def case(model: str, **layout: object) -> tuple[Pricing, Layout]:
    """Return the memo of a small job and a layout of one stage with eight tensor ranks."""
    pins = {"tp": TP, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "full"}
    pins |= {"ep": 1, "etp": TP} if model.startswith("mixtral") else {}
    plan = plan_of(
        model=model,
        cluster={"node": "dgx-h200", "nodes": 4},
        job={"sequence_length": 4096, "global_batch": 64},
        layout=pins,
    )
    pricing = pricing_for(plan.problem, framework("megatron"))
    return pricing, replace(plan.layout, **layout)  # type: ignore[arg-type]


def traffic(pricing: Pricing, layout: Layout) -> dict[str, float]:
    """Return the bytes per micro-batch by axis."""
    count = layout.micro_batches(pricing.problem.job.global_batch)
    return {row.axis: row.bytes_per_rank / count for row in traffic_by_axis(pricing, layout)}


@pytest.mark.parametrize(("sequence_parallel", "messages"), [(True, 5), (False, 4)])
def test_a_layer_part_sends_five_messages_or_two_all_reduces(
    sequence_parallel: bool, messages: int
) -> None:
    pricing, layout = case("llama-3-8b", sequence_parallel=sequence_parallel)
    sent = 2 * 32 * messages * hidden_state_bytes(pricing, layout) * (TP - 1) / TP
    assert hidden_state_bytes(pricing, layout) == 2 * 4096 * 4096
    assert traffic(pricing, layout)["tp"] == pytest.approx(sent)


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_bytes_over_bandwidth_are_the_time_without_latency(sequence_parallel: bool) -> None:
    pricing, layout = case("llama-3-8b", sequence_parallel=sequence_parallel)
    pricing.links = LINKS  # 300 GB/s, no latency
    exchanges = dense_collectives(pricing, layout, DENSE)
    assert sum(collective_forward_backward_seconds(pricing, exchanges, GROUP)) == pytest.approx(
        sent_bytes(exchanges, TP) / 300e9
    )


def test_tensor_parallel_experts_have_a_separate_axis() -> None:
    pricing, layout = case("mixtral-8x7b")
    kind = pricing.problem.model.last_kind
    assert layout.etp == TP
    assert kind.routed
    visits = hidden_state_bytes(pricing, layout) * pricing.problem.model.experts.top_k
    found = traffic(pricing, layout)
    assert found["etp"] == pytest.approx(32 * 4 * visits * (TP - 1) / TP)
    assert found["tp"] == pytest.approx(
        32 * 5 * hidden_state_bytes(pricing, layout) * (TP - 1) / TP
    )


def test_a_single_tensor_rank_sends_no_bytes() -> None:
    pricing, layout = case("llama-3-8b", tp=1)
    assert dense_collectives(pricing, layout, DENSE) == ()
    assert expert_collectives(pricing, layout, DENSE) == ()
