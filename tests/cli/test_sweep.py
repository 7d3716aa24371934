"""Tests of ``parc sweep`` and ``parc.sweep``: points, rows, the best point, formats, executors."""

from __future__ import annotations

import csv
import io
import json
import re
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from parc.compiler import api
from parc.compiler.spec.reading.source import read_source
from parc.compiler.tools.sweep.run_sweep import (
    SweepError,
    SweepRow,
    axis_of_list,
    axis_of_option,
    combine_axes,
    evaluate_point,
    local_executor,
)
from parc.compiler.tools.sweep.sweep import Limits, Sweep, describe_best
from parc.compiler.tools.sweep.sweep_page import sweep_page
from tests.cli.specs import parc, write_spec

BUDGET = ("  node: dgx-h100\n", "  node: dgx-h100\n  price_per_gpu_hour: 2\n")
STEPS = ("global_batch: 64}", "global_batch: 64, steps: 1000, checkpoint_dir: /c}")


def values(axis: tuple[Any, ...]) -> list[str]:
    return [value for ((_, value),) in axis]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job.global_batch=64,128", ["64", "128"]),
        ("cluster.nodes=2..8:3", ["2", "5", "8"]),
        ("cluster.nodes=2..4", ["2", "3", "4"]),
        ("cluster.nodes=2..16:x2", ["2", "4", "8", "16"]),
        ("a=0.1..0.3:0.1", ["0.1", "0.2", "0.3"]),
        ("a=[1,2],{b: [3, 4]}", ["[1,2]", "{b: [3, 4]}"]),
        ('a="x,y",../models/a', ['"x,y"', "../models/a"]),
    ],
)
def test_an_option_gives_the_values_of_its_list_or_range(text: str, expected: list[str]) -> None:
    assert values(axis_of_option(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job.global_batch", "'job.global_batch' is not PATH=V1,V2 or PATH=LOW..HIGH:STEP"),
        ("a=4..2", "the range '4..2' has no values"),
        ("a=1..2:0", "the range '1..2:0' never ends: its step must increase the value"),
        ("a=1..2:x1", "the range '1..2:x1' never ends: its step must increase the value"),
        ("a=1..c", "'1..c' is not a range of numbers, LOW..HIGH:STEP"),
        ("a=1..Infinity", "the range '1..Infinity' has no values"),
    ],
)
def test_an_invalid_option_is_reported(text: str, message: str) -> None:
    with pytest.raises(SweepError, match=f"^{re.escape(message)}$"):
        axis_of_option(text)


def test_the_grid_combines_all_axes_and_the_rows_of_a_list() -> None:
    listed = axis_of_list("cluster.node,cluster.price_per_gpu_hour\ndgx-h100,3\ndgx-a100,\n")
    points = combine_axes([listed, axis_of_option("cluster.nodes=1,2")])
    assert points == [
        (("cluster.node", "dgx-h100"), ("cluster.price_per_gpu_hour", "3"), ("cluster.nodes", "1")),
        (("cluster.node", "dgx-h100"), ("cluster.price_per_gpu_hour", "3"), ("cluster.nodes", "2")),
        (("cluster.node", "dgx-a100"), ("cluster.nodes", "1")),
        (("cluster.node", "dgx-a100"), ("cluster.nodes", "2")),
    ]


def test_too_many_points_and_repeated_fields_are_reported() -> None:
    with pytest.raises(SweepError, match="the sweep has 1,000,000 points"):
        combine_axes([axis_of_option("a=1..1000"), axis_of_option("b=1..1000")])
    with pytest.raises(SweepError, match="a is varied twice"):
        combine_axes([axis_of_option("a=1"), axis_of_option("a=2")])


@pytest.mark.parametrize("text", ["", "a,b\n", "a,\n1,2\n", "a\n1,2\n", 'a\n"1\n'])
def test_an_invalid_list_is_reported(text: str) -> None:
    with pytest.raises(SweepError):
        axis_of_list(text)


def test_a_sweep_prints_figures_failures_and_the_cheapest_point(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, BUDGET, STEPS)
    page = tmp_path / "sweep.html"
    options = ("--vary", "layout.tp=8,3", "--vary", "job.global_batch=64", "--jobs", "1")
    result = parc("sweep", spec, *options, "--best", "cost", "--within", "30d", "--html", str(page))
    assert result.exit_code == 0, result.output
    assert "2 points, 1 without a plan" in result.stdout
    assert "1 point, 1 without a plan" in parc("sweep", spec, "--vary", "layout.tp=3").stdout
    assert "  layout.tp=3 job.global_batch=64: PARC-D" in result.stdout
    assert "\nbest cost within 30.0 days: layout.tp=8 job.global_batch=64\n" in result.stdout
    text = page.read_text("utf-8")
    assert "Time against cost" in text
    assert "<script" not in text


def test_rows_equal_the_estimate_of_compile(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, BUDGET, STEPS)
    result = parc("sweep", spec, "--vary", "job.precision=bf16", "--jobs", "1", "--format", "json")
    (row,) = json.loads(result.stdout)["points"]
    plan = json.loads(parc("estimate", spec, "--format", "json").stdout)
    assert row["values"] == {"job.precision": "bf16"}
    assert row["step_seconds"] == pytest.approx(plan["time"]["total_seconds"], rel=1e-5)
    assert row["wall_seconds"] == pytest.approx(plan["run"]["wall_seconds"], rel=1e-5)
    assert row["cost"] == pytest.approx(plan["run"]["cost"], rel=1e-5)
    assert row["gpus"] == 32


def test_csv_has_one_row_per_point(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, STEPS)
    points = tmp_path / "points.csv"
    points.write_text("layout.tp,job.global_batch\n8,\n3,128\n", "utf-8")
    result = parc("sweep", spec, "--list", str(points), "--jobs", "1", "--format", "csv")
    good, bad = csv.DictReader(io.StringIO(result.stdout))
    assert (good["layout.tp"], good["job.global_batch"], good["error"]) == ("8", "", "")
    assert float(good["step_seconds"]) > 0
    assert bad["error"].startswith("PARC-")
    assert bad["step_seconds"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing varies: add --vary PATH=VALUES or --list FILE"),
        (("--vary", "a"), "'a' is not PATH=V1,V2 or PATH=LOW..HIGH:STEP"),
        (("--vary", "a=1", "--within", "3d"), "--within and --max-cost need --best"),
        (("--vary", "a=1", "--best", "time", "--within", "soon"), "Invalid value for --within"),
        (("--vary", "a=1", "--executor", "ssh://x"), "is not dask://HOST:PORT"),
    ],
)
def test_wrong_usage_is_reported(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    result = parc("sweep", write_spec(tmp_path), *options)
    assert result.exit_code == 2
    assert message in result.stderr


def row(nodes: int, days: float, cost: float | None, **figures: Any) -> SweepRow:
    speed = figures.pop("tokens_per_second", 100.0 * nodes)
    seconds = None if days == 0 else days * 86_400
    return SweepRow(
        (("cluster.nodes", str(nodes)),),
        **{"gpu": "g", "gpus": 8 * nodes, "layout": "tp 8", "tokens_per_second": speed},
        **{"wall_seconds": seconds, "cost": cost, **figures},
    )


SWEEP = Sweep(
    "s",
    (
        row(1, 80, 100.0),
        row(4, 20, 120.0, tokens_per_second=360.0),
        row(2, 40, 130.0),
        SweepRow((("cluster.nodes", "0"),), "PARC-H09: none"),
        row(8, 10, 200.0),
    ),
)


def test_the_best_point_keeps_the_limits() -> None:
    assert SWEEP.best("cost") is SWEEP.rows[0]
    assert SWEEP.best("cost", Limits(30 * 86_400)) is SWEEP.rows[1]
    assert SWEEP.best("time", Limits(None, 130)) is SWEEP.rows[1]
    assert SWEEP.best("time", Limits(86_400)) is None
    text, found = describe_best(SWEEP, "cost", Limits(86_400))
    assert not found
    assert text.startswith("best cost within 24.0 h: no such point; the fastest is cluster.nodes=8")


def test_the_pareto_front_leaves_out_points_that_are_slower_and_dearer() -> None:
    assert SWEEP.pareto == {0, 1, 4}


def test_scaling_is_relative_to_the_smallest_cluster() -> None:
    assert SWEEP.scaling == (1.0, pytest.approx(0.9), 1.0, None, 1.0)


def test_a_sweep_without_prices_names_the_missing_field() -> None:
    text, found = describe_best(Sweep("s", (row(1, 80, None),)), "cost", Limits())
    assert (text, found) == (
        "best cost: unknown; set cluster.price_per_gpu_hour, or use --best gpu-hours",
        False,
    )


def test_the_page_escapes_text_and_draws_both_charts() -> None:
    hostile = SweepRow((("name", "<b>"),), "PARC-X06: <script>")
    page = sweep_page(Sweep("<i>", (*SWEEP.rows, hostile)))
    assert "<script" not in page
    assert "<b>" not in page
    assert "<h2>Scaling efficiency</h2>" in page


def test_the_python_function_accepts_any_executor(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, STEPS)
    with ThreadPoolExecutor(1) as pool:
        found = api.sweep(spec, {"job.global_batch": [64, 96]}, executor=pool)
    assert [one.error for one in found.rows] == ["", ""]
    assert [dict(one.values)["job.global_batch"] for one in found.rows] == ["64", "96"]


class BrokenExecutor(Executor):
    """Executor whose workers have died."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(OSError("worker lost"))
        return future


def test_a_lost_worker_is_an_error_of_its_point(tmp_path: Path) -> None:
    found = api.sweep(write_spec(tmp_path), {"job.global_batch": [64]}, executor=BrokenExecutor())
    assert found.rows[0].error == "OSError: worker lost"


def test_a_bug_in_a_point_is_an_error_of_this_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("parc.compiler.tools.sweep.run_sweep.plan_resolved", broken)
    found = evaluate_point(read_source(write_spec(tmp_path)), (), ())
    assert found.error == "RuntimeError: no"


def test_a_local_pool_has_at_most_one_process_per_point() -> None:
    assert local_executor(1, 8) is None
    assert local_executor(8, 1) is None
