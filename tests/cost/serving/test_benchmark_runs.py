"""Host work beside GPU steps, and predictions of benchmarks that no fit uses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import median

import pytest

from benchmarks.accuracy.serving.benchmark_runs import (
    benchmark_predictions,
    benchmark_section,
    simulate_benchmark,
    steady_predictions,
)
from benchmarks.accuracy.serving.engines import ENGINES
from benchmarks.accuracy.serving.percentiles import PercentileRow
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds, host_floor_seconds
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.serving import ServingLayout, ServingSetup, Traffic
from tests.cost.serving.serving_cases import cluster, model


@cache
def rows() -> tuple[PercentileRow, ...]:
    return tuple(row for row, _ in benchmark_predictions())


def vllm(name: str, *, overlaps_host: bool) -> Deployment:
    """Return a model on an H100 under vLLM, whose host overlaps GPU steps or not."""
    engine = ENGINES["vllm"]
    scheduling = replace(engine.scheduling, overlaps_host=overlaps_host)
    setup = ServingSetup(engine=replace(engine, scheduling=scheduling))
    return build_deployment(model(name), cluster("hgx-h100"), setup, ServingLayout())


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "llama-3.1-8b"])
def test_a_step_takes_the_longer_of_host_and_gpu_if_they_overlap(name: str) -> None:
    before, now = (vllm(name, overlaps_host=overlaps) for overlaps in (False, True))
    for requests in (1.0, 64.0, 512.0):
        batch = StepBatch(requests, 500.0)
        terms = engine_step_seconds(before, batch)
        gpu = terms.total_seconds - terms.host
        found = engine_step_seconds(now, batch)
        assert found.total_seconds == pytest.approx(max(gpu, terms.host))
        assert host_floor_seconds(now, requests) == pytest.approx(terms.host)
        assert host_floor_seconds(before, requests) == 0


def test_steps_that_the_host_limits_take_as_long_in_the_simulation_as_in_the_estimate() -> None:
    # Steps begin below the time of the host and end above it, as the contexts grow.
    limited = vllm("qwen2.5-0.5b", overlaps_host=True)
    traffic = Traffic(100, 2000, concurrency=64)
    simulated = simulate(limited, traffic, Sampling(requests=200))
    assert simulated is not None
    found = estimate_deployment(limited, traffic)
    assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.03)
    assert found.tpot_seconds >= host_floor_seconds(limited, 60)


def test_a_run_serves_all_requests_of_a_benchmark_and_ends_with_few() -> None:
    one = next(row for row in rows() if row.requests == 80 and row.row.traffic.concurrency == 16)
    run = simulate_benchmark(one)
    assert run is not None
    assert run.requests == 80
    steady = estimate_deployment(one.deployment, one.row.traffic)
    assert run.tokens_per_second < steady.tokens_per_second


def test_errors_of_unseen_benchmarks_are_held() -> None:
    predictions = [one for _, one in benchmark_predictions() if one.found.fits]
    assert len({one.row.source for one in predictions}) >= 35
    tpot = [abs(one.tpot) for one in predictions if one.tpot is not None]
    dense = [
        abs(one.tpot)
        for one in predictions
        if one.tpot is not None and one.row.model.experts is None
    ]
    assert median(tpot) <= 0.18
    assert median(dense) <= 0.1
    ttft = [abs(one.ttft) for one in steady_predictions() if one.ttft is not None]
    assert median(ttft) <= 0.42


def test_the_section_has_a_line_per_engine() -> None:
    text = benchmark_section()
    assert all(f"\n| {name} |" in text for name in ("sglang", "tensorrt-llm", "vllm", "all"))
