"""Terms of the memory model, and buffers that stay allocated, against tables of their sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.megatron.memory import (
    low_precision_copy_bytes,
    low_precision_state_bytes,
    megatron_memory,
)
from parc.backends.registry import framework
from parc.backends.shared.torch.memory import fsdp2_memory
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts.cache import (
    cache_bytes_per_token,
    count_windowed_layers,
    round_up_to_blocks,
)
from parc.compiler.cost.counts.params import layer_params_on_rank, norm_params_per_layer
from parc.compiler.cost.memory.activations import (
    layer_activations,
    routing_bytes,
    saved_activation_bytes,
)
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage, peak_bytes, peak_stage
from parc.compiler.cost.memory.states import weight_gradient_optimizer_bytes
from parc.compiler.cost.memory.workspaces import (
    communicator_bytes,
    graph_bytes,
    output_projection_buffer_bytes,
    placeholder_gradient_bytes,
    weight_shapes,
)
from parc.compiler.cost.setup.stages import StageContents, stage_contents
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    DENSE,
    NO_RECOMPUTE,
    ROUTED,
    Layout,
    Model,
    Plan,
    ProgramMemory,
    Recompute,
    StageMemory,
    StateBytes,
)
from parc.compiler.ir.estimate import DYNAMIC_SPREAD, FRAGMENTATION_SPREAD, STATIC_SPREAD
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.resolve.resolve_model import resolve_model
from tests.cost.memory.test_static_memory import plan_of
from tests.generations import generation

ZERO = StateBytes(2.0, 2.0, 12.0)
PLAIN = ProgramMemory("plain", ZERO, fused_norms=True, gathers_again=True)
LLAMA = {
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "pp": 2, "cp": 1, "vpp": 1, "micro_batch": 1},
}


def model(name: str) -> Model:
    """Return a model of the catalog."""
    found = resolve_model(name, Library(None), Sink())
    assert found is not None
    return found


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(**LLAMA)


@pytest.mark.parametrize(
    ("shards", "stage", "expected_gb"),
    [
        (1, 1, 120.0),
        (4, 1, 52.5),
        (16, 1, 35.6),
        (64, 1, 31.4),
        (1024, 1, 30.1),
        (4, 2, 41.3),
        (64, 2, 16.6),
        (256, 2, 15.4),
        (4, 3, 30.0),
        (64, 3, 1.88),
        (1024, 3, 0.12),
    ],
)
def test_model_states_equal_table_1_of_the_zero_paper(
    shards: int, stage: int, expected_gb: float
) -> None:
    total = 7.5 * sum(ZERO.bytes_on_rank(stage, shards))
    assert total == pytest.approx(expected_gb, abs=0.06)


@pytest.mark.parametrize(
    ("heads", "layers", "hidden", "micro_batch", "selective", "paper_gib"),
    [(64, 48, 6144, 4, False, 59.25), (64, 48, 6144, 4, True, 9.5625)],
)
def test_activations_equal_figure_1_of_korthikanti(  # noqa: PLR0913 - columns of the figure
    heads: int, layers: int, hidden: int, micro_batch: int, selective: bool, paper_gib: float
) -> None:
    base = model("gpt3-175b")
    shape = replace(
        base,
        hidden=hidden,
        ffn=replace(base.ffn, size=4 * hidden, gated=False),
        attention=replace(base.attention, heads=heads, kv_heads=heads, head_dim=hidden // heads),
    )
    recompute = Recompute.selective(("core_attn",)) if selective else NO_RECOMPUTE
    layout = _layout(tp=8, sequence_parallel=selective, recompute=recompute)
    program = replace(PLAIN, fused_attention=False, attention_dropout=True, hidden_dropout=True)
    layer = layer_activations(shape, layout, DENSE, (2048 * micro_batch, 2048), program)
    assert saved_activation_bytes(layer, layout, layers, layers) / 2**30 == pytest.approx(
        paper_gib, rel=0.01
    )


def _layout(**parts: object) -> Layout:
    chosen = plan_of(**LLAMA).layout
    return replace(chosen, **parts)  # type: ignore[arg-type]


def test_full_recompute_saves_layer_inputs_and_block_recompute_also_unrecomputed_layers() -> None:
    layout = _layout(vpp=1)
    layer = layer_activations(model("llama-3-8b"), layout, DENSE, (8192.0, 8192), PLAIN)
    uniform = replace(layout, recompute=Recompute("full", (), "uniform", 4))
    block = replace(layout, recompute=Recompute("full", (), "block", 3))
    assert saved_activation_bytes(layer, uniform, 16, 16) == 4 * layer.checkpoint
    assert saved_activation_bytes(layer, block, 16, 3) == 3 * layer.checkpoint + 13 * layer.total


def test_more_recompute_never_needs_more_memory(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    levels = (
        NO_RECOMPUTE,
        Recompute.selective(("layernorm",)),
        Recompute.selective(("layernorm", "mlp")),
        Recompute("full", (), "uniform", 1),
    )
    peaks = [peak_bytes(cost_model, replace(plan.layout, recompute=level)) for level in levels]
    assert peaks == sorted(peaks, reverse=True)


def test_the_fast_sum_of_the_search_is_the_sum_of_the_terms(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    for layout in (plan.layout, replace(plan.layout, zero_stage=3), replace(plan.layout, vpp=2)):
        total = peak_stage(cost_model, layout).total_bytes
        assert peak_bytes(cost_model, layout) == pytest.approx(total, rel=1e-12)


def test_zero_stages_and_more_shards_never_need_more_state(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    stages = [
        peak_stage(cost_model, replace(plan.layout, zero_stage=stage)).static_bytes
        for stage in (0, 1, 2, 3)
    ]
    assert stages == sorted(stages, reverse=True)
    halves = replace(plan.layout, dp_replicate=2, dp_shard=plan.layout.dp_shard // 2)
    whole = peak_stage(cost_model, plan.layout).optimizer_bytes
    assert peak_stage(cost_model, halves).optimizer_bytes == pytest.approx(2 * whole)


def test_zero_3_gathers_layers_and_stores_no_quantized_copies(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    gathered = peak_stage(cost_model, replace(plan.layout, zero_stage=3))
    assert gathered.gathered_bytes > 0
    assert gathered.casts_bytes == 0
    assert peak_stage(cost_model, plan.layout).gathered_bytes == 0


def test_quantized_weights_are_stored_in_the_formats_of_the_tensor_cores() -> None:
    assert low_precision_copy_bytes("fp8", generation("hopper")) == 2.0
    assert low_precision_copy_bytes("fp8", generation("blackwell")) == 1.0
    assert low_precision_copy_bytes("mxfp8", generation("blackwell")) == 2.0625
    assert low_precision_copy_bytes("nvfp4", generation("blackwell")) == 1.125
    assert low_precision_copy_bytes("bf16", generation("hopper")) == 0.0
    assert low_precision_state_bytes("fp8", generation("blackwell")).weight == 1.0


def test_the_embedding_of_low_precision_weights_has_16_bits(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    layout, load = plan.layout, cost_model.equal_stage_groups(plan.layout.split)[0].load
    plain = memory_model_at_zero_stage(cost_model, 1)
    state = replace(plain.state, weight=1.0)
    low = replace(plain, name="low", state=state)
    mixed = replace(plain, name="mixed", state=replace(state, table=2.0))
    rows = cost_model.framework.padded_vocab(plan.problem, layout.tp) / layout.tp
    tables = load.embedding + load.loss
    found = [
        weight_gradient_optimizer_bytes(cost_model, layout, load, one)[0] for one in (low, mixed)
    ]
    assert tables > 0
    assert found[1] - found[0] == tables * rows * plan.problem.model.hidden


def test_allocated_reserved_and_device_counters_are_sums_of_terms() -> None:
    stage = StageMemory(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    assert stage.allocated_bytes == 1 + 2 + 3 + 4 + 5 + 9 + 10 + 11
    assert stage.reserved_bytes == stage.allocated_bytes + 8
    assert stage.device_bytes == stage.total_bytes == sum(range(1, 12))


def test_the_interval_is_that_of_all_terms() -> None:
    stage = StageMemory(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    dynamic = stage.total_bytes - stage.static_bytes - 8
    # The low end contains neither the communicators (6) nor fragmentation (8).
    least = (1 - STATIC_SPREAD) * stage.static_bytes + (1 - DYNAMIC_SPREAD) * (dynamic - 6)
    assert stage.low_bytes == pytest.approx(least)
    most = (1 + STATIC_SPREAD) * stage.static_bytes + (1 + DYNAMIC_SPREAD) * dynamic
    assert stage.high_bytes == pytest.approx(most + 8 * FRAGMENTATION_SPREAD)
    static = StageMemory(0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0)
    assert static.total_bytes == 6
    assert static.high_bytes - 6 == pytest.approx(6 * STATIC_SPREAD)
    assert 6 - static.low_bytes == pytest.approx(6 * STATIC_SPREAD)


def test_cache_bytes_per_token_equal_published_values() -> None:
    llama = model("llama-3-70b")
    assert llama.layers * cache_bytes_per_token(llama.attention, 1, 2) == 327_680
    assert cache_bytes_per_token(llama.attention, 8, 2) == cache_bytes_per_token(
        llama.attention, 16, 2
    )
    deepseek = model("deepseek-v3")
    assert deepseek.layers * cache_bytes_per_token(deepseek.attention, 8, 2) == 70_272


def test_a_window_limits_the_cache_and_blocks_round_it_up() -> None:
    gemma = model("gemma-3-27b")
    short = count_windowed_layers(gemma)
    assert short == gemma.layers - gemma.layers // 6
    assert round_up_to_blocks(17, 16) == 32
    assert count_windowed_layers(model("llama-3-8b")) == 0


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
    assert graph_bytes(cost_model, graphs, load) == pytest.approx(nodes)
    assert after.workspace_bytes - before.workspace_bytes == pytest.approx(nodes)
    alone = replace(graphs, pp=1)
    assert graph_bytes(cost_model, alone, load) == pytest.approx(layers * 3 * 29 * 10e3)
    # One graph of a step needs no buffers between layers, but fixed input: 28 bytes per token.
    step = replace(eager, cuda_graphs="full_iteration")
    inputs = 8192 * 28 * step.micro_batches(plan.problem.job.global_batch)
    assert graph_bytes(cost_model, step, load) == pytest.approx(nodes + inputs)
    assert peak_stage(cost_model, step).activations_bytes == before.activations_bytes
