"""Bytes and seconds of offload and ZeRO++ against published values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import memory_model_at_zero_stage, peak_bytes, stage_memory
from parc.compiler.cost.memory.states import weight_gradient_optimizer_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import data_parallel_round_seconds, largest_stage_parameters
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.offload import (
    activation_copy_seconds,
    activation_host_bytes,
    gradient_offload_seconds,
    host_bytes_per_second,
    offloaded_host_bytes,
    offloaded_update_seconds,
    weight_fetch_seconds,
)
from parc.compiler.cost.step.step_time import optimizer_seconds
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_RECOMPUTE,
    LayerKind,
    Layout,
    Offload,
    StateBytes,
    ZeroPlus,
)
from parc.compiler.search.search_layouts import search_layouts
from tests.search.search_reference import cost_model_of

SPEC: dict[str, Any] = {
    "parc": 1,
    "name": "offload",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-2", "nodes": 2},
    "job": {"sequence_length": 2048, "global_batch": 64, "precision": "fp16"},
    "layout": {"tp": 1, "pp": 1, "cp": 1, "zero_stage": 3, "micro_batch": 1},
    "emit": ["deepspeed"],
}
TEN_BILLION = (10e9, 0.0)


def priced(**parts: Any) -> tuple[CostModel, Layout]:
    cost_model = cost_model_of(SPEC | parts)
    found = search_layouts(cost_model, Sink())
    assert found is not None
    return cost_model, found.ranked[0].layout


CPU_OPTIMIZER = Offload("cpu", "none", "")
PRICING, LAYOUT = priced()
CPU = replace(LAYOUT, offload=CPU_OPTIMIZER)
ALL_CPU = replace(LAYOUT, offload=Offload("cpu", "cpu", ""))
NVME = replace(LAYOUT, offload=Offload("nvme", "nvme", "/local"))


def test_offloaded_state_is_sixteen_bytes_per_parameter_on_the_host() -> None:
    held = largest_stage_parameters(PRICING, LAYOUT)
    assert offloaded_host_bytes(PRICING, LAYOUT, held) == 0
    assert offloaded_host_bytes(PRICING, CPU, held) == pytest.approx(
        16 * sum(held) / 2
    )  # two hosts
    assert offloaded_host_bytes(PRICING, ALL_CPU, held) == pytest.approx(18 * sum(held) / 2)
    assert offloaded_host_bytes(PRICING, NVME, held) == pytest.approx(4 * sum(held) / 2)


def test_cpu_adam_updates_ten_billion_parameters_in_the_published_time() -> None:
    """Source: ZeRO-Offload, table 4; CPU-Adam takes 2.57 s."""
    one_host = replace(ALL_CPU, dp_shard=16)
    assert offloaded_update_seconds(PRICING, one_host, TEN_BILLION) == pytest.approx(2.57, rel=0.01)


def test_traffic_to_the_host_is_two_bytes_per_parameter_of_the_shard() -> None:
    rate, share = host_bytes_per_second(PRICING.problem), 10e9 / LAYOUT.dp_shard
    assert rate == 3.0e9  # section 5.2 of ZeRO-Infinity, DGX-2
    assert gradient_offload_seconds(PRICING, CPU, TEN_BILLION) == pytest.approx(2 * share / rate)
    assert gradient_offload_seconds(PRICING, LAYOUT, TEN_BILLION) == 0
    assert weight_fetch_seconds(PRICING, ALL_CPU, TEN_BILLION) == pytest.approx(2 * share / rate)
    assert weight_fetch_seconds(PRICING, NVME, TEN_BILLION) == pytest.approx(2 * share / 1.6e9)
    assert weight_fetch_seconds(PRICING, CPU, TEN_BILLION) == 0


def test_more_offload_saves_memory_and_adds_time() -> None:
    order = (LAYOUT, CPU, ALL_CPU)
    memory = [peak_bytes(PRICING, one) for one in order]
    assert memory == sorted(memory, reverse=True)
    assert len(set(memory)) == 3
    assert optimizer_seconds(PRICING, LAYOUT) < optimizer_seconds(PRICING, CPU)
    assert optimizer_seconds(PRICING, CPU) < optimizer_seconds(PRICING, NVME)
    traffic = [data_parallel_round_seconds(PRICING, one)[0] for one in order]
    assert traffic == sorted(traffic)


STATE = StateBytes(2.0, 6.0, 12.0)


@pytest.mark.parametrize(
    ("stage", "offload", "hpz", "expected"),
    [
        (0, NO_OFFLOAD, 1, (2.0, 6.0, 12.0)),
        (1, CPU_OPTIMIZER, 1, (2.0, 2.0, 0.0)),
        (2, CPU_OPTIMIZER, 1, (2.0, 0.0, 0.0)),
        (3, CPU_OPTIMIZER, 1, (0.25, 0.0, 0.0)),
        (3, Offload("nvme", "nvme", "/local"), 1, (0.0, 0.0, 0.0)),
        (3, NO_OFFLOAD, 4, (0.75, 0.75, 1.5)),
        (2, NO_OFFLOAD, 4, (2.0, 0.75, 1.5)),
        (3, Offload("cpu", "cpu", ""), 4, (0.5, 0.0, 0.0)),
    ],
)
def test_bytes_per_parameter_that_stay_on_the_gpu_follow_the_offload(
    stage: int, offload: Offload, hpz: int, expected: tuple[float, ...]
) -> None:
    assert STATE.bytes_on_rank(stage, 8, False, offload, hpz) == expected


def test_zero_plus_plus_saves_traffic_and_its_second_copy_needs_memory() -> None:
    """Source: ZeRO++, table 1. Traffic of 3M becomes 0.75M: 0.5 forward, 0 backward, 0.25."""
    plain = data_parallel_round_seconds(PRICING, LAYOUT)[0]
    near = replace(LAYOUT, zero_plus=ZeroPlus(16, False, False))
    narrow = replace(LAYOUT, zero_plus=ZeroPlus(1, True, False))
    both = replace(LAYOUT, zero_plus=ZeroPlus(16, True, True))
    assert data_parallel_round_seconds(PRICING, near)[0] < plain
    assert data_parallel_round_seconds(PRICING, narrow)[0] < plain
    assert data_parallel_round_seconds(PRICING, both)[0] < 0.45 * plain
    (stage,) = PRICING.equal_stage_groups(near.split)
    program = memory_model_at_zero_stage(PRICING, LAYOUT.zero_stage)
    before = weight_gradient_optimizer_bytes(PRICING, LAYOUT, stage.load, program)[0]
    after = weight_gradient_optimizer_bytes(PRICING, near, stage.load, program)[0]
    assert after - before == pytest.approx(2 * sum(largest_stage_parameters(PRICING, LAYOUT)) / 16)


def test_stage_2_gathers_its_weights_once_per_step() -> None:
    two, one = replace(LAYOUT, zero_stage=2), replace(LAYOUT, zero_stage=1)
    assert (
        data_parallel_round_seconds(PRICING, two)[0] < data_parallel_round_seconds(PRICING, one)[0]
    )
    assert optimizer_seconds(PRICING, two) > optimizer_seconds(PRICING, one)


def test_deepspeed_keeps_a_billion_parameters_gathered() -> None:
    cost_model, layout = priced(
        model="llama-3-70b",
        layout=SPEC["layout"] | {"offload": "cpu"},
        cluster={"node": "dgx-a100", "nodes": 4},
    )
    (stage,) = cost_model.equal_stage_groups(layout.split)
    memory = stage_memory(cost_model, layout, stage.load, 0)
    assert memory.gathered_bytes >= 2e9
    assert memory.optimizer_bytes == memory.gradients_bytes == 0


def test_a_layer_takes_at_least_the_time_of_its_copy_to_the_host() -> None:
    spec = {
        "model": "mixtral-8x7b",
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 4096, "global_batch": 128},
        "layout": {"tp": 2, "pp": 2, "vpp": 1, "cp": 1, "ep": 4, "etp": 1, "micro_batch": 1},
        "emit": ["megatron"],
    }
    cost_model, layout = priced(**spec)
    layout = replace(layout, recompute=NO_RECOMPUTE)
    kind = LayerKind("attention", "experts")
    away = replace(layout, offload=replace(NO_OFFLOAD, activations=("attention", "experts")))
    copies = activation_copy_seconds(cost_model, away, kind)
    # 2 x 4096 tokens of 4096: inputs of the experts, and of their gated activation; queries, keys,
    # values, attention output and the norm's output; 2 of 8 experts per token, tp 2.
    experts = 2 * 2048 * (2 * 4096 + 4 * 14336)
    attention = 2 * 4096 * (2 * 32 + 2 * 8) * 128 / 2 + 2 * 2048 * 4096 + 4 * 4096 * 16
    rate = host_bytes_per_second(cost_model.problem)
    assert copies == pytest.approx((experts + attention) / rate)
    plain, slow = layer_time(cost_model, layout, kind), layer_time(cost_model, away, kind)
    assert slow.forward == max(plain.forward, copies)
    assert slow.backward == max(plain.backward, copies)
    assert slow.forward > plain.forward
    # 16 layers on the first stage, two micro-batches in flight, eight GPUs per host.
    assert activation_host_bytes(cost_model, away) == pytest.approx(16 * 2 * 8 * copies * rate)
    assert activation_host_bytes(cost_model, layout) == 0.0
