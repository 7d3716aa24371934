"""Lognormal prompt lengths up to the maximum length of a request."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from parc.compiler.cost.serving.lognormal_lengths import (
    lognormal_parameters,
    mean_square_length,
)
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestSample,
    request_maker,
)
from parc.compiler.cost.serving.slowest_prompt import slowest_moments
from parc.compiler.ir.serving import Lengths, Traffic
from tests.search.serving_specs import Tree, plan_of, spec


@pytest.mark.parametrize("variation", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("most", [1.2, 3.0, 8.0])
def test_the_mean_square_counts_longer_prompts_as_the_longest(
    variation: float, most: float
) -> None:
    location, sigma = lognormal_parameters(variation)
    dice = Random(1)
    lengths = [min(dice.lognormvariate(location, sigma), most) for _ in range(100_000)]
    square = sum(one * one for one in lengths) / len(lengths)
    assert mean_square_length(Lengths(variation, input_most=most)) == pytest.approx(
        square, rel=0.03
    )


def test_simulated_requests_fit_into_the_maximum_length() -> None:
    lengths = Lengths(3.0, 2.0, input_most=(16384 - 500) / 2000)
    traffic = Traffic(2000, 500, request_rate=3, lengths=lengths)
    maker = request_maker(traffic, RequestSample(traffic, 0), 10**6, PrefixCaches(0.0))
    requests = [maker(0.0) for _ in range(20_000)]
    assert max(one.prompt + one.output for one in requests) == 16384
    prompts = [prompt for _, prompt, _ in islice(RequestSample(traffic, 0), 20_000)]
    assert max(prompts) == 16384 - 500


def test_the_slowest_prompt_is_not_longer_than_the_limit() -> None:
    mean, square = slowest_moments(Lengths(3.0, input_most=8.0), 1000, 1e9, 0.0)
    assert mean == pytest.approx(8, rel=1e-3)
    assert square == pytest.approx(64, rel=1e-3)


def test_prompts_that_the_engine_rejects_need_no_gpus() -> None:
    lengths = {"input_cv": 3}
    traffic: Tree = {"input_tokens": 2000, "output_tokens": 500, "request_rate": 3}
    job = {"max_model_len": 16384, "precision": "fp8", "traffic": {**traffic, "lengths": lengths}}
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", job=job, goals={"ttft": "2s"}))
    assert plan.layout.gpus == 1
    assert plan.problem.service.traffic.lengths.input_most == (16384 - 500) / 2000
