"""Predictions of benchmarks that no fit uses."""

from __future__ import annotations

from functools import cache
from statistics import median

from benchmarks.accuracy.serving.benchmark_runs import (
    benchmark_predictions,
    benchmark_section,
    simulate_benchmark,
    steady_predictions,
)
from benchmarks.accuracy.serving.percentiles import PercentileRow
from parc.compiler.cost.serving.traffic import estimate_deployment


@cache
def rows() -> tuple[PercentileRow, ...]:
    return tuple(row for row, _ in benchmark_predictions())


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
    assert median(tpot) <= 0.22
    assert median(dense) <= 0.1
    ttft = [abs(one.ttft) for one in steady_predictions() if one.ttft is not None]
    assert median(ttft) <= 0.45


def test_the_section_has_a_line_per_engine() -> None:
    text = benchmark_section()
    assert all(f"\n| {name} |" in text for name in ("sglang", "tensorrt-llm", "vllm", "all"))
