from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from parc.backends.registry import all_declarations
from tests.cli.specs import parc
from tests.lint.scripts import DEEPSPEED, MEGATRON
from tests.project_files import ROOT


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
    skipped = "Skipped PARC-T02, PARC-M04: the size of an NVLink domain is unknown."
    assert f"{path}: {skipped} Pass --cluster." in result.stdout
    assert re.search(r"run.sh: [1-9][0-9]* checks evaluated, [1-9][0-9]* skipped\n", result.stdout)


def test_json_lists_evaluated_and_skipped_checks(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON)
    (file,) = json.loads(parc("lint", str(path), "--format", "json").stdout)["files"]
    assert "PARC-D01" in file["checked"]
    reason = "the size of an NVLink domain is unknown. Pass --cluster."
    assert {"code": "PARC-T02", "reason": reason} in file["skipped"]


def test_an_unknown_launcher_fails_unless_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 -m verl.trainer.main_ppo trainer.nnodes=2\n")
    assert parc("lint", str(path)).exit_code == 1
    assert "PARC-I09" in parc("lint", str(path)).stdout
    assert parc("lint", str(path), "--allow-unknown").exit_code == 0


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


@pytest.mark.parametrize("pp", [3, 5, 6])
def test_a_check_that_was_evaluated_or_reported_is_not_listed_as_skipped(
    pp: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    size = "--pipeline-model-parallel-size"
    path.write_text(MEGATRON.replace(f"{size} 2", f"{size} {pp}"))
    document = json.loads(parc("lint", str(path), "--format", "json").stdout)
    file = document["files"][0]
    skipped = {one["code"] for one in file["skipped"]}
    reported = {one["code"] for one in document["diagnostics"]}
    assert reported
    assert skipped
    assert not skipped & reported
    assert not skipped & set(file["checked"])
    counted = re.search(r"evaluated, (\d+) skipped", parc("lint", str(path)).stdout)
    assert counted is not None
    assert int(counted[1]) == len(skipped)


def test_help_and_page_name_every_program_whose_files_are_linted() -> None:
    page = (ROOT / "docs/lint.md").read_text("utf-8").lower()
    help_text = " ".join(parc("lint", "--help").stdout.split())
    for name in (one.name for one in all_declarations() if one.linter):
        assert f"{name}," in help_text or f"{name};" in help_text
        assert name in page
        assert not re.search(rf"another framework, such as[^,]*\b{name}\b", page)
