"""Memory, time and traffic by hybrid sharding, ZeRO stage and context exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.memory.workspaces import gathered_key_value_bytes, key_value_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.context_exchange import (
    all_gather_exchange_seconds,
    ulysses_exchange_seconds,
)
from parc.compiler.cost.step.gradients import (
    data_parallel_round_seconds,
    exposed_seconds,
    exposed_seconds_of_step,
    replica_all_reduce_seconds,
    replica_bytes,
)
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.estimate_layout import traffic_by_axis
from parc.compiler.ir import ContextComm, Layout
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import cost_model_of

GB = 1e9


def priced(framework: str, layout: dict[str, Any], nodes: int = 4) -> tuple[CostModel, Layout]:
    """Return the single layout that the pins allow, without evaluating rules."""
    spec = {
        "parc": 1,
        "name": "case",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": nodes},
        "job": {"sequence_length": 8192, "global_batch": 64},
        "layout": {"tp": 1, "cp": 1, "pp": 1, "micro_batch": 1, "recompute": "none"} | layout,
        "emit": [framework],
    }
    cost_model = cost_model_of(spec)
    return cost_model, next(enumerate_layouts(cost_model.problem, cost_model.framework))[0]


def state_bytes(layout: dict[str, Any]) -> float:
    cost_model, made = priced("fsdp", layout)
    stage = peak_stage(cost_model, made)
    return stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes


def test_state_bytes_depend_on_shards_and_zero_stage() -> None:
    parameters = 8030261248
    assert state_bytes({"zero_stage": 3}) == pytest.approx(16 * parameters / 32)
    assert state_bytes({"zero_stage": 3, "dp_shard": 8}) == pytest.approx(16 * parameters / 8)
    # fp32 shards, and the 16-bit weights that stay gathered
    assert state_bytes({"zero_stage": 2}) == pytest.approx((16 / 32 + 2) * parameters)
    assert state_bytes({"zero_stage": 0}) == pytest.approx(16 * parameters)


def traffic(layout: dict[str, Any]) -> dict[str, float]:
    cost_model, made = priced("fsdp", layout)
    return {row.axis: row.bytes_per_rank for row in traffic_by_axis(cost_model, made)}


def test_hybrid_sharding_sends_weights_inside_a_shard_and_gradients_across_shards() -> None:
    whole = traffic({"zero_stage": 3})
    hybrid = traffic({"zero_stage": 3, "dp_shard": 8})
    assert whole.keys() == {"dp_cp"}
    assert hybrid.keys() == {"dp_shard_cp", "dp_replicate"}
    parameters, rounds = 8030261248, 2
    sent = 2 + 2 + 4  # two gathers of 16-bit weights, and a scatter of fp32 gradients
    assert whole["dp_cp"] == pytest.approx(rounds * sent * parameters * 31 / 32)
    assert hybrid["dp_shard_cp"] == pytest.approx(rounds * sent * parameters * 7 / 8)
    once = 2 * 4 * parameters / 8 * 3 / 4  # the emitted program lets copies wait
    assert hybrid["dp_replicate"] == pytest.approx(once)


def test_a_shard_inside_a_host_uses_the_network_only_for_gradients() -> None:
    cost_model, made = priced("fsdp", {"zero_stage": 3, "dp_shard": 8})
    levels = {row.axis: row.level for row in traffic_by_axis(cost_model, made)}
    assert levels == {"dp_shard_cp": "nvlink", "dp_replicate": "fabric"}
    _, _, last = data_parallel_round_seconds(cost_model, made)
    assert last == replica_all_reduce_seconds(cost_model, made)


def test_replicas_reduce_once_per_step_if_configured_and_else_per_micro_batch() -> None:
    seconds = {}
    for name in ("fsdp", "torchtitan"):
        cost_model, made = priced(name, {"zero_stage": 3, "dp_shard": 8})
        seconds[name] = data_parallel_round_seconds(cost_model, made)
        rounds = made.micro_batches(64) if name == "torchtitan" else 1
        assert replica_bytes(cost_model, made) == pytest.approx(rounds * 8 * 8030261248 / 8 * 3 / 4)
    inner, least, last = seconds["fsdp"]
    assert seconds["torchtitan"] == pytest.approx((inner + last, least, 0.0))
    window = inner / 2
    often, once = (
        exposed_seconds_of_step(row, window, 4, (1, 1, 4))
        for row in (seconds["torchtitan"], seconds["fsdp"])
    )
    assert often > once > 4 * exposed_seconds(inner, least, window)


def exchange(comm: ContextComm) -> tuple[CostModel, Layout]:
    cost_model, layout = priced("torchtitan", {"cp": 4})
    return cost_model, replace(layout, cp_comm=comm)


def test_gathered_keys_are_saved_but_keys_of_ring_and_ulysses_are_not() -> None:
    cost_model, layout = exchange("all_gather")
    # 8 heads of 128 dims, keys and values, 16 bit, of 2048 tokens
    assert key_value_bytes(cost_model, layout) == 2 * 2 * 8 * 128 * 2048
    assert gathered_key_value_bytes(cost_model, layout) == 3 * key_value_bytes(cost_model, layout)
    kept = {}
    comms: tuple[ContextComm, ...] = ("p2p", "all_gather", "a2a")
    for comm in comms:
        cost_model, layout = exchange(comm)
        kept[comm] = peak_stage(cost_model, layout).activations_bytes
    assert kept["p2p"] == kept["a2a"]
    assert kept["all_gather"] - kept["p2p"] == pytest.approx(32 * 3 * 2 * 2 * 8 * 128 * 2048)


def test_every_context_exchange_has_a_different_time() -> None:
    cost_model, layout = exchange("all_gather")
    groups = cost_model.group_spans(layout)
    assert all_gather_exchange_seconds(cost_model, layout, groups).total > 0
    assert ulysses_exchange_seconds(cost_model, layout, groups.cp).total > 0
    comms: tuple[ContextComm, ...] = ("p2p", "all_gather", "a2a")
    seconds = {step_time(*exchange(comm)).cp_seconds for comm in comms}
    assert len(seconds) == 3


def test_every_tensor_rank_of_a_transformers_program_has_the_whole_untied_embedding() -> None:
    pins = {"tp": 2, "zero_stage": 3}
    for model, whole in (("qwen3-8b", 1.0), ("qwen3-4b", 0.5)):  # the second one is tied
        spec = {
            **{"parc": 1, "name": "case", "model": model, "emit": ["fsdp"]},
            "cluster": {"node": "dgx-h100", "nodes": 1},
            "job": {"sequence_length": 8192, "global_batch": 64},
            "layout": {"cp": 1, "pp": 1, "micro_batch": 1, "recompute": "none"} | pins,
        }
        cost_model = cost_model_of(spec)
        layout = next(enumerate_layouts(cost_model.problem, cost_model.framework))[0]
        stage = peak_stage(cost_model, layout)
        shape = cost_model.problem.model
        table = shape.vocab * shape.hidden
        layers = sum(cost_model.layer_parameters(shape.last_kind, layout)) * shape.layers
        on_rank = layers + shape.hidden + (whole + (0.5 if whole == 1.0 else 0.0)) * table
        state = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
        assert state == pytest.approx(16 * on_rank / 4)
