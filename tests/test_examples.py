"""Examples compile to exactly its expected output, and the files are valid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.compiled import EXAMPLES, ROOT
from tests.conftest import CHANGES
from tests.goldens import (
    FULL,
    SUMMARY,
    changes,
    emitted_by,
    golden_files,
    stored_files,
    write_files,
)
from tests.samples import slow_cases
from tests.shell_checks import shell_findings


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_compiles_to_exactly_what_is_expected(
    name: str, request: pytest.FixtureRequest
) -> None:
    now = golden_files(name)
    if request.config.getoption("--update-golden"):
        lines = write_files(name, now)
        request.config.stash[CHANGES] += [(name, line) for line in lines]
    found = stored_files(name)
    assert sorted(found) == sorted(now)
    for path, text in now.items():
        assert found[path] == text, path


def test_three_examples_are_stored_in_full_and_every_file_of_the_others_is_accounted_for() -> None:
    assert set(FULL) < set(EXAMPLES)
    for name in EXAMPLES:
        files = golden_files(name)
        listed = {path.removeprefix("expected/") for path in files if path != SUMMARY}
        notes = [line.partition("  ")[2] for line in files[SUMMARY].splitlines() if "  " in line]
        listed |= {path for note in notes for path in note.split()}
        assert emitted_by(name).keys() <= listed, name


def test_changes_of_a_golden_are_described_in_words() -> None:
    before = {
        SUMMARY: "step      29.87 s\n\nsha256 12  plan.json\n",
        "expected/a.sh": "--tp 8\nx\n",
    }
    after = {SUMMARY: "step      30.10 s\n\nsha256 34  plan.json\n", "expected/a.sh": "--tp 4\nx\n"}
    assert changes(before, after) == [
        "step: 29.87 s -> 30.10 s",
        "plan.json: sha256 12 -> sha256 34",
        "expected/a.sh: --tp 8 -> --tp 4",
    ]
    assert changes(before, before) == []
    assert changes(before, {SUMMARY: before[SUMMARY]}) == ["expected/a.sh: removed"]


@cache
def validator_of(schema: str) -> Draft202012Validator:
    """Return a validator, after the schema itself is checked, which takes most of the time."""
    rules = json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(rules)
    return Draft202012Validator(rules)


LARGE = ("deepseek-v3", "llama-3.1-405b", "mt-nlg-530b")
"""Examples whose rank maps take most of the time of this check."""


@pytest.mark.parametrize("name", slow_cases(EXAMPLES, LARGE.__contains__))
def test_the_json_files_of_an_example_keep_their_schemas(name: str) -> None:
    for path, schema in (("plan.json", "plan"), ("rankmap.json", "rankmap"), ("parc.lock", "lock")):
        validator_of(schema).validate(json.loads(emitted_by(name)[path]))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_batch_script_of_an_example_fits_on_two_screens(name: str) -> None:
    assert emitted_by(name).get("slurm/job.sbatch", "").count("\n") <= 90


@pytest.mark.parametrize("name", [*FULL, "llama-3-70b"])
def test_bash_and_shellcheck_accept_the_scripts_of_an_example(name: str, tmp_path: Path) -> None:
    scripts = [path for path in emitted_by(name) if path.endswith((".sh", ".sbatch"))]
    assert scripts
    assert shell_findings([emitted_by(name)[path] for path in scripts], tmp_path) == ""


def test_two_compiles_are_byte_identical_under_another_seed_locale_and_folder(
    tmp_path: Path,
) -> None:
    spec = ROOT / "examples" / "mixtral-8x7b" / "spec.yaml"
    digests = []
    for seed, locale in (("0", "C"), ("4242", "C.UTF-8")):
        folder = tmp_path / f"seed {seed}"
        folder.mkdir()
        command = [sys.executable, "-m", "parc", "compile", str(spec), "-o", "out"]
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "PYTHONPATH": str(ROOT),
        }
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        files = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
        digests.append([(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files])
    assert digests[0] == digests[1]
    assert len(digests[0]) >= 8
