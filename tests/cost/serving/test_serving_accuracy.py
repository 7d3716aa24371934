"""The serving model against published measurements, and the reading of wide tables."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving
from benchmarks.accuracy.serving.rows import read_published
from benchmarks.accuracy.serving.section import choices, main, section
from benchmarks.accuracy.serving.waits import describe_load, predict_unseen_sources, wait_rows
from benchmarks.accuracy.serving.wide_table import balance_steps, read_serving_table
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
