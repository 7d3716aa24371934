"""Every example compiles to exactly what stands beside it, and the files are sound."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from tests.compiled import EXAMPLES, ROOT, emitted, example

DIGEST_OVER_BYTES = 100_000
"""A longer file is held by its sha256, so that the repository stays small."""


@cache
def compiled(name: str) -> Mapping[str, str]:
    """Path -> text of everything that the example compiles to."""
    return emitted(example(name))


def folded(artifacts: Mapping[str, str]) -> dict[str, str]:
    """The same with long files replaced by their digest."""
    result = {}
    for path, text in artifacts.items():
        data = text.encode()
        if len(data) > DIGEST_OVER_BYTES:
            result[path + ".sha256"] = hashlib.sha256(data).hexdigest() + "\n"
        else:
            result[path] = text
    return result


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_compiles_to_exactly_what_is_expected(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder = ROOT / "examples" / name / "expected"
    now = folded(compiled(name))
    if request.config.getoption("--update-golden"):
        for stale in folder.rglob("*") if folder.exists() else ():
            if stale.is_file():
                stale.unlink()
        for path, text in now.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
    found = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    assert sorted(found) == sorted(now)
    for path, text in now.items():
        assert found[path] == text, path


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_json_files_of_an_example_keep_their_schemas(name: str) -> None:
    for path, schema in (("plan.json", "plan"), ("rankmap.json", "rankmap"), ("parc.lock", "lock")):
        rules = json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_text("utf-8"))
        jsonschema.validate(json.loads(compiled(name)[path]), rules)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_scripts_of_an_example_pass_bash_and_shellcheck(name: str, tmp_path: Path) -> None:
    scripts = [path for path in compiled(name) if path.endswith((".sh", ".sbatch"))]
    assert scripts
    for path in scripts:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(compiled(name)[path], encoding="utf-8", newline="\n")
    files = [str(tmp_path / path) for path in scripts]
    for file in files:
        subprocess.run(["bash", "-n", file], check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    checked = subprocess.run(
        [str(shellcheck), "--shell=bash", *files], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


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
