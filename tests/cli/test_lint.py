from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.specs import parc
from tests.lint.scripts import DEEPSPEED, MEGATRON


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON.replace("--global-batch-size 128", "--global-batch-size 130"))
    return str(path)


def test_findings_are_shown_at_the_flag_and_the_exit_code_is_1(bad: str) -> None:
    result = parc("lint", bad)
    assert result.exit_code == 1
    assert "error[PARC-B01]" in result.stdout
    assert f"{bad}:22:5" in result.stdout
    assert "= fix:  --global-batch-size 132" in result.stdout


def test_a_correct_script_is_confirmed_and_skipped_rules_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON)
    result = parc("lint", str(path))
    assert result.exit_code == 0
    assert "OK, no problems found" in result.stdout
    skipped = "Skipped PARC-T02: the size of an NVLink domain is unknown. Pass --cluster."
    assert f"{path}: {skipped}" in result.stdout


@pytest.mark.parametrize("style", ["json", "sarif"])
def test_machine_formats_name_file_line_and_code(bad: str, style: str) -> None:
    result = parc("lint", bad, "--format", style)
    assert result.exit_code == 1
    document = json.dumps(json.loads(result.stdout))
    assert "PARC-B01" in document
    assert "22" in document


def test_github_annotations_name_the_line(bad: str) -> None:
    assert "line=22" in parc("lint", bad, "--format", "github").stdout


def test_fail_on_accepts_advice(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON.replace("--global-batch-size 128", "--global-batch-size 16"))
    assert parc("lint", str(path)).exit_code == 0
    assert parc("lint", str(path), "--fail-on", "advice").exit_code == 1


def test_several_files_and_standard_input_are_checked_in_one_run(bad: str) -> None:
    result = parc("lint", bad, "-", given=DEEPSPEED.replace("256", "250"))
    assert result.exit_code == 1
    assert "PARC-B01" in result.stdout
    assert "PARC-B02" in result.stdout


def test_an_unreadable_file_ends_in_exit_code_2(bad: str, tmp_path: Path) -> None:
    result = parc("lint", bad, str(tmp_path / "absent.sh"))
    assert result.exit_code == 2
    assert "PARC-B01" in result.stdout
    assert "cannot read" in result.stderr
