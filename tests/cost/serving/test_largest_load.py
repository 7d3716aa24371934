"""Largest request rate of a deployment within its latency limits."""

from __future__ import annotations

import math

import pytest

from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.largest_load import (
    LOAD_MARGINS,
    bound_largest_rate,
    estimate_largest_load,
)
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.ir.serving import ServingEstimate, ServingLayout, Traffic
from tests.cost.serving.serving_cases import cluster, model, vllm_setup

TRAFFIC = Traffic(2000, 500, None, None)
LAYOUTS = [
    ("llama-3.1-70b", ServingLayout(8)),
    ("llama-3.1-70b", ServingLayout(2, 2)),
    ("deepseek-v3", ServingLayout(8)),
    ("deepseek-v3", ServingLayout(2, 1, dp=4, ep=8)),
    ("deepseek-v3", ServingLayout(2, 1, dp=36, ep=72)),
    ("deepseek-v3", ServingLayout(1, 4, dp=102, ep=102)),
]
SETUP = vllm_setup(weights="fp8", kv="bf16")


def largest(name: str, layout: ServingLayout, limits: tuple[float, float, float], least: float = 0):
    deployment = build_deployment(model(name), cluster("hgx-h200", 64), SETUP, layout)
    return estimate_largest_load(deployment, TRAFFIC, limits, least)


def latencies(found: ServingEstimate) -> tuple[float, float, float]:
    request = found.ttft_seconds + (TRAFFIC.output_tokens - 1) * found.tpot_seconds
    return found.ttft_seconds, found.tpot_seconds, request


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
@pytest.mark.parametrize("limits", [(3.0, 0.05, 1e9), (0.5, 1e9, 1e9), (1e9, 1e9, 30.0)])
def test_the_largest_load_meets_the_limits_and_more_load_misses_one(
    name: str, layout: ServingLayout, limits: tuple[float, float, float]
) -> None:
    found = largest(name, layout, limits)
    assert found is not None
    assert found.solved_request_rate
    assert all(one <= limit for one, limit in zip(latencies(found), limits, strict=True))
    assert found.requests_per_second == pytest.approx(found.solved_request_rate)
    more = Traffic(2000, 500, None, found.solved_request_rate / LOAD_MARGINS[-1] * 1.01)
    busier = estimate_serving(model(name), cluster("hgx-h200", 64), SETUP, layout, more)
    is_overloaded = busier.requests_per_second < 0.999 * more.request_rate
    assert is_overloaded or any(
        one > limit for one, limit in zip(latencies(busier), limits, strict=True)
    )


def test_a_limit_that_a_single_request_misses_gives_almost_no_load() -> None:
    found = largest("llama-3.1-70b", ServingLayout(8), (3.0, 1e-4, 1e9))
    assert found is not None
    assert found.tpot_seconds > 1e-4
    assert found.solved_request_rate < 1


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_a_least_rate_above_the_largest_load_excludes_the_deployment(
    name: str, layout: ServingLayout
) -> None:
    limits = (3.0, 0.05, 1e9)
    found = largest(name, layout, limits)
    assert (
        largest(name, layout, limits, found.solved_request_rate / LOAD_MARGINS[-1] * 1.02) is None
    )
    assert largest(name, layout, limits, found.solved_request_rate * 0.99) == found


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
@pytest.mark.parametrize("tpot", [0.03, 0.06, math.inf])
def test_no_load_exceeds_the_bound(name: str, layout: ServingLayout, tpot: float) -> None:
    deployment = build_deployment(model(name), cluster("hgx-h200", 64), SETUP, layout)
    bound = bound_largest_rate(deployment, TRAFFIC, tpot)
    found = largest(name, layout, (1e9, tpot, 1e9))
    assert found is not None
    if found.tpot_seconds > tpot:
        # Even a single request misses the limit, at least with the prompts of other requests.
        assert bound < 0.1 * bound_largest_rate(deployment, TRAFFIC)
        return
    # The search leaves out layouts only if the bound exceeds the best load by BOUND_SLACK.
    assert found.solved_request_rate * LOAD_MARGINS[-1] < bound
    # Ranks and micro-batches wait for the one with the most prompts, which the bound ignores.
    waiting = (layout.dp > 1) + (layout.pp > 1)
    assert bound < (2, 8, 16)[waiting] * found.solved_request_rate


def test_a_limit_that_a_single_request_misses_gives_a_bound_of_zero() -> None:
    deployment = build_deployment(
        model("llama-3.1-70b"), cluster("hgx-h200", 64), SETUP, ServingLayout(8)
    )
    assert bound_largest_rate(deployment, TRAFFIC, 1e-4) == 0
