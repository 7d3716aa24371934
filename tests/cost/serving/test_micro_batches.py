"""Estimate and simulation of pipelines against a pipeline that runs each micro-batch."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.largest_load import estimate_largest_load
from parc.compiler.cost.serving.micro_batches import with_micro_batches
from parc.compiler.cost.serving.simulation.simulate import simulate
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.serving import ServingLayout, ServingSetup, Traffic
from tests.cost.serving.plain_pipeline import PlainPipeline
from tests.cost.serving.serving_cases import cluster, model

REQUESTS = 500
ENGINE = replace(
    ENGINES["vllm"], arrivals=replace(ENGINES["vllm"].arrivals, front_seconds=0.0, poll_steps=0.0)
)


def deployment(name: str, pp: int, step_tokens: int) -> Deployment:
    setup = ServingSetup(
        weights="fp8", engine=ENGINE, max_batched_tokens=step_tokens, memory_share=0.9
    )
    return build_deployment(model(name), cluster("hgx-h200"), setup, ServingLayout(pp=pp))


CASES = [  # (model, pp, tokens per step), traffic
    (("llama-3.1-8b", 2, 8192), Traffic(1000, 100, request_rate=10.0)),
    (("llama-3.1-8b", 4, 512), Traffic(1000, 100, request_rate=40.0)),
    (("llama-3.1-70b", 3, 2048), Traffic(2000, 300, request_rate=1.0)),
    (("llama-3.1-70b", 3, 1024), Traffic(2000, 300, request_rate=3.0)),
    (("llama-3.1-70b", 8, 512), Traffic(2000, 300, request_rate=4.0)),
]


@pytest.mark.parametrize(("setting", "traffic"), CASES)
def test_simulation_and_estimate_agree_with_a_pipeline_that_runs_each_micro_batch(
    setting: tuple[str, int, int], traffic: Traffic
) -> None:
    one, random, now = deployment(*setting), Random(2), 0.0
    rate, answer = traffic.request_rate or 1.0, int(traffic.output_tokens)
    arrivals = [now := now + random.expovariate(rate) for _ in range(REQUESTS)]
    jobs = PlainPipeline(one, arrivals, int(traffic.input_tokens), answer).run()[REQUESTS // 5 :]
    tpot = fmean((job.finish - job.first) / (answer - 1) for job in jobs)
    ttft = fmean(job.first - job.arrival for job in jobs)
    simulated, found = simulate(one, traffic), estimate_deployment(one, traffic)
    assert simulated is not None
    assert simulated.tpot_seconds.mean == pytest.approx(tpot, rel=0.1)
    assert found.tpot_seconds == pytest.approx(tpot, rel=0.1)
    assert simulated.ttft_seconds.mean == pytest.approx(ttft, rel=0.25)
    assert found.ttft_seconds == pytest.approx(ttft, rel=0.25)


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("tpot", [0.015, 0.03])
def test_the_simulation_serves_the_largest_load_of_a_pipeline(pp: int, tpot: float) -> None:
    one = deployment("llama-3.1-8b", pp, 512)
    found = estimate_largest_load(one, Traffic(1000, 100), (9.0, tpot, 99.0))
    assert found is not None
    rate = found.solved_request_rate
    simulated = simulate(one, Traffic(1000, 100, request_rate=rate))
    assert simulated is not None
    assert simulated.requests_per_second == pytest.approx(rate, rel=0.03)
    assert simulated.ttft_seconds.mean < 1.0


def test_the_chunks_of_a_prompt_fill_consecutive_micro_batches() -> None:
    one = deployment("llama-3.1-8b", 4, 1000)
    counts = [
        with_micro_batches(one, Traffic(tokens, 100)).micro_batches
        for tokens in (500, 1000, 2000, 4000, 40_000)
    ]
    assert counts == [4, 4, 2, 1, 1]
    single = estimate_deployment(one, Traffic(4000, 2, concurrency=1))
    whole = estimate_deployment(
        deployment("llama-3.1-8b", 4, 4000), Traffic(4000, 2, concurrency=1)
    )
    # 4 chunks on 4 stages take as long as 7 chunks on one stage, instead of 16.
    assert single.ttft_seconds / whole.ttft_seconds == pytest.approx(7 / 16, rel=0.15)


@pytest.mark.parametrize(("share", "micro_batches"), [(0.038, 1), (0.0385, 2), (0.04, 4)])
def test_a_cache_of_few_requests_has_fewer_micro_batches_than_stages(
    share: float, micro_batches: int
) -> None:
    one = deployment("llama-3.1-8b", 4, 2048)
    small = replace(one, setup=replace(one.setup, memory_share=share))
    traffic = Traffic(2000, 100, concurrency=8)
    assert with_micro_batches(small, traffic).micro_batches == micro_batches
    found, requests = estimate_deployment(small, traffic), small.memory.kv_tokens / 2050
    assert found.max_concurrency == pytest.approx(requests, rel=0.02)
    assert found.running <= requests
    simulated = simulate(small, traffic)
    assert simulated is not None
    assert simulated.requests_per_second == pytest.approx(found.requests_per_second, rel=0.35)
