"""Linear attention and Mamba layers: parameters, FLOPs, saved bytes and exchanged bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.registry import framework
from parc.compiler.cost.counts import params
from parc.compiler.cost.counts.flops import layer_flops, model_flops
from parc.compiler.cost.kernels.recurrence import (
    gated_delta_rule,
    recurrence_of_layer,
    scan_seconds,
)
from parc.compiler.cost.memory.micro_batches import cached_layer_activations
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.cost.memory.workspaces import weight_shapes
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import contents_of_chunks
from parc.compiler.cost.step.context_exchange import (
    context_exchange_bytes,
    mixer_exchange_seconds,
    recurrence_exchange_bytes,
)
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.ir import LayerKind, Layout, Model, ModelChunk
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import plan_of
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT, model_of
from tests.kernel_fits import kernel_fit_of_gpu

LINEAR = LayerKind("linear", "experts")
MAMBA = LayerKind("mamba", "none")
KINDS = [(QWEN3_NEXT, LINEAR), (NEMOTRON_NANO, MAMBA)]
LLAMA = {
    "parc": 1,
    "name": "one",
    "model": "llama-3-8b",
    "cluster": {"nodes": 1, "node": "dgx-h100"},
    "job": {"global_batch": 64, "sequence_length": 4096},
    "emit": ["megatron"],
}


def priced(facts: dict[str, object], **layout: int) -> tuple[CostModel, Layout]:
    """Return a problem with another model, and a layout of a valid plan."""
    plan = plan_of(LLAMA)
    problem = replace(plan.problem, model=model_of(facts))
    made = replace(plan.layout, tp=1, cp=1, micro_batch=1, sequence_parallel=False)
    return cost_model_for(problem, framework("megatron")), replace(made, **layout)


def test_layer_kinds_follow_the_attention_interval_or_the_letters_of_a_pattern() -> None:
    assert Counter(kind.mixer for kind in model_of(QWEN3_NEXT).layer_kinds) == {
        "linear": 36,
        "attention": 12,
    }
    nano = model_of(NEMOTRON_NANO)
    attention = LayerCounts.from_kinds(nano.layer_kinds).attention
    assert (attention, nano.moe_layers, nano.dense_layers) == (6, 23, 0)
    assert sum(kind.sub_layers for kind in nano.layer_kinds) == nano.layers


# Totals of the published weights: Qwen3-Next without its prediction layer, Nemotron 3 Nano
# without the load-balancing biases of its routers, which are buffers.
@pytest.mark.parametrize(
    ("facts", "total"), [(QWEN3_NEXT, 79_674_391_296), (NEMOTRON_NANO, 31_577_937_344)]
)
def test_parameters_equal_those_of_the_published_weights(
    facts: dict[str, object], total: int
) -> None:
    assert params.total_params(model_of(facts)) == total


@pytest.mark.parametrize(("facts", "kind"), KINDS)
def test_tensor_ranks_divide_a_mixer_except_for_unsplit_weights(
    facts: dict[str, object], kind: LayerKind
) -> None:
    model = model_of(facts)
    whole = model.linear.value_dim if model.linear else 0
    mine = params.mixer_params(model, kind, tp=8)
    assert 8 * (mine - whole) + whole == params.mixer_params(model, kind)


# Megatron-Bridge performance summary, container 26.06: tokens/s/GPU and TFLOP/s/GPU of Nemotron
# 3 Nano on GB300, B300 and H100. Megatron takes the inside of a Mamba layer for twice the hidden
# width, 5,376; it is 4,096 wide.
@pytest.mark.parametrize(
    ("tokens", "tflops"), [(39_749.0, 885.0), (37_316.0, 831.0), (14_719.0, 328.0)]
)
def test_flops_equal_published_tables_except_for_the_mamba_scan(
    tokens: float, tflops: float
) -> None:
    model = model_of(NEMOTRON_NANO)
    mamba = model.mamba
    assert mamba is not None
    wider = 2 * model.hidden - mamba.inner_width
    more = 3 * 23 * wider * (6 * model.hidden + 7 * mamba.state_size)
    counted = model_flops(model, tokens, 8192) + tokens * more
    assert counted / 1e12 == pytest.approx(tflops, rel=2e-3)


@pytest.mark.parametrize(("facts", "kind"), KINDS)
def test_flops_of_a_recurrence_do_not_depend_on_sequence_length(
    facts: dict[str, object], kind: LayerKind
) -> None:
    model = model_of(facts)
    short, long = (layer_flops(model, kind, 1.0, length).total for length in (4096, 65536))
    assert short == long
    attention = next(one for one in model.kinds if one.mixer == "attention")
    assert layer_flops(model, attention, 1.0, 4096) != layer_flops(model, attention, 1.0, 65536)


@pytest.mark.parametrize(("facts", "kind"), KINDS)
def test_time_and_saved_bytes_grow_with_tokens_and_shrink_with_tensor_ranks(
    facts: dict[str, object], kind: LayerKind
) -> None:
    cost_model, layout = priced(facts)
    # Without launch times, which are longer than the computation for 512 experts per rank.
    efficiency = replace(cost_model.efficiency, launch_seconds=0.0)
    cost_model.efficiency = efficiency
    program = memory_model_at_zero_stage(cost_model, layout.zero_stage)
    more, split = replace(layout, micro_batch=2), replace(layout, tp=4)
    kept, seconds = {}, {}
    for made in (layout, more, split):
        norm = 2 * made.tokens(4096) * cost_model.problem.model.hidden
        kept[made] = cached_layer_activations(cost_model, made, kind, program).attention - norm
        seconds[made] = layer_time(cost_model, made, kind).forward
    assert kept[more] == 2 * kept[layout]
    assert kept[split] == pytest.approx(kept[layout] / 4)
    assert 1.5 < seconds[more] / seconds[layout] < 2.1
    assert seconds[split] < seconds[layout]
    assert cached_layer_activations(cost_model, layout, kind, program).core_attn == 0


@pytest.mark.parametrize(("facts", "kind"), KINDS)
def test_context_ranks_exchange_inputs_and_outputs_of_a_recurrence(
    facts: dict[str, object], kind: LayerKind
) -> None:
    cost_model, layout = priced(facts, cp=4)
    part = recurrence_of_layer(cost_model.problem.model, kind)
    assert part is not None
    assert recurrence_exchange_bytes(cost_model, layout, kind) == 2 * 1024 * (
        part.projected + part.inner
    )
    moved = context_exchange_bytes(cost_model, layout, kind)
    assert moved == {"cp": 2 * recurrence_exchange_bytes(cost_model, layout, kind) * 3 / 4}
    assert mixer_exchange_seconds(cost_model, layout, kind, core=1.0).total > 0
    assert (
        mixer_exchange_seconds(cost_model, layout, LayerKind("none", "experts"), core=1.0).total
        == 0
    )
    assert context_exchange_bytes(cost_model, layout, LayerKind("none", "experts")) == {}


# ai-dynamo/aiconfigurator 0.12, gdn_perf, chunk_gated_delta_rule with 16 key heads of 128. A shape
# is sequences, tokens of each and value heads.
@pytest.mark.parametrize(
    ("gpu", "shape", "seconds"),
    [
        ("h100-sxm-80gb", (1, 2048, 32), 0.169e-3),
        ("h100-sxm-80gb", (1, 8192, 64), 1.082e-3),
        ("h100-sxm-80gb", (4, 8192, 32), 2.055e-3),
        ("b200-180gb", (1, 2048, 32), 0.142e-3),
        ("b200-180gb", (4, 8192, 64), 3.177e-3),
    ],
)
def test_the_gated_delta_rule_takes_its_measured_time(
    gpu: str, shape: tuple[int, int, int], seconds: float
) -> None:
    batch, sequence, heads = shape
    linear = model_of(QWEN3_NEXT).linear
    assert linear is not None
    part = gated_delta_rule(replace(linear, value_heads=heads))
    found = scan_seconds(kernel_fit_of_gpu(gpu).scan, part, batch * sequence, sequence)
    assert found == pytest.approx(seconds, rel=0.08)


def test_a_long_sequence_takes_longer_than_short_ones_with_as_many_tokens() -> None:
    part = recurrence_of_layer(model_of(QWEN3_NEXT), LINEAR)
    assert part is not None
    fit = kernel_fit_of_gpu("h100-sxm-80gb").scan
    waits = (8192 - 1024) / part.chunk * fit.chunk_seconds
    longer = scan_seconds(fit, part, 8192, 8192) - scan_seconds(fit, part, 8192, 1024)
    assert longer == pytest.approx(waits)


def chunk(first: int, layers: int) -> ModelChunk:
    """Return a chunk of decoder layers without embedding and loss."""
    return ModelChunk(first, layers, embedding=False, mtp_layers=0, loss=False)


def letters(model: Model, first: int, stop: int) -> Counter[LayerKind]:
    """Return the number of layers by kind in a range."""
    return Counter(model.layer_kinds[first:stop])


@given(
    pattern=st.text("M*E-", min_size=1, max_size=40).filter(lambda text: "E" in text),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_stages_contain_the_layer_kinds_of_their_range(pattern: str, cuts: list[int]) -> None:
    facts = {**NEMOTRON_NANO, "pattern": pattern + "M", "layers": len(pattern) + 1, "ffn": 64}
    model = model_of(facts)
    edges = sorted({0, model.layers, *(min(cut, model.layers) for cut in cuts)})
    for first, stop in pairwise(edges):
        load = contents_of_chunks(model, (chunk(first, stop - first),))
        assert load.layers_by_kind(model) == letters(model, first, stop)
        assert load.routed_layers(model) == pattern[first:stop].count("E")


@pytest.mark.parametrize(("facts", "kind"), KINDS)
def test_weight_shapes_of_a_recurrence_are_its_projections(
    facts: dict[str, object], kind: LayerKind
) -> None:
    cost_model, layout = priced(facts)
    model = cost_model.problem.model
    only = tuple(int(one == kind) for one in model.kinds)
    load = contents_of_chunks(model, (chunk(0, 1),))._replace(counts=only)
    part = recurrence_of_layer(model, kind)
    assert part is not None
    shapes = weight_shapes(model, replace(layout, ep=1, etp=1), load, 0)
    assert {(part.projected, model.hidden), (model.hidden, part.inner)} <= shapes
