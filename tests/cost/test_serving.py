"""Laws of the serving estimate: what must hold whatever the constants are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isinf

import pytest

from parc.compiler.cost.serving import estimate_serving
from parc.compiler.ir.serving import (
    ServingEstimate,
    ServingLayout,
    ServingSetup,
    Traffic,
)
from tests.cost.serving_cases import cluster, model

FP8 = ServingSetup(weights="fp8", kv="fp8")
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


def test_tensor_parallelism_over_nvlink_shortens_a_token() -> None:
    found = [served(ServingLayout(tp=tp)).tpot_seconds for tp in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)


def test_pipeline_stages_do_not_shorten_a_token_but_hold_more_requests() -> None:
    one, two = served(ServingLayout(tp=2)), served(ServingLayout(tp=2, pp=2))
    assert two.tpot_seconds > 0.9 * one.tpot_seconds
    assert two.kv_tokens > 1.9 * one.kv_tokens


def test_replicas_share_the_requests() -> None:
    one = served(ServingLayout(tp=4), replace(TRAFFIC, concurrency=8))
    four = served(ServingLayout(tp=4, replicas=4))
    assert four.tpot_seconds == pytest.approx(one.tpot_seconds)
    assert four.tokens_per_second == pytest.approx(4 * one.tokens_per_second)


def test_smaller_formats_are_faster_where_weights_are_read() -> None:
    alone = replace(TRAFFIC, concurrency=1)
    wide = served(ServingLayout(tp=4), alone, ServingSetup(), node="hgx-b200")
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
    found = served(ServingLayout(), setup=ServingSetup())
    assert not found.fits
    assert found.tokens_per_second == 0
    assert isinf(found.tpot_seconds)


@pytest.mark.parametrize("output", [1, 2, 5000])
def test_any_length_has_an_estimate(output: int) -> None:
    found = served(ServingLayout(tp=4), Traffic(16, output, concurrency=3))
    assert 0 < found.tpot_seconds < 1
    assert 0 < found.ttft_seconds < 10
