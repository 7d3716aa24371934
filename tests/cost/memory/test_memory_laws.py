"""Laws that the memory estimate obeys on every layout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.memory.micro_batches import logits_bytes, micro_batch_activation_bytes
from parc.compiler.cost.memory.peak import (
    HIGH,
    memory_model_at_zero_stage,
    memory_of_all_stages,
    peak_bytes,
    peak_stage,
    stage_memory,
)
from parc.compiler.cost.memory.states import (
    largest_layer_parameters,
    table_gradients,
    table_parameters,
    unreduced_gradient_bytes,
)
from parc.compiler.cost.memory.waiting_gradients import (
    LOGIT_GRADIENT,
    stream_pool_bytes,
    waiting_gradient_bytes,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import NO_RECOMPUTE, Layout, Recompute
from parc.compiler.search.search_layouts import search_layouts
from tests.search.search_reference import cost_model_of

MODELS = ("llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b")
ROUNDING = 1 + 1e-9


@pytest.fixture(name="found", scope="module", params=MODELS)
def _found(request: pytest.FixtureRequest) -> tuple[CostModel, list[Layout]]:
    cost_model = cost_model_of(
        {
            "parc": 1,
            "name": "laws",
            "model": request.param,
            "cluster": {"node": "dgx-h100", "nodes": 4},
            "job": {"sequence_length": 4096, "global_batch": 256},
        }
    )
    search = search_layouts(cost_model, Sink())
    assert search is not None
    return cost_model, [one.layout for one in search.ranked]


def test_an_interval_contains_the_expected_value(found: tuple[CostModel, list[Layout]]) -> None:
    cost_model, layouts = found
    for layout in layouts:
        for stage in memory_of_all_stages(cost_model, layout):
            assert stage.static_bytes < stage.low_bytes < stage.total_bytes < stage.high_bytes
        assert peak_bytes(cost_model, layout) < peak_bytes(cost_model, layout, HIGH)


def test_a_larger_micro_batch_needs_more_memory(found: tuple[CostModel, list[Layout]]) -> None:
    cost_model, layouts = found
    for layout in layouts:
        small = peak_bytes(cost_model, replace(layout, micro_batch=1))
        # A step of fewer micro-batches than stages would have fewer of them in flight.
        if layout.micro_batches(256) >= 2 * layout.pp:
            large = replace(layout, micro_batch=2)
            assert small < peak_bytes(cost_model, large)


def test_more_tensor_parallel_ranks_need_less_memory(found: tuple[CostModel, list[Layout]]) -> None:
    cost_model, layouts = found
    for layout in (one for one in layouts if one.tp == 1 and one.dp_shard % 2 == 0):
        etp = layout.etp if cost_model.problem.model.experts else 2
        split = replace(layout, tp=2, etp=etp, sequence_parallel=True)
        wide = replace(split, dp_shard=layout.dp_shard // 2)
        stages = (memory_of_all_stages(cost_model, one) for one in (wide, layout))
        for ours, theirs in zip(*stages, strict=True):
            assert ours.static_bytes <= theirs.static_bytes * ROUNDING
            assert ours.activations_bytes <= theirs.activations_bytes * ROUNDING
            assert ours.logits_bytes <= theirs.logits_bytes * ROUNDING


def _stored_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the static bytes of the fullest stage without gradients that wait for a reduction."""
    program = memory_model_at_zero_stage(cost_model, layout.zero_stage)
    program = replace(program, name=f"{program.name}, reduced", waiting_gradients=0.0)
    stages = cost_model.equal_stage_groups(layout.split)
    return max(
        stage_memory(cost_model, layout, one.load, one.first, program).static_bytes
        for one in stages
    )


def test_a_higher_zero_stage_stores_fewer_bytes(found: tuple[CostModel, list[Layout]]) -> None:
    cost_model, layouts = found
    for layout in layouts:
        stages = [replace(layout, zero_stage=stage) for stage in (0, 1, 2, 3)]
        static = [_stored_bytes(cost_model, one) for one in stages]
        assert static == sorted(static, reverse=True)
        assert static[0] > static[3] or layout.dp_shard * layout.cp == 1


def test_less_recompute_needs_more_memory(found: tuple[CostModel, list[Layout]]) -> None:
    cost_model, layouts = found
    full = Recompute("full", (), "uniform", 1)
    for layout in (replace(one, recompute=NO_RECOMPUTE) for one in layouts):
        kept = peak_stage(cost_model, layout).activations_bytes
        assert peak_stage(cost_model, replace(layout, recompute=full)).activations_bytes <= kept


@pytest.mark.parametrize("recompute", [NO_RECOMPUTE, Recompute("full", (), "uniform", 1)])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_waiting_gradients_replace_what_a_backward_pass_frees(
    recompute: Recompute, micro_batch: int
) -> None:
    cost_model = cost_model_of(
        {
            "parc": 1,
            "name": "waiting",
            "model": "llama-3-70b",
            "cluster": {"node": "dgx-h100", "nodes": 16},
            "job": {"sequence_length": 4096, "global_batch": 512},
            "layout": {"tp": 1, "pp": 1, "cp": 1, "zero_stage": 3, "micro_batch": 1},
            "goals": {"memory_headroom": "0%"},
        }
    )
    search = search_layouts(cost_model, Sink())
    assert search is not None
    layout = replace(search.ranked[0].layout, recompute=recompute, micro_batch=micro_batch)
    program = memory_model_at_zero_stage(cost_model, 3)
    (stage,) = cost_model.equal_stage_groups(layout.split)
    load, where = stage.load, (cost_model, layout, stage.load)
    kept, working = micro_batch_activation_bytes(*where, stage.first, program)
    logits, queue = logits_bytes(*where, program), unreduced_gradient_bytes(*where, program)
    layer = 4 * largest_layer_parameters(*where)
    # The peak of a backward pass: the loss, the output projection, and layer by layer.
    head = 4 * table_parameters(*where) / 2
    tables = 4 * table_gradients(*where, program)
    gradient = logits * LOGIT_GRADIENT / program.loss_bytes
    peak = kept + max(logits, gradient + min(head, queue))
    for done in range(1, load.layers + 1):
        waiting = min(queue, tables + done * layer)
        peak = max(peak, kept * (1 - (done - 1) / load.layers) + working + waiting)
    alone = kept + max(logits, working)
    added = waiting_gradient_bytes(*where, stage.first, program)
    assert added == pytest.approx(max(peak - alone, 0.0))
    # Many logits and activations are freed before as many gradients wait.
    assert added < queue
    assert (added > 0) == (micro_batch == 1 or recompute != NO_RECOMPUTE)


@pytest.mark.parametrize("ranks", [1, 8])
def test_fsdp2_reserves_memory_for_two_more_streams(ranks: int) -> None:
    cost_model = cost_model_of(
        {
            "parc": 1,
            "name": "streams",
            "model": "llama-3-8b",
            "cluster": {"node": "dgx-h100", "nodes": 1},
            "job": {"sequence_length": 4096, "global_batch": 64},
            "layout": {"tp": 1, "pp": 1, "cp": 1, "zero_stage": 3, "micro_batch": 1},
            "emit": ["fsdp"],
        }
    )
    search = search_layouts(cost_model, Sink())
    assert search is not None
    layout = replace(search.ranked[0].layout, dp_shard=ranks, recompute=NO_RECOMPUTE)
    program = memory_model_at_zero_stage(cost_model, 3)
    (group,) = cost_model.equal_stage_groups(layout.split)
    pools = stream_pool_bytes(cost_model, layout, group.load, 0, program)
    root, layer = 2 * 128256 * 4096, 218112000
    if ranks == 1:
        # Nothing is gathered; the logits' peak is above that of the reduction.
        assert pools == pytest.approx(4 * root)
    else:
        assert pools == pytest.approx(2 * (root + layer * (1 + 1 / 8)) + 4 * root / 8, rel=1e-3)
