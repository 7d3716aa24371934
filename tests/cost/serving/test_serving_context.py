"""Context parallelism of serving: what it shares, and what it sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.layer_seconds import (
    cached_elements_per_token,
    context_parallel_seconds,
    exchanged_elements_per_head,
)
from parc.compiler.cost.serving.memory import request_cache_bytes
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.ir.serving import ServingEstimate, ServingLayout, Traffic
from tests.cost.serving.serving_cases import cluster, model, vllm_setup

SETUP = vllm_setup(weights="fp8", kv="fp8")
LATENT, GROUPED = "deepseek-v3", "qwen3-235b-a22b"


def deployed(name: str, layout: ServingLayout) -> Deployment:
    return build_deployment(model(name), cluster("hgx-h200", 4), SETUP, layout)


def served(name: str, layout: ServingLayout, traffic: Traffic) -> ServingEstimate:
    return estimate_serving(model(name), cluster("hgx-h200", 4), SETUP, layout, traffic)


@pytest.mark.parametrize(("name", "dcp"), [(LATENT, 8), (LATENT, 2), (GROUPED, 2)])
def test_ranks_that_share_a_cache_hold_so_many_times_the_tokens(name: str, dcp: int) -> None:
    plain = ServingLayout(tp=8, ep=8)
    shared = replace(plain, dcp=dcp)
    one, many = (
        build_deployment(model(name), cluster("hgx-h200"), SETUP, layout).memory
        for layout in (plain, shared)
    )
    assert many.weights_bytes == one.weights_bytes
    assert many.kv_tokens == pytest.approx(dcp * one.kv_tokens)


def test_a_window_is_whole_on_every_rank() -> None:
    name, tokens = "gpt-oss-120b", 100_000
    whole, half = (
        request_cache_bytes(model(name), ServingLayout(tp=16, dcp=dcp), SETUP, tokens)
        for dcp in (1, 2)
    )
    attention = model(name).attention
    assert attention.window is not None
    windows = request_cache_bytes(model(name), ServingLayout(tp=16), SETUP, attention.window) / 2
    assert half == pytest.approx(windows + (whole - windows) / 2)


def test_sharing_a_cache_shortens_reads_and_adds_three_collectives_a_layer() -> None:
    # One key-value head a rank, and as many bytes: decoding reads, it does not compute.
    batch = StepBatch(decode=64, context=50_000)
    plain = engine_step_seconds(deployed(GROUPED, ServingLayout(tp=8, ep=8)), batch)
    shared = engine_step_seconds(deployed(GROUPED, ServingLayout(tp=8, ep=8, dcp=2)), batch)
    assert shared.attention == pytest.approx(plain.attention / 2)
    latency = (
        3 * model(GROUPED).layers * deployed(GROUPED, ServingLayout()).hardware.collective_seconds
    )
    assert shared.communication - plain.communication > latency
    assert shared.projections == plain.projections


def test_full_caches_are_where_sharing_one_pays() -> None:
    plain = ServingLayout(tp=8, ep=8)
    shared = replace(plain, dcp=8)
    few, many = Traffic(2000, 1000, concurrency=4), Traffic(60_000, 1000, concurrency=128)
    assert served(LATENT, shared, few).tpot_seconds > served(LATENT, plain, few).tpot_seconds
    assert (
        served(LATENT, shared, many).ttft_seconds < 0.5 * served(LATENT, plain, many).ttft_seconds
    )


def test_ranks_that_share_prompts_compute_less_each_and_hold_as_much() -> None:
    layouts = [ServingLayout(tp=4, pcp=pcp, ep=4 * pcp) for pcp in (1, 2)]
    chunk = StepBatch(decode=4, context=4000, prefill=8000, span=4000)
    one, two = (engine_step_seconds(deployed(LATENT, layout), chunk) for layout in layouts)
    assert two.projections == pytest.approx(one.projections / 2)
    assert two.attention == pytest.approx(one.attention / 2)
    assert two.total_seconds < 0.8 * one.total_seconds
    held = [request_cache_bytes(model(LATENT), layout, SETUP, 1000) for layout in layouts]
    assert held[0] == held[1]


def test_without_context_parallelism_nothing_is_sent() -> None:
    assert context_parallel_seconds(deployed(LATENT, ServingLayout(tp=8)), 64, 4096) == 0


def test_latent_attention_exchanges_the_latent() -> None:
    assert exchanged_elements_per_head(model(LATENT)) == (576, 512)
    assert exchanged_elements_per_head(model(GROUPED)) == (128, 128)
    assert cached_elements_per_token(model(LATENT), 8) == 576
    assert cached_elements_per_token(model(GROUPED), 2) == 2 * 2 * 128
    assert cached_elements_per_token(model(GROUPED), 8) == 2 * 128


@pytest.mark.parametrize(
    ("name", "widths", "prompt_widths"),
    [
        (GROUPED, 64 * (128 + 128), 64 * (128 + 128)),
        # Decoding reads the latent as key and value; prompts use the keys and values of the heads.
        (LATENT, 128 * (512 + 64 + 512), 128 * (128 + 64 + 128)),
    ],
)
@pytest.mark.parametrize("layout", [ServingLayout(tp=4, ep=4), ServingLayout(tp=2, pcp=2, ep=4)])
def test_attention_computes_two_flops_per_key_and_element(
    name: str, widths: int, prompt_widths: int, layout: ServingLayout
) -> None:
    # So many draft tokens per request that decoding computes longer than it reads the cache.
    setup = replace(SETUP, draft_tokens=4999)
    made = build_deployment(model(name), cluster("hgx-h200", 4), setup, layout)
    flops_per_second = made.attention_flops_per_second * layout.tp * layout.pcp
    decode = StepBatch(decode=8, context=6000)
    chunk = replace(decode, prefill=3000, span=1500)
    one, two = (engine_step_seconds(made, batch).attention for batch in (decode, chunk))
    layers = model(name).layers / flops_per_second
    assert one == pytest.approx(layers * 2 * 8 * 5000 * 6000 * widths)
    assert two - one == pytest.approx(layers * 2 * 3000 * 1500 * prompt_widths)
