"""Comparison with recorded predictions of other tools on the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.pages.other_tools import (
    MIN_ROWS,
    compared_groups,
    comparison_table,
    read_recorded,
)
from benchmarks.accuracy.pages.page_tables import markdown_table
from benchmarks.accuracy.sources import is_locked
from benchmarks.baselines import features, llm_analysis_input, main, write_recorded
from tests.published_runs import ratios, scored_cases


def test_recorded_predictions_are_of_published_rows() -> None:
    known = {case.run.id: case for case in scored_cases()}
    recorded = read_recorded()
    assert set(recorded) == {"Calculon", "llm-analysis", "boosted trees"}
    for tool, seconds in recorded.items():
        assert set(seconds) <= set(known), tool
        assert min(seconds.values()) > 0
    # Trees are fitted to the open rows, so they predict locked rows only.
    assert all(is_locked(known[run]) for run in recorded["boosted trees"])


def test_every_tool_is_less_accurate_than_parc_over_all_locked_rows() -> None:
    table = markdown_table(comparison_table(scored_cases(), ratios().shipped))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    whole = [row for row in rows if row["group"] == "locked: all"]
    assert len(whole) == 3
    assert [row["tool"] for row in whole if float(row["tool"]) <= float(row["PARC"])] == []
    assert all(int(row["rows"]) >= MIN_ROWS for row in rows)


def test_groups_of_the_comparison_are_locked_or_named() -> None:
    names = [name for name, _ in compared_groups(scored_cases())]
    assert names[-2:] == ["Selene", "vTrain multi-node"]
    assert all(name.startswith("locked: ") for name in names[:-2])


def test_llm_analysis_gets_dense_models_on_its_own_gpus() -> None:
    moe = next(case for case in scored_cases() if case.kind == "MoE")
    assert llm_analysis_input(moe) is None
    selene = next(case for case in scored_cases() if case.run.id == "korth-GPT-3-175B-full")
    found = llm_analysis_input(selene)
    assert found is not None
    assert (found["gpu"], found["recompute"], found["zero"]) == ("a100-sxm-80gb", "FULL", 0)
    batch = found["training"]["batch_size_per_gpu"] * found["parallelism"]["dp_size"]
    steps = found["training"]["gradient_accumulation_steps"]
    assert batch * steps == selene.problem.job.global_batch


def test_features_have_the_same_length_for_all_rows() -> None:
    assert len({len(features(case)) for case in scored_cases()}) == 1


def test_recorded_predictions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    write_recorded(path, {"one": {"b": 2.0, "a": 1.2345678}})
    assert read_recorded(path) == {"one": {"a": 1.235, "b": 2.0}}


def test_a_tool_that_cannot_be_run_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--calculon", str(tmp_path), "--llm-analysis", str(tmp_path)]
    assert main([*words, "--python", "/nonexistent"]) == 2
    assert "baselines: " in capsys.readouterr().err
