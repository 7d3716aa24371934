"""Formulas of kernels and collectives by hand, with fits that leave one term each."""

from __future__ import annotations

from dataclasses import replace
from math import log2

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.cost.kernels.attention import (
    AttentionShape,
    prefill_seconds,
)
from parc.compiler.cost.kernels.collective_time import (
    OPERATIONS,
    CollectiveFit,
    InterDomainNetwork,
    Operation,
    collective_seconds,
    two_level_collective_seconds,
)
from parc.compiler.cost.kernels.gemm import CastFit, HostLaunchFloors
from parc.compiler.cost.kernels.layer_kernels import (
    ROW_TILE,
    attention_gemm_shapes,
    expert_gemm_shapes,
    fused_attention_core_seconds,
    mlp_gemm_shapes,
)
from parc.compiler.cost.serving.deployment import RAMP_BYTES, ServingLinks
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Layout, Model
from parc.compiler.resolve.resolve_model import resolve_model
from tests.cost.kernels.test_gemm import PLAIN as PLAIN_GEMM
from tests.kernel_fits import kernel_fit_of_gpu

WIRE = CollectiveFit(
    operation="all_gather",
    link_gb_per_s=1.0,
    latency_seconds=0.0,
    rank_seconds=0.0,
    bus_gb_per_s=1e-9,
    copy=0.0,
    ramp_seconds=0.0,
    ramp_bytes=1.0,
)
"""Link of one byte per second without latency."""
LATENCY = replace(WIRE, bus_gb_per_s=1e30, latency_seconds=1.0, rank_seconds=0.5)


@pytest.mark.parametrize("ranks", [2, 4, 7, 8, 9, 16, 72])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_collective_sends_its_share_once_and_an_all_reduce_twice(
    operation: Operation, ranks: int
) -> None:
    fit = replace(WIRE, operation=operation)
    once = (ranks - 1) / ranks
    factor = 2 * once if operation == "all_reduce" else once
    assert collective_seconds(fit, 100.0, ranks) == pytest.approx(100 * factor)
    with_copy = collective_seconds(replace(fit, copy=0.25), 100.0, ranks)
    assert with_copy == pytest.approx(100 * (factor + 0.25 / ranks))
    in_switch = collective_seconds(replace(fit, switch_factor=0.5), 100.0, ranks)
    assert in_switch == pytest.approx(100 * factor * (0.5 if ranks >= 8 else 1))
    crowded = collective_seconds(replace(fit, crowding=2.0), 100.0, ranks)
    assert crowded == pytest.approx(100 * factor * ranks**2 / 4)


@pytest.mark.parametrize("ranks", [2, 7, 8, 9, 16, 72])
def test_latency_grows_with_the_ranks_and_above_eight_with_their_logarithm(ranks: int) -> None:
    steps = ranks - 1 if ranks <= 8 else 7 + 2 * log2(ranks / 8)
    assert collective_seconds(LATENCY, 1.0, ranks) == pytest.approx(1 + 0.5 * steps)
    ramped = replace(LATENCY, ramp_seconds=3.0, ramp_bytes=10.0)
    assert collective_seconds(ramped, 5.0, ranks) == pytest.approx(2 + 0.5 * steps)


@pytest.mark.parametrize(("domains", "tree"), [(2, 2), (3, 4), (8, 12), (64, 24)])
@pytest.mark.parametrize("local", [1, 4])
def test_domains_add_the_hops_of_a_ring_and_an_all_reduce_those_of_a_ring_or_of_a_tree(
    domains: int, tree: int, local: int
) -> None:
    network = InterDomainNetwork(gb_per_s_per_gpu=1e30, hop_seconds=10.0)
    inside = 1.0 if local == 1 else 1 + 0.5 * 3
    seconds = two_level_collective_seconds(LATENCY, network, 1.0, local, domains)
    assert seconds == pytest.approx(inside + 10 * (domains - 1))
    both = replace(LATENCY, operation="all_reduce")
    seconds = two_level_collective_seconds(both, network, 1.0, local, domains)
    assert seconds == pytest.approx(inside + 10 * tree)


def test_traffic_between_domains_is_divided_by_the_ranks_of_a_domain_but_not_in_an_all_to_all() -> (
    None
):
    network = InterDomainNetwork(gb_per_s_per_gpu=1e-9, hop_seconds=0.0)
    fast = replace(WIRE, bus_gb_per_s=1e30)
    assert two_level_collective_seconds(fast, network, 64.0, 4, 2) == pytest.approx(64 / 4 * 7 / 8)
    exchange = replace(fast, operation="all_to_all")
    assert two_level_collective_seconds(exchange, network, 64.0, 4, 2) == pytest.approx(64 / 2)


def test_the_device_time_of_a_gemm_has_neither_casts_nor_launch_gaps() -> None:
    fit = replace(PLAIN_GEMM, cast=CastFit(1, 1, 1, 1), floors=HostLaunchFloors(1, 1, 1))
    assert fit.without_gaps_and_casts() == PLAIN_GEMM


MODELS = (
    "llama-3-8b",
    "gpt2-small",
    "deepseek-v3",
    "deepseek-v2-lite",
    "gpt-oss-20b",
    "mixtral-8x7b",
)


def model_of(name: str) -> Model:
    model = resolve_model(name, Library(None), Sink())
    assert model is not None
    return model


TOKENS = 4096.0


def layout_of(tp: int) -> Layout:
    ones = dict.fromkeys(Layout.__dataclass_fields__, 1)
    return replace(Layout(**ones), tp=tp, etp=tp, sequence_parallel=tp > 1)


def weights_of(shapes: list[tuple[float, float, float]], tp: int) -> float:
    """Return the number of weights of all ranks that multiply a token."""
    return sum(m * n * k for m, n, k in shapes) * tp / TOKENS


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_gemms_of_a_layer_have_all_its_matrices(name: str, tp: int) -> None:
    model = model_of(name)
    attention = model.attention
    if any(kind.mixer == "attention" for kind in model.kinds):
        found = weights_of(attention_gemm_shapes(model, layout_of(tp), TOKENS), tp)
        counted = params.attention_params(model)
        # Biases, norms and sinks are vectors.
        latent = attention.latent
        longest = 2 * (attention.heads + attention.kv_heads) * attention.head_dim + model.hidden
        longest += latent.kv_lora_rank + (latent.q_lora_rank or 0) if latent else 0
        assert 0 <= counted - found <= 2 * longest
    if model.dense_layers and model.ffn.size:
        found = weights_of(mlp_gemm_shapes(model, layout_of(tp), TOKENS, model.ffn.size), tp)
        plain = replace(model, ffn=replace(model.ffn, bias=False))
        assert found == params.dense_mlp_params(plain)


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite", "mixtral-8x7b"])
def test_the_gemms_of_an_expert_pad_its_rows_to_whole_tiles(name: str) -> None:
    model = model_of(name)
    experts = model.experts
    assert experts is not None
    plain = replace(model, ffn=replace(model.ffn, bias=False))
    (rows, columns, hidden), (same_rows, out, inner) = expert_gemm_shapes(
        model, layout_of(1), TOKENS
    )
    assert rows == same_rows
    routed = experts.top_k * TOKENS
    assert routed <= rows * experts.count < routed + experts.count * ROW_TILE
    assert rows % ROW_TILE == 0
    assert columns * hidden + out * inner == params.expert_params(plain)


LINKS = ServingLinks(
    domain=4,
    host=8,
    link_gb_per_s=4e-9,
    pcie_gb_per_s=2e-9,
    network_gb_per_s=1e-9,
    link_seconds=1000.0,
    network_seconds=3000.0,
)
"""Domains of 4 GPUs at 4 bytes per second, hosts of 8 at 2, and a network of 1."""
LONG = 1e18
"""Message against which latencies and the ramp are negligible."""


@pytest.mark.parametrize(
    ("size", "stride", "rate"),
    [
        *((2, 1, 4), (4, 1, 4), (2, 3, 4)),
        *((2, 4, 2), (5, 1, 2), (8, 1, 2), (2, 7, 2)),
        *((2, 8, 1), (9, 1, 1), (3, 4, 1)),
    ],
)
def test_a_group_uses_the_slowest_link_between_its_first_and_last_rank(
    size: int, stride: int, rate: int
) -> None:
    once = (size - 1) / size * LONG / rate
    assert LINKS.gather_seconds(LONG, size, stride) == pytest.approx(once)
    if stride == 1:
        assert LINKS.all_reduce_seconds(LONG, size) == pytest.approx(2 * once)
    if size == 2:
        assert LINKS.message_seconds(LONG, stride) == pytest.approx(LONG / rate)


@pytest.mark.parametrize(
    ("size", "expected"), [(2, 1 / 2 / 4), (4, 3 / 4 / 4), (8, 4 / 8 / 2), (16, 12 / 16)]
)
def test_an_all_to_all_overlaps_traffic_inside_and_outside_a_domain(
    size: int, expected: float
) -> None:
    assert LINKS.all_to_all_seconds(LONG, size) == pytest.approx(LONG * expected)


def test_a_group_of_one_takes_no_time_and_a_short_message_half_of_the_rate() -> None:
    assert LINKS.gather_seconds(LONG, 1) == 0.0
    assert LINKS.all_reduce_seconds(LONG, 1) == 0.0
    assert LINKS.all_to_all_seconds(LONG, 1) == 0.0
    short = RAMP_BYTES / 1e6
    assert LINKS.gather_seconds(short, 2) - 1000 == pytest.approx(2 * short / 2 / 4, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "tp", "heads", "keys"),
    [
        ("llama-3-8b", 1, 32, 8),
        ("llama-3-8b", 8, 4, 1),
        ("llama-3-8b", 16, 2, 1),
        ("gpt2-small", 2, 6, 6),
        ("deepseek-v3", 8, 16, 16),
    ],
)
def test_a_rank_has_its_share_of_the_heads_and_at_least_one_of_keys(
    name: str, tp: int, heads: int, keys: int
) -> None:
    kernels, model = kernel_fit_of_gpu("h100-sxm-80gb"), model_of(name)
    latent = model.attention.latent
    width = model.attention.head_dim
    if latent is not None:
        width = (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim) / 2
    alone = prefill_seconds(kernels.prefill, AttentionShape(1, 8192, heads, keys, width))
    assert fused_attention_core_seconds(kernels, model, layout_of(tp), 8192) == pytest.approx(alone)
    split = replace(layout_of(tp), cp=4)
    assert fused_attention_core_seconds(kernels, model, split, 8192) == pytest.approx(alone / 4)


def test_windowed_and_full_layers_are_averaged() -> None:
    kernels, model = kernel_fit_of_gpu("h100-sxm-80gb"), model_of("llama-3-8b")
    shape = AttentionShape(1, 8192, 32, 8, 128)
    full = prefill_seconds(kernels.prefill, shape)
    narrow = prefill_seconds(kernels.prefill, shape._replace(window=1024.0))

    def core(window: int | None, every: int | None) -> float:
        attention = replace(model.attention, window=window, full_attention_every=every)
        return fused_attention_core_seconds(
            kernels, replace(model, attention=attention), layout_of(1), 8192
        )

    assert narrow < full / 2
    assert core(1024, None) == pytest.approx(narrow)
    assert core(1024, 4) == pytest.approx(full / 4 + narrow * 3 / 4)
    assert core(None, None) == core(8192, None) == core(9000, 4) == pytest.approx(full)
