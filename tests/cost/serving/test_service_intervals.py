"""80 % intervals of services, the errors that they are measured from, and published percentiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import exp, log
from statistics import median

import pytest

from benchmarks.accuracy.serving.calibration import calibrated_rows, calibration_table
from benchmarks.accuracy.serving.engines import ENGINES
from benchmarks.accuracy.serving.intervals import (
    coverage_without_source,
    shipped_coverage,
    spread_of,
)
from benchmarks.accuracy.serving.percentiles import (
    PercentileRow,
    closed_loop_ratio,
    read_percentiles,
    stated_rate_ratios,
)
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving
from benchmarks.accuracy.serving.rows import read_published
from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS, calibrated_service
from parc.compiler.cost.serving.service_intervals import CALIBRATED_ERRORS, service_intervals
from parc.compiler.ir.engine_constants import EstimateErrors


@cache
def predictions() -> tuple[ServingPrediction, ...]:
    """Return the predictions of one engine's published rows that measured both latencies."""
    rows = [one for one in read_published() if one.setup.engine.name == "vllm"]
    return tuple(one for one in predict_serving(rows) if one.ttft is not None)


def test_an_interval_is_a_factor_around_the_estimate() -> None:
    found = predictions()[0].found
    own = service_intervals(found, EstimateErrors(), False, False)
    low, high = own.ttft_seconds
    assert log(high / low) == pytest.approx(2 * EstimateErrors().ttft)
    assert low * high == pytest.approx(found.ttft_seconds**2)
    assert own.tokens_per_second[0] < found.tokens_per_second < own.tokens_per_second[1]


def test_a_calibration_narrows_an_interval_and_never_widens_it() -> None:
    found = predictions()[0].found
    calibrated = service_intervals(found, EstimateErrors(), True, False)
    ratio = calibrated.tpot_seconds[1] / found.tpot_seconds
    assert ratio == pytest.approx(exp(CALIBRATED_ERRORS.tpot))
    narrow = EstimateErrors(tpot=CALIBRATED_ERRORS.tpot / 2)
    kept = service_intervals(found, narrow, True, False)
    assert kept.tpot_seconds[1] / found.tpot_seconds == pytest.approx(exp(narrow.tpot))


def test_the_throughput_under_a_given_rate_is_certain() -> None:
    found = predictions()[0].found
    own = service_intervals(found, EstimateErrors(), False, True)
    assert own.tokens_per_second == (found.tokens_per_second, found.tokens_per_second)


def test_an_engine_without_measurements_has_the_widest_intervals() -> None:
    measured = [one.errors for one in ENGINES.values()]
    default = EstimateErrors()
    for name in ("ttft", "tpot", "tokens_per_second"):
        assert getattr(default, name) == max(getattr(one, name) for one in measured)


def test_at_least_four_of_five_published_values_lie_inside_their_intervals() -> None:
    assert shipped_coverage(predict_serving(read_published())) >= 0.8


def test_a_group_with_many_rows_does_not_decide_a_spread_alone() -> None:
    many = [(0.1, "one", ("large",))] * 40
    few = [(0.5, "two", (f"small {number}",)) for number in range(10)]
    assert spread_of([*many, *few]) == 0.5
    assert spread_of(many) == 0.1
    # Each source is covered by the spread of the other one, or not.
    assert coverage_without_source([*many, *few]) == pytest.approx(0.8)


def test_rows_of_a_benchmark_improve_the_prediction_of_its_others() -> None:
    # Rows of one source, because rows of another one would already reveal the delays.
    source = "ai-dynamo/aiconfigurator Qwen_Qwen3-32B.csv"
    group = [one for one in predictions() if one.row.source == source]
    slow = (("front", 3.0), ("overhead", 4.0))
    measured = []
    for one in group:
        cluster, engine = calibrated_service(one.row.cluster, one.row.setup.engine, slow)
        setup = replace(one.row.setup, engine=engine)
        other = replace(one.row, cluster=cluster, setup=setup)
        found = predict_serving([other])[0].found
        values = replace(
            one.row.measured,
            ttft_seconds=found.ttft_seconds,
            tpot_seconds=found.tpot_seconds,
            tokens_per_second_per_gpu=found.tokens_per_second_per_gpu,
        )
        measured.append(replace(one.row, measured=values))
    # The priors hold the factors back, so that three rows do not reveal such a slow front end.
    rows = calibrated_rows(predict_serving(measured), used=6)
    assert len(rows) >= 6
    shares = {
        name: median(abs(getattr(row.after, name)) for row in rows)
        / median(abs(getattr(row.before, name)) for row in rows)
        for name in ("tpot", "ttft")
    }
    assert shares["tpot"] < 0.1
    assert shares["ttft"] < 0.2
    table = calibration_table(rows)
    assert table.splitlines()[-1].startswith("| **all** | ")
    assert " -> " in table


def test_every_factor_changes_an_estimate() -> None:
    row = next(one.row for one in predictions() if (one.row.traffic.concurrency or 0) >= 16)
    shipped = predict_serving([row])[0].found
    for name in SERVICE_FACTORS:
        cluster, engine = calibrated_service(row.cluster, row.setup.engine, ((name, 1.5),))
        changed = replace(row, cluster=cluster, setup=replace(row.setup, engine=engine))
        found = predict_serving([changed])[0].found
        moved = abs(log(found.ttft_seconds / shipped.ttft_seconds))
        moved += abs(log(found.tpot_seconds / shipped.tpot_seconds))
        assert moved > 0.01, name
    assert calibrated_service(row.cluster, row.setup.engine, ()) == (row.cluster, row.setup.engine)


def percentile_rows(source: str) -> list[PercentileRow]:
    return [one for one in read_percentiles() if one.row.name.startswith(source)]


def test_a_closed_loop_that_starts_with_a_burst_has_the_published_percentiles() -> None:
    rows = percentile_rows("inferencemax")
    assert len(rows) > 100
    ratios = {
        from_start: [closed_loop_ratio(one, from_start=from_start) for one in rows[::9]]
        for from_start in (True, False)
    }
    errors = {
        key: median(abs((ratio or 0.0) - 1) for ratio in found) for key, found in ratios.items()
    }
    assert errors[True] < 0.25 < errors[False]


def test_rows_with_a_rate_have_both_percentiles() -> None:
    rows = percentile_rows("mlperf")
    assert len(rows) == 30
    assert all(one.ttft_p99_seconds and one.tpot_p99_seconds for one in rows)
    found = stated_rate_ratios(rows[0])
    assert found is not None
    assert all(ratio and 0.1 < ratio < 10 for ratio in (found.ttft_p99, found.tpot_p99))


def test_runs_of_few_requests_at_a_given_rate_have_the_published_percentiles() -> None:
    rows = [one for one in percentile_rows("iog") if one.row.model.name == "qwen2.5-14b"]
    ratios = [found for one in rows[::3] if (found := stated_rate_ratios(one))]
    assert len(ratios) == 4
    assert median(abs((one.ttft_p99 or 0.0) - 1) for one in ratios) < 0.25
    assert median(abs((one.tpot_p99 or 0.0) - 1) for one in ratios) < 0.25
