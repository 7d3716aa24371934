"""Activation bytes of one layer, counted by hand from the operators of the frameworks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.memory.activations import (
    LayerActivations,
    backward_working_bytes,
    layer_activations,
    saved_activation_bytes,
)
from parc.compiler.ir import DENSE, NO_RECOMPUTE, LayerKind, Layout, Model, ProgramMemory, Recompute
from tests.cost.memory.test_memory_terms import LLAMA, PLAIN, model
from tests.cost.memory.test_static_memory import plan_of

TOKENS, LENGTH = 4096.0, 4096
ROUTED = LayerKind("attention", "experts")


@pytest.fixture(scope="module")
def layout() -> Layout:
    """Return a layout with tp 2, sequence parallelism and etp 1."""
    chosen = plan_of(**LLAMA).layout
    return replace(chosen, recompute=NO_RECOMPUTE, sequence_parallel=True, ep=8, etp=1)


def _ungated(base: Model) -> Model:
    return replace(base, ffn=replace(base.ffn, gated=False, activation="gelu"))


def _layer(
    base: Model, layout: Layout, kind: LayerKind, program: ProgramMemory = PLAIN
) -> LayerActivations:
    return layer_activations(base, layout, kind, (TOKENS, LENGTH), program)


def test_experts_without_a_gate_save_their_activation_before_and_after_the_weights(
    layout: Layout,
) -> None:
    # moe/experts.py, bias_act_func: gelu saves its input, the product with the router weights saves
    # the output of gelu, and the second GEMM saves the product; swiglu is fused with the weights.
    gated = model("mixtral-8x7b")
    assert gated.experts is not None
    width = gated.experts.top_k * TOKENS / layout.tp * gated.experts.size
    one, two = _layer(gated, layout, ROUTED), _layer(_ungated(gated), layout, ROUTED)
    assert one.moe_act == 2 * width
    assert two.moe_act == (2 + 2) * width
    assert one.moe - two.moe == 2 * width


def test_experts_of_torch_programs_also_save_the_output_of_silu(layout: Layout) -> None:
    # torchtitan, models/common/moe.py: silu(x w1) * (x w3) saves silu's output and both products.
    mixtral, program = model("mixtral-8x7b"), replace(PLAIN, activation_copies=1.0)
    fused, eager = _layer(mixtral, layout, ROUTED), _layer(mixtral, layout, ROUTED, program)
    assert eager.moe_act == 2 * fused.moe_act
    assert eager.moe == fused.moe


def test_an_unfused_core_needs_the_gradient_of_the_attention_matrix_once(layout: Layout) -> None:
    llama = model("llama-3-8b")
    unfused = replace(PLAIN, fused_attention=False)
    matrix = 2 * llama.attention.heads / layout.tp * TOKENS * LENGTH
    plain, other = _layer(llama, layout, DENSE), _layer(llama, layout, DENSE, unfused)
    assert other.core_attn == matrix
    assert other.transient - plain.transient == matrix
    dropout = _layer(llama, layout, DENSE, replace(unfused, attention_dropout=True))
    assert dropout.core_attn == 2.5 * matrix


def test_offloaded_activations_stay_on_the_device_for_three_layers(layout: Layout) -> None:
    away = replace(layout, offload=replace(layout.offload, activations=("attention", "experts")))
    layer = _layer(model("mixtral-8x7b"), away, ROUTED)
    moved = layer.attention + layer.core_attn + layer.moe
    assert layer.offloaded_bytes(away) == moved
    assert saved_activation_bytes(layer, away, 5, 5) == pytest.approx(5 * (layer.total - moved))
    assert backward_working_bytes(layer, away) == layer.transient + 3 * moved


def test_recomputed_activations_are_not_offloaded(layout: Layout) -> None:
    recompute = Recompute.selective(("core_attn",))
    offload = replace(layout.offload, activations=("attention",))
    both = replace(layout, offload=offload, recompute=recompute)
    layer = _layer(model("llama-3-8b"), both, DENSE)
    assert layer.offloaded_bytes(both) == layer.attention
    left = layer.total - layer.attention - layer.core_attn
    assert saved_activation_bytes(layer, both, 1, 1) == pytest.approx(left)
    full = replace(both, recompute=Recompute("full", (), "uniform", 1))
    assert layer.offloaded_bytes(full) == 0.0


def test_only_inputs_of_separate_norms_count_as_offloaded_norms(layout: Layout) -> None:
    offload = replace(layout, offload=replace(layout.offload, activations=("norms",)))
    layer = _layer(model("mixtral-8x7b"), offload, ROUTED)
    # TransformerEngine fuses the norm before attention; the one before the experts is separate.
    assert layer.offloaded_bytes(offload) == layer.residual / 2
    assert _layer(model("llama-3-8b"), offload, DENSE).offloaded_bytes(offload) == 0.0


def test_recompute_of_all_experts_frees_the_router_too(layout: Layout) -> None:
    layer = _layer(model("mixtral-8x7b"), layout, ROUTED)
    assert layer.router > 0
    parts = layer.moe + layer.moe_act + layer.shared_experts + layer.router
    assert layer.bytes_of_modules(("moe",)) == pytest.approx(parts)


def test_modules_compiled_one_by_one_save_only_the_attention_core(layout: Layout) -> None:
    # Compiled code calls aten.mm.out, and torchtitan's policy names aten.mm (torch 2.13 on a CPU).
    mixtral, program = model("mixtral-8x7b"), replace(PLAIN, saves_products=False)
    layer = _layer(mixtral, layout, ROUTED, program)
    core = 2 * TOKENS * mixtral.attention.heads * mixtral.attention.head_dim / layout.tp
    assert layer.operators == layer.checkpoint + layer.core_attn + core
    # Dense layers are compiled as a whole, inside the recomputation.
    dense = _layer(mixtral, layout, DENSE, program)
    assert dense.operators == _layer(mixtral, layout, DENSE).operators
