"""Buffers that stay allocated in addition to parameters and their state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.megatron.memory import megatron_memory
from parc.backends.registry import framework
from parc.backends.shared.torch.memory import fsdp2_memory
from parc.compiler.cost.counts.params import layer_params_on_rank, norm_params_per_layer
from parc.compiler.cost.memory.activations import layer_activations, routing_bytes
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage, peak_stage
from parc.compiler.cost.memory.workspaces import (
    communicator_bytes,
    graph_node_bytes,
    output_projection_buffer_bytes,
    placeholder_gradient_bytes,
    weight_shapes,
)
from parc.compiler.cost.setup.stages import StageContents, stage_contents
from parc.compiler.ir import ROUTED, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.cost.memory.test_memory_terms import LLAMA, model
from tests.cost.memory.test_static_memory import plan_of
from tests.generations import generation


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(**LLAMA)


@pytest.mark.parametrize(("name", "layer"), [("llama-3-8b", 0), ("deepseek-v3", 0)])
def test_weight_shapes_of_a_dense_layer_sum_to_its_parameters_without_norms(
    plan: Plan, name: str, layer: int
) -> None:
    base, layout = model(name), replace(plan.layout, tp=2)
    counts = (1, *(0,) * (len(base.kinds) - 1))
    shapes = weight_shapes(base, layout, StageContents(counts, False, 0, False, False), 0)
    dense, _ = layer_params_on_rank(base, layer, tp=2, etp=1, ep=1)
    latent = base.attention.latent
    norms = norm_params_per_layer(base)
    norms += (latent.q_lora_rank or 0) + latent.kv_lora_rank if latent else 0
    assert sum(rows * columns for rows, columns in shapes) == dense - norms


def test_equal_weight_shapes_count_once(plan: Plan) -> None:
    base, layout = model("mixtral-8x7b"), replace(plan.layout, tp=2, ep=4, etp=1)
    one, many = (StageContents((count,), False, 0, True, True) for count in (1, 8))
    shapes = weight_shapes(base, layout, one, 32000)
    assert shapes == weight_shapes(base, layout, many, 32000)
    assert shapes == {(3072, 4096), (4096, 2048), (28672, 4096), (4096, 14336), (16000, 4096)}


def test_a_prediction_layer_adds_its_projection(plan: Plan) -> None:
    base = model("deepseek-v3")
    layout = replace(plan.layout, tp=2, ep=8, etp=1)
    without, with_head = (StageContents((0, 2), False, heads, False, False) for heads in (0, 1))
    more = weight_shapes(base, layout, with_head, 0) - weight_shapes(base, layout, without, 0)
    assert more == {(3584, 14336)}


def test_only_fused_gradients_have_placeholders(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    load = stage_contents(plan.problem.model, plan.layout.split, 0)
    bf16 = megatron_memory("bf16", generation("hopper"))
    held = placeholder_gradient_bytes(cost_model, plan.layout, load, bf16)
    assert held == 2 * (3072 * 4096 + 4096 * 2048 + 14336 * 4096 + 4096 * 7168)
    assert placeholder_gradient_bytes(cost_model, plan.layout, load, fsdp2_memory()) == 0.0


def test_the_gathered_input_of_the_head_stays_allocated_with_sequence_parallelism(
    plan: Plan,
) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    program = memory_model_at_zero_stage(cost_model, 1)
    parallel, plain = (replace(plan.layout, sequence_parallel=flag) for flag in (True, False))
    assert output_projection_buffer_bytes(cost_model, parallel, program) == 2 * 8192 * 4096
    assert output_projection_buffer_bytes(cost_model, plain, program) == 0.0
    assert output_projection_buffer_bytes(cost_model, parallel, fsdp2_memory()) == 0.0
    assert peak_stage(cost_model, parallel).workspace_bytes > 2 * 8192 * 4096


def test_routing_saves_seventeen_bytes_per_token_and_expert(plan: Plan) -> None:
    assert routing_bytes(128) == 17 * 128 + 4
    base, layout = model("qwen3-30b-a3b"), replace(plan.layout, tp=1, etp=1)
    assert base.experts is not None
    fewer = replace(base, experts=replace(base.experts, count=64))
    program = megatron_memory("bf16", generation("hopper"))
    many, few = (
        layer_activations(one, layout, ROUTED, (4096.0, 4096), program).router
        for one in (base, fewer)
    )
    assert many - few == 4096 * 17 * 64


def test_expert_weights_are_split_over_their_own_tensor_size(plan: Plan) -> None:
    base = model("mixtral-8x7b")
    contents = StageContents((1,), False, 0, False, False)
    by_size = [
        weight_shapes(base, replace(plan.layout, tp=2, ep=1, etp=etp), contents, 0)
        for etp in (1, 4)
    ]
    assert {(28672, 4096), (4096, 14336)} <= by_size[0]
    assert {(28672 // 4, 4096), (4096, 14336 // 4)} <= by_size[1]


def test_every_mesh_axis_in_use_has_two_communicators(plan: Plan) -> None:
    alone = replace(plan.layout, tp=1, cp=1, pp=1, dp_shard=1, dp_replicate=1, ep=1, etp=1)
    pairs = [replace(alone, tp=2), replace(alone, pp=2), replace(alone, tp=8, pp=4)]
    found = [communicator_bytes(plan.problem, layout) for layout in (alone, *pairs)]
    # Four A100 allocated 544 to 688 MB per communicator.
    assert found == [0.0, 1.2e9, 1.2e9, 2.4e9]
    node = replace(plan.problem.cluster.node, link_kind="pcie")
    over_pcie = replace(plan.problem, cluster=replace(plan.problem.cluster, node=node))
    assert communicator_bytes(over_pcie, pairs[0]) == 0.2e9


def test_an_all_to_all_has_buffers_for_each_peer_in_the_nvlink_domain(plan: Plan) -> None:
    def added(ep: int, etp: int = 1, **job: str) -> float:
        problem = replace(plan.problem, job=replace(plan.problem.job, **job))
        layout = replace(plan.layout, ep=ep, etp=etp)
        used = communicator_bytes(problem, layout)
        return used - communicator_bytes(problem, replace(layout, ep=1))

    # NCCL allocated 3.28 GB for the first all-to-all of eight H100 (NVIDIA/nccl, issue 1685).
    assert added(8) - 1.2e9 == pytest.approx(3.28e9, rel=0.01)
    assert added(64) == added(8) > added(4)
    assert added(8, etp=2) == added(4)
    assert added(8, moe_dispatcher="deepep") == 1.2e9


def test_graphs_add_buffers_per_micro_batch_in_flight_and_nodes_per_captured_micro_batch(
    plan: Plan,
) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    eager = replace(plan.layout, cuda_graphs=False)
    graphs = replace(eager, cuda_graphs=True)
    before, after = peak_stage(cost_model, eager), peak_stage(cost_model, graphs)
    load = stage_contents(plan.problem.model, graphs.split, 0)
    layers = sum(load.counts)
    # Two buffers, and two micro-batches in flight on the first of two stages; tp 2 with sequence
    # parallelism: the input of a layer has 8192 x 4096 / 2 elements of 2 bytes.
    buffers = layers * 2 * 2 * 8192 * 4096
    assert after.activations_bytes - before.activations_bytes == pytest.approx(buffers)
    # 29 launches forward and twice as many backward, of 10 KB each, for each micro-batch of a step.
    nodes = layers * 3 * 29 * graphs.micro_batches(plan.problem.job.global_batch) * 10e3
    assert graph_node_bytes(cost_model, graphs, load) == pytest.approx(nodes)
    assert after.workspace_bytes - before.workspace_bytes == pytest.approx(nodes)
    alone = replace(graphs, pp=1)
    assert graph_node_bytes(cost_model, alone, load) == pytest.approx(layers * 3 * 29 * 10e3)
