"""The serving model against published measurements, with its 80 % intervals and percentiles."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path
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
from benchmarks.accuracy.serving.section import choices, main, section
from benchmarks.accuracy.serving.waits import describe_load, predict_unseen_sources, wait_rows
from benchmarks.accuracy.serving.wide_table import balance_steps, read_serving_table
from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS, calibrated_service
from parc.compiler.cost.serving.service_intervals import CALIBRATED_ERRORS, service_intervals
from parc.compiler.ir.engine_constants import EstimateErrors
from parc.compiler.ir.serving import ServingLayout

TPOT, TTFT, BIAS, RATE, RIGHT, REGRET = 0.1, 0.23, 0.1, 0.1, 0.95, 0.02
"""Median errors (and the median signed error of the first token), share of right tensor-parallel
choices and mean regret that are held."""


@cache
def rows() -> list[ServingPrediction]:
    """The project's own rows."""
    return predict_serving(read_published())


def test_the_median_error_of_a_token_time_is_held() -> None:
    errors = [abs(one.tpot) for one in rows() if one.tpot is not None]
    assert len(errors) > 300
    assert median(errors) <= TPOT


def test_the_median_error_of_a_first_token_is_held_at_every_load() -> None:
    timed = [one for one in rows() if one.ttft is not None]
    errors = [one.ttft for one in timed if one.ttft is not None]
    assert median(map(abs, errors)) <= TTFT
    loads = {describe_load(one) for one in timed if describe_load(one).startswith("closed")}
    for load in loads:
        own = [one.ttft for one in timed if describe_load(one) == load and one.ttft is not None]
        assert abs(median(own)) <= BIAS, load


def test_a_fit_that_saw_no_row_of_a_source_still_predicts_it() -> None:
    known = wait_rows(rows())
    ratios = predict_unseen_sources(known)
    assert len(ratios) == len(known) > 300
    own = {one.row.name for one in rows()}
    errors = {name: abs(ratio - 1) for name, ratio in ratios.items()}
    assert median(error for name, error in errors.items() if name in own) <= 0.22
    rated = {one.prediction.row.name for one in known if one.prediction.row.traffic.request_rate}
    assert median(errors[name] for name in rated) <= 0.35


def test_open_arrivals_are_predicted_as_well_as_closed_loops() -> None:
    errors = [abs(one.ttft) for one in rows() if one.ttft and one.row.traffic.request_rate]
    assert len(errors) >= 9
    assert median(errors) <= TTFT


def test_the_median_error_of_throughput_is_held() -> None:
    errors = [abs(one.rate) for one in rows() if one.rate is not None]
    assert len(errors) > 300
    assert median(errors) <= RATE


def test_the_tensor_parallel_choice_is_right() -> None:
    tables = [choice for choice in choices(rows()) if choice.by_tp]
    assert len(tables) > 50
    assert sum(choice.right for choice in tables) / len(tables) >= RIGHT


def test_the_regret_of_all_choices_is_small() -> None:
    regrets = [choice.regret for choice in choices(rows())]
    assert sum(regrets) / len(regrets) <= REGRET


def test_every_deployment_that_ran_is_predicted_to_fit() -> None:
    assert [one.row.name for one in rows() if not one.found.fits] == []


def test_decode_pools_that_no_constant_was_fitted_to_are_within_20_percent() -> None:
    pools = [one for one in rows() if one.row.setup.prefill_apart]
    pools = [one for one in pools if one.row.model.name.startswith("deepseek")]
    errors = [abs(one.tpot) for one in pools if one.tpot is not None]
    assert len(errors) > 20
    assert median(errors) <= 0.2


def test_the_section_has_a_line_for_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = section()
    assert text.startswith("## Serving\n")
    assert text.count("| llama-3.1-70b |") >= 5
    assert main(["--rows", "l40s llama-3.1-70b"]) == 0
    assert "TPOT" in capsys.readouterr().out


WIDE = {
    "id": "a",
    "source": "maker/bench data/silicon_sample.csv (source_file=2026-01-01.csv)",
    "model": "deepseek-ai/DeepSeek-R1",
    "gpu": "h200",
    "num_gpus": "8.0",
    "gpus_per_instance": "8.0",
    "engine": "sglang",
    "engine_version": "0.5",
    "precision": "fp8",
    "kv_dtype": "",
    "mode": "agg",
    "isl": "1000",
    "osl": "1000.0",
    "concurrency": "64",
    "qps": "",
    "batch_size": "",
    "tp": "1.0",
    "pp": "1.0",
    "attn_dp": "8.0",
    "moe_ep": "8.0",
    "decode_workers": "",
    "decode_tp": "",
    "decode_dp": "",
    "decode_ep": "",
    "output_tok_s_per_gpu": "200",
    "ttft_ms": "500",
    "tpot_ms": "20",
    "notes": "",
    "sweep_id": "S1",
    "tier": "A",
}


def written(folder: Path, *changes: dict[str, str]) -> Path:
    """A wide table with a row for every change of WIDE."""
    with (folder / "serving.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(WIDE))
        writer.writeheader()
        writer.writerows(WIDE | change for change in changes)
    return folder


def test_a_wide_row_becomes_a_question(tmp_path: Path) -> None:
    (row,) = read_serving_table(written(tmp_path, {})).rows
    assert row.layout == ServingLayout(tp=1, dp=8, ep=8)
    assert row.model.name == "deepseek-r1"
    assert row.traffic.input_tokens == 900  # lengths are drawn from 0.8 to 1.0 of nominal
    assert row.setup.kv == "fp8"
    assert row.measured.tpot_seconds == 0.02


def test_a_disaggregated_row_is_its_decoding_pool(tmp_path: Path) -> None:
    pool = {"decode_workers": "2.0", "decode_tp": "8.0", "decode_dp": "1.0", "decode_ep": "8.0"}
    (row,) = read_serving_table(written(tmp_path, {"mode": "disagg", "tp": "", **pool})).rows
    assert row.layout == ServingLayout(tp=8, ep=8, replicas=2)
    assert row.setup.prefill_apart


def test_rows_that_say_too_little_are_counted(tmp_path: Path) -> None:
    wide = read_serving_table(
        written(tmp_path, {"tier": "C"}, {"isl": "chat mix"}, {"tp": ""}, {"model": "unheard-of"})
    )
    assert not wide.rows
    assert sum(wide.left_out.values()) == 4
    assert main(["--data", str(tmp_path)]) == 0


def test_rows_whose_measurements_contradict_them_are_left_out(tmp_path: Path) -> None:
    small = {"num_gpus": "2.0", "tp": "2.0", "attn_dp": "1.0", "moe_ep": "1.0"}
    # 64 requests wait 180 s for 20 s of decoding: 6.4 of them decode, although all fit.
    limited = {"ttft_ms": "180000"}
    fast = {"output_tok_s_per_gpu": "2000000"}
    wide = read_serving_table(written(tmp_path, {}, small, limited, fast))
    assert len(wide.rows) == 1
    assert dict(wide.left_out) == {
        "weights larger than the memory of the stated GPUs": 1,
        "an unrecorded limit of requests": 1,
        "more FLOP/s than the peak of the stated GPUs": 1,
    }


def test_layouts_are_compared_only_within_one_version_of_an_engine(tmp_path: Path) -> None:
    day = "measured 2026-01-14; speculative/MTP settings not recorded"
    other = {"notes": day.replace("14", "15"), "tp": "8.0", "attn_dp": "1.0"}
    rows = read_serving_table(
        written(tmp_path, {"notes": day}, other, {"notes": day, "engine_version": "0.6"})
    ).rows
    assert len({one.sweep for one in rows}) == 3
    assert rows[0].sweep == "S1 0.5 2026-01-14"


def test_a_prompt_waits_for_prompts_on_all_ranks_at_most_until_the_timeout() -> None:
    often, seldom = balance_steps(100.0, 8), balance_steps(1e-6, 8)
    assert often < 1
    # A prompt that arrives alone waits for the whole time; one of many for half of it.
    assert seldom == pytest.approx(60, rel=1e-3)
    assert 25 < balance_steps(0.03, 8) < 35
    assert balance_steps(0.03, 4) < balance_steps(0.03, 8)


def test_published_rows_name_public_sources_and_fit_the_format() -> None:
    for one in rows():
        assert one.row.source.count("/") == 1 or " " in one.row.source
        assert one.row.measured.tpot_seconds or one.row.measured.tokens_per_second_per_gpu


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
