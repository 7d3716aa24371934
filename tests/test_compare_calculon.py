"""Conversion of runs to Calculon and of its results back, tested with a stub of Calculon."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.columns import columns_without_fit
from benchmarks.accuracy.groups import is_small
from benchmarks.compare_calculon import (
    calculon_input,
    calculon_seconds,
    is_expressible,
    main,
    predict_by_calculon,
    table,
)
from tests import published_runs

STUB = {
    "__init__.py": """
import json
class io:
    @staticmethod
    def read_json_file(path):
        with open(path) as file:
            return json.load(file)
class System:
    def __init__(self, values):
        self.values = values
""",
    "llm.py": """
class Llm:
    class Error(Exception):
        pass
    class Application:
        def __init__(self, values):
            self.values = values
    class Execution:
        @staticmethod
        def from_json(values):
            return values
    def __init__(self, application, log):
        self.application = application
    def compile(self, system, execution):
        if execution["tensor_par"] == 8:
            raise Llm.Error("refused")
        self.seconds = 2.0 if execution["data_par_overlap"] else 3.0
    def run(self, system):
        assert system.values["mem1"]["GiB"] > 1e6
    def get_total_time(self):
        return self.seconds
""",
}


@cache
def cases() -> list[Case]:
    """Return the published runs that Calculon can express."""
    return [case for case in published_runs.cases() if is_expressible(case)]


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    """Return the path of a checkout that contains a stub of Calculon."""
    for folder in ("calculon", "systems"):
        (tmp_path / folder).mkdir()
    for name, text in STUB.items():
        (tmp_path / "calculon" / name).write_text(text, encoding="utf-8")
    for name in ("a100_80g", "h100_80g_nvl8"):
        (tmp_path / "systems" / f"{name}.json").write_text('{"mem1": {"GiB": 80}}', "utf-8")
    return str(tmp_path)


def test_a_run_is_converted_to_the_options_of_calculon() -> None:
    case = next(one for one in cases() if one.run.id.startswith("korth-GPT-3-175B-selective"))
    calculon_case = calculon_input(case, overlap=True)
    assert calculon_case["system"] == "a100_80g"
    assert calculon_case["application"]["feedforward"] == 4 * 12288
    execution = calculon_case["execution"]
    degrees = [execution[f"{axis}_par"] for axis in ("tensor", "pipeline", "data")]
    assert (degrees, execution["num_procs"]) == ([8, 8, 1], 64)
    assert execution["activation_recompute"] == "attn_only"
    assert execution["tensor_par_comm_type"] == "rs_ag"
    assert not execution["data_par_overlap"], "there is no data parallelism to overlap with"


def test_gated_mlps_have_a_feed_forward_width_of_one_and_a_half() -> None:
    case = next(one for one in cases() if one.problem.model.ffn.gated)
    width = calculon_input(case, overlap=False)["application"]["feedforward"]
    assert width == int(1.5 * case.problem.model.ffn.size)


def test_results_are_in_order_and_rejected_cases_are_none(checkout: str) -> None:
    chosen = cases()[:40]
    answers = calculon_seconds(chosen, False, sys.executable, checkout)
    assert answers == [None if case.layout.tp == 8 else 3.0 for case in chosen]


def test_the_fastest_overlap_of_calculon_is_used(checkout: str) -> None:
    rows = predict_by_calculon(cases(), sys.executable, checkout)
    assert rows
    assert {round(row.calculon * row.case.seconds, 9) for row in rows} <= {2.0, 3.0}
    gpus = {row.case.problem.cluster.gpu.name for row in rows}
    assert gpus <= {"a100-sxm-80gb", "a100-sxm-40gb", "h100-sxm-80gb"}
    found = columns_without_fit([row.case for row in rows])
    found.no_source.update(found.shipped)
    lines = table(rows, found)
    large = sum(not is_small(row.case) for row in rows)
    assert f"| all | {large} |" in [line[: len(f"| all | {large} |")] for line in lines]


def test_a_folder_that_is_not_a_checkout_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "compare_calculon" in capsys.readouterr().err
