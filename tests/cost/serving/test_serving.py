"""Laws of the serving estimate: what must hold whatever the constants are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isinf

import pytest

from parc.compiler.cost.counts.cache import recurrent_state_bytes
from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.cost.serving.deployment import ServingLinks, build_deployment
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.serving.layer_seconds import recurrent_layer_seconds
from parc.compiler.cost.serving.shard import WEIGHT_BYTES
from parc.compiler.cost.serving.step import (
    StepBatch,
    engine_step_seconds,
    prompt_attention_seconds,
    seconds_through_all_stages,
)
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.ir import Model
from parc.compiler.ir.serving import (
    ServingEstimate,
    ServingLayout,
    ServingSetup,
    StepTerms,
    Traffic,
)
from tests.cost.serving.serving_cases import VLLM, cluster, model, vllm_setup
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT, model_of

FP8 = vllm_setup(weights="fp8", kv="fp8")
TRAFFIC = Traffic(1000, 500, concurrency=32)
H200 = "hgx-h200"


def served(
    layout: ServingLayout,
    traffic: Traffic = TRAFFIC,
    setup: ServingSetup = FP8,
    name: str = "llama-3.1-70b",
    node: str = H200,
) -> ServingEstimate:
    """An estimate on four hosts."""
    return estimate_serving(model(name), cluster(node, 4), setup, layout, traffic)


def test_more_concurrency_gives_more_tokens_and_later_ones() -> None:
    found = [
        served(ServingLayout(tp=4), replace(TRAFFIC, concurrency=count))
        for count in (1, 4, 16, 64, 256)
    ]
    for few, many in pairwise(found):
        assert many.tokens_per_second > few.tokens_per_second
        assert many.tpot_seconds > few.tpot_seconds
        assert many.ttft_seconds > few.ttft_seconds


def test_requests_past_the_cache_wait_for_their_first_token() -> None:
    one = ServingLayout(tp=1)
    slots = served(one).max_concurrency
    full, twice = (served(one, replace(TRAFFIC, concurrency=share * slots)) for share in (1.0, 2.0))
    assert twice.tpot_seconds == pytest.approx(full.tpot_seconds)
    assert twice.tokens_per_second == pytest.approx(full.tokens_per_second)
    assert twice.ttft_seconds - full.ttft_seconds > 400 * full.tpot_seconds


def test_littles_law_holds() -> None:
    found = served(ServingLayout(tp=4))
    inside = found.ttft_seconds + 499 * found.tpot_seconds
    assert found.requests_per_second * inside == pytest.approx(32, rel=1e-2)


@pytest.mark.parametrize(("dp", "replicas"), [(8, 1), (4, 2), (1, 8)])
@pytest.mark.parametrize("concurrency", [1, 3, 8, 40])
def test_ranks_without_a_request_yield_nothing(concurrency: int, dp: int, replicas: int) -> None:
    layout = ServingLayout(tp=1, dp=dp, ep=dp, replicas=replicas)
    traffic = replace(TRAFFIC, concurrency=concurrency)
    found = served(layout, traffic, name="qwen3-30b-a3b")
    inside = found.ttft_seconds + 499 * found.tpot_seconds
    assert found.requests_per_second * inside == pytest.approx(concurrency, rel=1e-2)
    assert found.running * replicas <= concurrency


def test_tensor_parallelism_over_nvlink_shortens_a_token() -> None:
    found = [served(ServingLayout(tp=tp)).tpot_seconds for tp in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)


def test_pipeline_stages_do_not_shorten_a_token_but_hold_more_requests() -> None:
    single = replace(TRAFFIC, concurrency=1)
    one, two = (served(ServingLayout(tp=2, pp=pp), single) for pp in (1, 2))
    assert two.tpot_seconds > one.tpot_seconds
    assert two.kv_tokens > 1.9 * one.kv_tokens


def test_replicas_share_the_requests() -> None:
    one = served(ServingLayout(tp=4), replace(TRAFFIC, concurrency=8))
    four = served(ServingLayout(tp=4, replicas=4))
    assert four.tpot_seconds == pytest.approx(one.tpot_seconds)
    assert four.tokens_per_second == pytest.approx(4 * one.tokens_per_second)


def test_smaller_formats_are_faster_where_weights_are_read() -> None:
    alone = replace(TRAFFIC, concurrency=1)
    wide = served(ServingLayout(tp=4), alone, vllm_setup(), node="hgx-b200")
    fp8 = served(ServingLayout(tp=4), alone, FP8, node="hgx-b200")
    fp4 = served(ServingLayout(tp=4), alone, replace(FP8, weights="nvfp4"), node="hgx-b200")
    assert wide.tpot_seconds > fp8.tpot_seconds > fp4.tpot_seconds


def test_attention_data_parallelism_holds_more_requests_of_latent_attention() -> None:
    tensor = served(ServingLayout(tp=8, ep=8), name="deepseek-v3")
    data = served(ServingLayout(dp=8, ep=8), name="deepseek-v3")
    assert data.max_concurrency > 3 * tensor.max_concurrency
    assert data.kv_tokens == data.memory.kv_tokens * 8


def test_a_rate_that_is_sustained_is_served() -> None:
    found = served(ServingLayout(tp=4), Traffic(1000, 500, request_rate=2.0))
    assert found.requests_per_second == pytest.approx(2.0, rel=1e-2)
    over = served(ServingLayout(tp=4), Traffic(1000, 500, request_rate=1000.0))
    assert over.requests_per_second < 200
    assert over.ttft_seconds > 10 * found.ttft_seconds


def test_prompts_elsewhere_do_not_delay_tokens() -> None:
    together = served(ServingLayout(tp=4))
    apart = served(ServingLayout(tp=4), setup=replace(FP8, prefill_apart=True))
    assert apart.tpot_seconds == apart.decode.total_seconds < together.tpot_seconds


def test_accepted_drafts_shorten_a_token() -> None:
    plain = served(ServingLayout(tp=4), replace(TRAFFIC, concurrency=4))
    setup = replace(FP8, draft_tokens=3, accepted_tokens=2.4)
    drafted = served(ServingLayout(tp=4), replace(TRAFFIC, concurrency=4), setup)
    assert 0.4 < drafted.tpot_seconds / plain.tpot_seconds < 0.7


def test_a_model_that_does_not_fit_serves_nothing() -> None:
    found = served(ServingLayout(), setup=vllm_setup())
    assert not found.fits
    assert found.tokens_per_second == 0
    assert isinf(found.tpot_seconds)


@pytest.mark.parametrize("output", [1, 2, 5000])
def test_any_length_has_an_estimate(output: int) -> None:
    found = served(ServingLayout(tp=4), Traffic(16, output, concurrency=3))
    assert 0 < found.tpot_seconds < 1
    assert 0 < found.ttft_seconds < 10


NEXT = model_of(QWEN3_NEXT, family="qwen3_next")
NANO = model_of(NEMOTRON_NANO, family="nemotron_h")


def decode(found: Model, context: float, running: float = 64) -> StepTerms:
    """A decode step of one H200."""
    deployment = build_deployment(found, cluster(H200), vllm_setup(), ServingLayout())
    return engine_step_seconds(deployment, StepBatch(running, context))


@pytest.mark.parametrize("found", [NEXT, NANO])
def test_the_context_costs_in_attention_layers_alone(found: Model) -> None:
    short, long, longer = (decode(found, context).attention for context in (0, 4096, 8192))
    assert longer - long == pytest.approx(long - short)
    layers = LayerCounts.from_kinds(found.layer_kinds)
    token = 2 * found.attention.kv_heads * found.attention.head_dim * 2
    rate = build_deployment(
        found, cluster(H200), vllm_setup(), ServingLayout()
    ).memory_bytes_per_second
    assert long - short == pytest.approx(layers.attention * 64 * 4096 * token / rate)
    states = layers.recurrent * 64 * 2 * recurrent_state_bytes(found, VLLM, 1)
    assert short == pytest.approx(states / rate)


@pytest.mark.parametrize("found", [NEXT, NANO])
def test_recurrent_layers_make_long_prompts_cheaper_than_attention_would(found: Model) -> None:
    plain = replace(found, linear=None, mamba=None, pattern=found.pattern.replace("M", "*"))
    traffic = Traffic(64_000, 500, concurrency=8)
    mixed, whole = (
        estimate_serving(one, cluster(H200), vllm_setup(), ServingLayout(tp=2), traffic)
        for one in (found, plain)
    )
    assert mixed.prefill_seconds < whole.prefill_seconds / 1.5
    assert mixed.max_concurrency > 2 * whole.max_concurrency


def test_a_stage_of_a_pattern_pays_for_the_layers_that_it_has() -> None:
    whole, half = (
        build_deployment(NANO, cluster(H200), vllm_setup(), ServingLayout(pp=pp)).shard.layers
        for pp in (1, 2)
    )
    assert (whole.attention, whole.recurrent, whole.dense, whole.routed) == (6, 23, 0, 23)
    assert (whole.token_mixers, whole.residual_block_count) == (29, 52)
    assert half == whole.multiplied_by(0.5)


@pytest.mark.parametrize("found", [NEXT, NANO])
def test_the_scan_of_a_prompt_takes_time_per_token_and_a_decode_step_reads_the_state_twice(
    found: Model,
) -> None:
    deployment = build_deployment(found, cluster(H200), vllm_setup(), ServingLayout())
    state = recurrent_state_bytes(found, VLLM, 1)
    decoded = recurrent_layer_seconds(deployment, 64, 0)
    assert decoded == pytest.approx(64 * 2 * state / deployment.memory_bytes_per_second)
    kind = next(kind for kind in found.kinds if kind.mixer != "attention")
    part = recurrence_of_layer(found, kind)
    assert part is not None
    per_token = part.flops / deployment.attention_flops_per_second
    per_token += (part.scanned_bytes + part.streamed_bytes) / deployment.memory_bytes_per_second
    assert recurrent_layer_seconds(deployment, 64, 1000) - decoded == pytest.approx(
        1000 * per_token
    )


@pytest.mark.parametrize(
    ("node", "domain", "pcie"),
    [("l40s-8", 1, None), ("hgx-h200", 8, 31.5), ("gb200-nvl72", 72, 31.5)],
)
def test_a_host_without_nvlink_uses_its_own_pcie_rate(
    node: str, domain: int, pcie: float | None
) -> None:
    on = cluster(node)
    links = ServingLinks.from_cluster(on, on.generation.serving)
    rate = on.node.link_gb_per_s if pcie is None else pcie
    assert links.domain == domain
    assert links.host == max(on.node.gpus, domain)
    assert links.pcie_gb_per_s == pytest.approx(rate * 0.65)
    assert links.network_gb_per_s == pytest.approx(on.node.network_gb_per_s_per_gpu * 0.8)


def test_weights_have_the_bytes_of_their_format_and_of_its_scales() -> None:
    # Scales: fp32 per 128 x 128, fp16 and a 4-bit zero per 128, fp8 per 16, 8 bit per 32.
    assert WEIGHT_BYTES == {
        "bf16": 2,
        "fp16": 2,
        "fp8": 1 + 4 / (128 * 128),
        "int4": 0.5 + (2 + 0.5) / 128,
        "nvfp4": 0.5 + 1 / 16,
        "mxfp4": 0.5 + 1 / 32,
    }


@pytest.mark.parametrize(
    "name", ["deepseek-v3.2", "gpt-oss-120b", "llama-3-70b", "qwen3-next-80b-a3b"]
)
@pytest.mark.parametrize("sizes", [{"tp": 8}, {"tp": 4, "pp": 2}, {"tp": 2, "pcp": 2}])
def test_attention_to_the_keys_of_a_prompt_is_the_part_of_a_step_that_grows_with_them(
    name: str, sizes: dict[str, int]
) -> None:
    place = build_deployment(
        model(name), cluster("hgx-h100", 4), vllm_setup(weights="fp8"), ServingLayout(**sizes)
    )
    long, none = (
        seconds_through_all_stages(place, StepBatch(0.0, 0.0, 3000.0, keys)).attention
        for keys in (1500.0, 0.0)
    )
    found = prompt_attention_seconds(place, 3000.0, 1500.0)
    assert found == pytest.approx(long - none, rel=1e-9)
    assert found > 0
