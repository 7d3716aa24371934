"""Memory models of the training programs that PARC starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.accelerate.memory import accelerate_memory, deepspeed_plugin_memory
from parc.backends.deepspeed.memory import deepspeed_decoder_memory
from parc.backends.megatron.memory import (
    megatron_memory,
    megatron_memory_model,
    with_bf16_moments,
    with_gradient_bytes,
)
from parc.backends.registry import framework, framework_of_problem
from parc.backends.shared.torch.memory import (
    emitted_decoder_memory,
    fsdp2_memory,
    transformers_memory,
    with_transformers_attention,
)
from parc.backends.torchtitan.memory import torchtitan_memory
from parc.compiler.cost.memory.activations import layer_activations
from parc.compiler.cost.memory.micro_batches import logits_bytes
from parc.compiler.cost.memory.peak import (
    memory_model_at_zero_stage,
    peak_bytes,
    peak_stage,
    stage_memory,
)
from parc.compiler.cost.memory.states import (
    gathered_weight_bytes,
    low_precision_copy_bytes,
    optimizer_step_bytes,
    optimizer_step_peak_bytes,
    weight_gradient_optimizer_bytes,
)
from parc.compiler.cost.memory.workspaces import library_workspace_bytes
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.ir import DENSE, Plan, ProgramMemory
from parc.compiler.ir.program_memory import StateBytes
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests import compiled
from tests.backends.megatron.boundaries import DENSE as SPEC
from tests.cost.memory.test_memory_terms import LLAMA, model
from tests.cost.memory.test_static_memory import plan_of
from tests.generations import generation

HIDDEN, FFN, STATISTICS = 4096, 14336, 4 * 32
KEYS = 8 * 128
KEPT = {
    "fsdp2": (emitted_decoder_memory(), 12 * HIDDEN + 4 * KEYS + 8 * FFN),
    "fsdp2 autocast": (
        emitted_decoder_memory().for_zero_stage(0),
        22 * HIDDEN + 4 * KEYS + 8 * FFN,
    ),
    "accelerate": (accelerate_memory(), 20 * HIDDEN + 4 * KEYS + 8 * FFN),
    "transformers autocast": (
        accelerate_memory().for_zero_stage(0),
        30 * HIDDEN + 4 * KEYS + 8 * FFN,
    ),
    "torchtitan": (torchtitan_memory(), 12 * HIDDEN + 4 * KEYS + 8 * FFN),
    "deepspeed": (deepspeed_decoder_memory("bf16", 4.0), 16 * HIDDEN + 8 * FFN),
    "accelerate deepspeed": (
        deepspeed_plugin_memory(deepspeed_decoder_memory("bf16", 4.0)),
        20 * HIDDEN + 4 * KEYS + 8 * FFN,
    ),
}
"""Bytes per token and layer that autograd saves for Llama 3 8B, without softmax statistics."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(**LLAMA)


@pytest.mark.parametrize("name", KEPT)
def test_saved_bytes_of_a_layer_equal_those_of_autograd(plan: Plan, name: str) -> None:
    program, bytes_a_token = KEPT[name]
    layout = replace(plan.layout, tp=1, cp=1)
    layer = layer_activations(model("llama-3-8b"), layout, DENSE, (1.0, 1), program)
    assert layer.total == bytes_a_token + STATISTICS
    assert program.name == name


def test_norms_on_queries_and_keys_save_their_inputs(plan: Plan) -> None:
    layout, plain = replace(plan.layout, tp=1, cp=1), model("llama-3-8b")
    normed = replace(plain, attention=replace(plain.attention, qk_norm="head"))
    one, two = (
        layer_activations(
            shape, layout, DENSE, (1.0, 1), megatron_memory("bf16", generation("hopper"))
        ).total
        for shape in (plain, normed)
    )
    assert two - one == 2 * (HIDDEN + KEYS)


def test_a_program_has_a_second_memory_model_only_without_sharding() -> None:
    sharded = emitted_decoder_memory()
    assert sharded.for_zero_stage(3) is sharded
    assert sharded.for_zero_stage(2) is sharded
    assert torchtitan_memory().for_zero_stage(0) == torchtitan_memory()
    assert megatron_memory("bf16", generation("hopper")).for_zero_stage(0).name == "megatron"


def logits(plan: Plan, program: ProgramMemory, tp: int) -> float:
    """Return the bytes per token of logits, loss and the inputs of the head."""
    cost_model = cost_model_for(plan.problem, framework("fsdp"))
    layout = replace(plan.layout, tp=tp, pp=1, cp=1, micro_batch=1)
    load = stage_contents(plan.problem.model, plan.layout.split, 0)
    load = load._replace(loss=True, embedding=True)
    return logits_bytes(cost_model, layout, load, program) / plan.problem.job.sequence_length


def test_torchtitan_computes_an_eighth_of_the_logits_at_a_time(plan: Plan) -> None:
    vocab, hidden = plan.problem.model.vocab, plan.problem.model.hidden
    assert logits(plan, torchtitan_memory(), 1) == 14 * vocab / 8 + 10 * hidden
    assert logits(plan, torchtitan_memory(), 4) == 18 * vocab / 32 + 10 * hidden
    assert logits(plan, fsdp2_memory(), 1) == 14 * vocab + 4 * hidden


def test_ranks_that_gather_the_logits_store_all_of_them(plan: Plan) -> None:
    vocab, hidden = plan.problem.model.vocab, plan.problem.model.hidden
    assert logits(plan, emitted_decoder_memory(), 1) == 12 * vocab + 4 * hidden
    assert logits(plan, emitted_decoder_memory(), 4) == 12 * vocab + 4 * hidden
    assert logits(plan, accelerate_memory(), 1) == 12 * vocab + 8 * hidden


def test_a_root_unit_of_both_tables_stays_gathered(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("fsdp"))
    layout = replace(plan.layout, tp=1, pp=1, cp=1, zero_stage=3, dp_shard=8)
    load = stage_contents(plan.problem.model, plan.layout.split, 0)
    load = load._replace(loss=True, embedding=True)
    table = plan.problem.model.vocab * plan.problem.model.hidden
    units = [fsdp2_memory(), torchtitan_memory(), emitted_decoder_memory()]
    gathered = [gathered_weight_bytes(cost_model, layout, load, program) for program in units]
    assert gathered == [0.0, 0.0, 4 * table]


def test_autocast_stores_casts_of_all_weights_except_the_embedding(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("fsdp"))
    layout = replace(plan.layout, tp=1, pp=1, cp=1, zero_stage=0)
    load = stage_contents(plan.problem.model, plan.layout.split, 0)
    load = load._replace(loss=True, embedding=True)
    table = plan.problem.model.vocab * plan.problem.model.hidden
    dense, _ = cost_model.stage_parameters(layout, load)
    assert low_precision_copy_bytes(
        cost_model, layout, load, emitted_decoder_memory().for_zero_stage(0)
    ) == 2 * (dense - table)
    assert low_precision_copy_bytes(cost_model, layout, load, emitted_decoder_memory()) == 0.0


PROGRAMS = {
    ("megatron",): "megatron, sharded",
    ("fsdp",): "fsdp2",
    ("torchtitan",): "torchtitan",
    ("accelerate",): "accelerate",
    ("deepspeed",): "deepspeed",
    ("accelerate", "deepspeed"): "accelerate deepspeed",
}


@pytest.mark.parametrize("emit", PROGRAMS)
def test_every_framework_has_a_memory_model_of_its_program(
    plan: Plan, emit: tuple[str, ...]
) -> None:
    problem = replace(plan.problem, framework=emit[-1], emit=emit)
    cost_model = cost_model_for(problem, framework_of_problem(problem))
    assert memory_model_at_zero_stage(cost_model, 3).name == PROGRAMS[emit]


def test_16_bit_gradients_are_copied_to_fp32_when_activations_are_gone(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("megatron"))
    layout = replace(plan.layout, zero_stage=0)
    load = stage_contents(plan.problem.model, layout.split, 0)
    bf16 = megatron_memory("bf16", generation("hopper"))
    narrow, wide = with_gradient_bytes(bf16, 2.0), with_gradient_bytes(bf16, 4.0)
    dense, _ = cost_model.stage_parameters(layout, load)
    assert optimizer_step_bytes(cost_model, layout, load, narrow) == 4 * dense
    assert optimizer_step_bytes(cost_model, layout, load, wide) == 0.0
    fp16 = megatron_memory("fp16", generation("hopper"))
    assert optimizer_step_bytes(cost_model, layout, load, fp16) == 4 * dense
    more, less = (stage_memory(cost_model, layout, load, 0, program) for program in (wide, narrow))
    passing = less.activations_bytes + less.logits_bytes
    assert passing == max(4 * dense, more.activations_bytes + more.logits_bytes)


def test_the_fast_sum_includes_the_peak_of_the_optimizer(plan: Plan) -> None:
    job = replace(plan.problem.job, gradient_precision="bf16")
    cost_model = cost_model_for(replace(plan.problem, job=job), framework("megatron"))
    layout = replace(plan.layout, zero_stage=0, micro_batch=1)
    total = peak_stage(cost_model, layout).total_bytes
    assert peak_bytes(cost_model, layout) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("gradient_bytes", "copied"), [(2.0, 4.0), (4.0, 0.0)])
def test_the_optimizer_of_megatron_copies_16_bit_gradients_to_fp32(
    gradient_bytes: float, copied: float
) -> None:
    start = ProgramMemory("any", StateBytes(2.0, 4.0, 12.0))
    found = with_gradient_bytes(start, gradient_bytes)
    assert (found.state.gradient, found.state.step) == (gradient_bytes, copied)


@pytest.mark.parametrize(
    ("precision", "gradient", "state"),
    [
        ("bf16", 4.0, StateBytes(2, 6, 12)),
        ("bf16", 2.0, StateBytes(2, 2, 12, step=4)),
        ("fp16", 4.0, StateBytes(2, 2, 12, step=4)),
    ],
)
def test_deepspeed_has_unsharded_fp32_gradients_only_for_bf16(
    precision: str, gradient: float, state: StateBytes
) -> None:
    assert deepspeed_decoder_memory(precision, gradient).state == state


@pytest.mark.parametrize(("stage", "buckets"), [(2, 2), (3, 1)])
def test_deepspeed_reduces_gradients_from_two_buckets_at_stage_2(
    plan: Plan, stage: int, buckets: int
) -> None:
    cost_model = cost_model_for(plan.problem, framework("deepspeed"))
    layout = replace(plan.layout, zero_stage=stage)
    program = deepspeed_decoder_memory("bf16", 2.0)
    found = library_workspace_bytes(cost_model, layout, program)
    # A bucket has 5e8 elements of 16 bit.
    assert found == buckets * 5e8 * 2


def test_zero_3_of_deepspeed_copies_the_gradients_of_one_group_and_frees_weights_before(
    plan: Plan,
) -> None:
    cost_model = cost_model_for(plan.problem, framework("deepspeed"))
    layout = replace(plan.layout, zero_stage=3, dp_shard=1, cp=1, dp_replicate=1)
    load = stage_contents(plan.problem.model, layout.split, 0)
    program = replace(deepspeed_decoder_memory("fp16", 2.0), step_parameters=1e8)
    sharded = replace(layout, dp_shard=2)
    assert optimizer_step_bytes(cost_model, sharded, load, program) == 4e8
    gathered = gathered_weight_bytes(cost_model, sharded, load, program)
    found = optimizer_step_peak_bytes(cost_model, sharded, load, program)
    assert gathered > 0
    assert found == max(4e8 - gathered, 0.0)


def test_gradients_stay_whole_until_the_last_micro_batch_reduces_them(plan: Plan) -> None:
    cost_model = cost_model_for(plan.problem, framework("fsdp"))
    layout = replace(plan.layout, zero_stage=3, pp=1, vpp=1)
    load = stage_contents(plan.problem.model, layout.split, 0)
    each = fsdp2_memory()
    once = replace(each, name="once", state=replace(each.state, unreduced=4.0))
    batch = plan.problem.job.global_batch
    several = replace(layout, micro_batch=1, dp_shard=batch // 2, dp_replicate=1)
    single = replace(several, dp_shard=batch)
    parameters = sum(cost_model.stage_parameters(several, load))
    for made, whole in ((several, True), (single, False)):
        found = weight_gradient_optimizer_bytes(cost_model, made, load, once)[1]
        usual = weight_gradient_optimizer_bytes(cost_model, made, load, each)[1]
        assert found == (4 * parameters if whole else usual)


def test_a_fused_activation_of_experts_without_gate_saves_its_output_only_once(
    plan: Plan,
) -> None:
    routed = model("nemotron-3-nano-30b-a3b")
    kind = next(kind for kind in routed.kinds if kind.routed)
    assert routed.experts is not None
    start = ProgramMemory("any", StateBytes(2.0, 4.0, 12.0))
    layout = replace(plan.layout, tp=1, cp=1, etp=1)
    tokens = 1024.0
    unfused, fused = (
        layer_activations(routed, layout, kind, (tokens, 1024), program).moe_act
        for program in (start, replace(start, weighted_copies=0.0))
    )
    width = tokens * routed.experts.top_k * routed.experts.size
    assert unfused - fused == 2 * width


@pytest.mark.parametrize(
    ("precision", "optimizer", "copied"),
    [("bf16", 2 + 2 + 2, 0.0), ("nvfp4", 2 + 2 + 2, 0.0), ("fp8", 4 + 2 + 2, 4.0)],
)
def test_bf16_moments_leave_the_rest_of_the_master_weight(
    precision: str, optimizer: float, copied: float
) -> None:
    # TransformerEngine's FusedAdam stores the low 16 bits of a master weight; with tensorwise fp8
    # Megatron keeps the fp32 master weight and the fp32 copy of 16-bit gradients.
    start = with_gradient_bytes(megatron_memory(precision, generation("hopper")), 2.0)
    found = with_bf16_moments(start, precision)
    assert (found.state.optimizer, found.state.step) == (optimizer, copied)
    assert (found.state.weight, found.state.gradient) == (2.0, 2.0)


def test_settings_of_recipes_change_the_memory_of_megatron() -> None:
    problem = compiled.plan_of(SPEC).problem

    def program(**changes: Any) -> ProgramMemory:
        return megatron_memory_model(replace(problem, job=replace(problem.job, **changes)))

    plain = program()
    assert plain.fully_sharded is not None
    sharded = replace(plain.fully_sharded, loss_bytes=10.0)
    assert program(fused_loss=True) == replace(plain, loss_bytes=10.0, fully_sharded=sharded)
    # 8 buffers for gathers and 4 for scatters, with 8-bit gathers in fp8.
    assert program(tp_overlap=True).overlap_buffer_bytes == 8 * 2 + 4 * 2
    assert program(tp_overlap=True, precision="fp8").overlap_buffer_bytes == 8 + 4 * 2
    assert program(tp_overlap=True).workspace_bytes > plain.workspace_bytes
    # Delayed scales store fp8 weights as tensorwise ones do; blockwise ones keep bf16 weights.
    assert program(precision="fp8", fp8_recipe="delayed") == program(precision="fp8")
    blockwise = program(precision="fp8", fp8_recipe="blockwise")
    assert (blockwise.state.weight, blockwise.state.cast) == (2.0, 2.0)
    assert blockwise.saved_bytes == 1.03125


def test_weights_are_stored_in_low_precision_only_where_megatron_can_gather_them() -> None:
    problem = compiled.plan_of(SPEC).problem

    def states(**changes: Any) -> tuple[StateBytes, StateBytes]:
        job = replace(problem.job, **changes)
        program = megatron_memory_model(replace(problem, job=job))
        return program.state, program.for_zero_stage(0).state

    # Two copies of an mxfp8 weight with scales per 32 values, and no 16-bit weight; the vocabulary
    # matrices keep 16 bits.
    sharded, replicated = states(precision="mxfp8")
    assert (sharded.weight, sharded.cast, sharded.table) == (2 * (1 + 1 / 32), 0.0, 2.0)
    assert (replicated.weight, replicated.cast) == (2.0, 2 * (1 + 1 / 32))
    sharded, _ = states(precision="nvfp4")
    assert (sharded.weight, sharded.cast) == (2 * (1 / 2 + 1 / 16), 0.0)
    # Neither the precision-aware optimizer nor blockwise scales work with low-precision weights.
    for kept in (
        {"precision": "nvfp4", "moment_precision": "bf16"},
        {"precision": "fp8", "fp8_recipe": "blockwise"},
    ):
        assert states(**kept)[0].weight == 2.0
        assert states(**kept)[0].table is None


def test_buffers_of_overlap_grow_with_the_micro_batch_and_need_tensor_parallelism() -> None:
    job = {**SPEC["job"], "tp_overlap": True}
    for tp, micro_batch, tokens in ((4, 1, 1536), (4, 2, 3072), (1, 1, 0)):
        layout = {**SPEC["layout"], "tp": tp, "micro_batch": micro_batch}
        with_buffers = compiled.plan_of({**SPEC, "job": job, "layout": layout})
        without = compiled.plan_of({**SPEC, "layout": layout})
        rows = (with_buffers.estimate.memory[0], without.estimate.memory[0])
        streams = with_buffers.problem.cluster.generation.transformer_engine_workspace_kib * 1024
        grown = rows[0].workspace_bytes - rows[1].workspace_bytes
        assert grown == tokens * 1024 * 24 + 3 * streams


def test_attention_with_sinks_stores_the_scores_in_programs_of_transformers(plan: Plan) -> None:
    gpt_oss, length = model("gpt-oss-20b"), 1024
    heads, layout = gpt_oss.attention.heads, replace(plan.layout, tp=1, cp=1)
    stored, plain = (
        layer_activations(gpt_oss, layout, gpt_oss.kinds[0], (1.0, length), program)
        for program in (
            with_transformers_attention(transformers_memory(), gpt_oss),
            replace(transformers_memory(), repeats_keys=True),
        )
    )
    # The softmax replaces the statistics; its two gradients exist in the backward pass.
    assert stored.core_attn - plain.core_attn == 2 * heads * length - 4 * heads
    assert stored.transient - plain.transient == 4 * heads * length
