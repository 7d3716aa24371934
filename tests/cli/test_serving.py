"""Tests of the commands with the spec of a service."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from parc.compiler.cli import main

ROOT = Path(__file__).parents[2]
SPEC = str(ROOT / "examples" / "llama-3.1-405b-serve" / "spec.yaml")


def run(*words: str, code: int = 0) -> str:
    """Return the standard output of a command that exits with ``code``."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    return done.stdout


def test_compile_shows_latencies_and_verify_passes(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    text = run("compile", SPEC, "-o", out)
    assert "layout    tp 8, pp 2, 1 replica" in text
    assert "TTFT" in text
    assert "consistent and unmodified" in run("verify", out)
    run("compile", SPEC, "-o", out, "--check", "--locked")


def test_a_decision_that_differs_from_the_lock_is_listed(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run("compile", SPEC, "-o", out)
    done = CliRunner().invoke(
        main, ["compile", SPEC, "-o", out, "--locked", "--set", "job.max_num_seqs=64"]
    )
    assert done.exit_code == 1
    assert "limits.max_num_seqs" in done.stderr


def test_estimates_as_text_and_as_json_are_equal() -> None:
    text, document = run("estimate", SPEC), json.loads(run("estimate", SPEC, "--format", "json"))
    assert f"{document['limits']['blocks']:,}" in text
    assert document["decode"]["total_seconds"] == pytest.approx(
        sum(value for name, value in document["decode"].items() if name != "total_seconds"),
        rel=1e-4,
    )


def test_search_lists_candidates_in_three_formats() -> None:
    table = run("search", SPEC, "--top", "3")
    document = json.loads(run("search", SPEC, "--top", "3", "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(run("search", SPEC, "--top", "3", "--format", "csv"))))
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert [str(one["tp"]) for one in document["candidates"]] == [row["tp"] for row in rows]
    assert "PARC-V02" in table
    kept = document["enumerated"] - sum(one["count"] for one in document["dropped"])
    assert kept >= 3


def test_a_diff_lists_flags_and_cache(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    run("compile", SPEC, "-o", old)
    run("compile", SPEC, "-o", new, "--set", "job.kv_precision=fp8")
    text = run("diff", old, new)
    assert "--kv-cache-dtype" in text
    assert "cache tokens" in text
    assert json.loads(run("diff", old, new, "--format", "json"))["checkpoint"] is None
    run("diff", old, new, "--exit-code", code=3)


def test_a_training_job_is_not_compared_with_a_service() -> None:
    other = str(ROOT / "examples" / "gpt2-small" / "spec.yaml")
    assert "trains a model" in CliRunner().invoke(main, ["diff", SPEC, other]).output


def test_the_starter_of_a_service_compiles(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(run("init", "--kind", "serve"), encoding="utf-8")
    assert "OK: " in run("check", str(spec))


def test_the_summary_as_json_contains_layout_and_limits(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    document = json.loads(run("compile", SPEC, "-o", out, "--format", "json"))
    assert document["plan"]["layout"]["tp"] == 8
    assert document["plan"]["limits"]["max_model_len"] == 32768


@pytest.mark.parametrize("field", ["layout.replicas", "job.traffic.request_rate", "goals.ttft"])
def test_fields_of_serving_are_explained(field: str) -> None:
    assert "type:" in run("explain", field)


def test_a_service_without_limits_is_not_a_training_plan() -> None:
    rules = json.loads((ROOT / "schemas" / "plan.schema.json").read_text("utf-8"))
    folder = ROOT / "examples" / "deepseek-v3-serve" / "expected"
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    jsonschema.validate(plan, rules)
    del plan["limits"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, rules)
