"""Backends of other packages are found and emitted; defects are refused with a diagnostic."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from parc.backends.base import Backend, Engine, Framework, ServingBackend
from parc.backends.built_in import BUILT_IN
from parc.backends.plugins import optional_parts, protocol_members
from parc.backends.registry import backend, backend_has_role, serving_backend
from parc.compiler.cli import main
from tests.backends.plugin_distributions import LAUNCHER, scanned, write_distribution

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 8, "micro_batch": 1},
}
DECLARED = "Declaration(name=NAME, package=__name__, training=__name__)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions, and of specs."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def compiled(folder: Path, *emit: str) -> Result:
    spec = folder / "spec.yaml"
    spec.write_text(json.dumps(SPEC | {"emit": list(emit)}, indent=1), encoding="utf-8")
    return CliRunner().invoke(main, ["compile", str(spec), "-o", str(folder / "out")])


def listed(*words: str) -> Result:
    return CliRunner().invoke(main, ["backends", *words])


def test_a_plugin_is_listed_and_emitted(folder: Path) -> None:
    write_distribution(folder, "mylab", LAUNCHER)
    records = json.loads(listed("--format", "json").stdout)["backends"]
    assert [one for one in records if one["name"] == "mylab"] == [
        {
            "about": "",
            "default_version": "2",
            "framework": False,
            "jobs": ["train"],
            "name": "mylab",
            "versions": ["1", "2"],
        }
    ]
    result = compiled(folder, "mylab", "rankmap")
    assert result.exit_code == 0, result.output
    assert (folder / "out" / "mylab" / "run.txt").read_text("utf-8") == "8 ranks\n"
    assert compiled(folder, "rankmap").exit_code == 0, "a folder of an earlier output is replaced"
    assert not (folder / "out" / "mylab").exists()


def readme_launcher() -> str:
    """Return the module in ``backends/README.md``, with braces escaped for ``str.format``."""
    found = re.search(
        r"```python\n(.*?)```", (ROOT / "backends/README.md").read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    return found[1].replace("{", "{{").replace("}", "}}")


def readme_job(folder: Path) -> Result:
    """Compile a job with named hosts for Megatron-LM and the launcher in ``backends/README.md``."""
    write_distribution(folder, "mpi", readme_launcher())
    racks = [{"name": "r1", "nodes": "a[1-2]"}]
    tree = SPEC | {
        "cluster": {"node": "dgx-h100", "racks": racks},
        "launch": {"program": "train.py", "env": {"MODE": "two words"}},
        "emit": ["megatron", "mpi", "rankmap"],
    }
    spec = folder / "spec.yaml"
    spec.write_text(json.dumps(tree, indent=1), encoding="utf-8")
    return CliRunner().invoke(main, ["compile", str(spec), "-o", str(folder / "out")])


def test_the_launcher_in_the_readme_is_emitted_and_verified(folder: Path) -> None:
    result = readme_job(folder)
    assert "a host file and a script for mpirun." in listed().stdout
    assert result.exit_code == 0, result.output
    assert "error[" not in result.output
    assert f"start     {folder}/out/mpi/run.sh" in result.output
    verify = ["verify", str(folder / "out")]
    assert CliRunner().invoke(main, verify).exit_code == 0
    script = folder / "out" / "mpi" / "run.sh"
    script.write_text(script.read_text("utf-8").replace("-np 16", "-np 7"), encoding="utf-8")
    damaged = CliRunner().invoke(main, verify)
    assert damaged.exit_code == 1
    assert "-np is 7 in mpi/run.sh, but the rank map has 16" in damaged.output
    (folder / "out" / "mpi" / "hosts").unlink()
    assert "mpi/run.sh needs mpi/hosts" in CliRunner().invoke(main, verify).output


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")
def test_the_launcher_in_the_readme_starts_the_program_on_every_rank(folder: Path) -> None:
    assert readme_job(folder).exit_code == 0
    tools = folder / "tools"
    tools.mkdir()
    # mpirun starts the script that follows its options, here as rank 9 on the second host.
    mpirun = 'echo "$@" > mpirun.txt; while [[ $1 != *.sh ]]; do shift; done\n'
    mpirun += 'OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_LOCAL_RANK=1 exec bash "$@"\n'
    python = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MODE" > rank.txt\n'
    python += 'printf "%s\\n" "$@" > words.txt\n'
    for name, text in (("mpirun", mpirun), ("python", python)):
        (tools / name).write_text(f"#!/bin/bash\n{text}", encoding="utf-8")
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    script = str(folder / "out" / "mpi" / "run.sh")
    subprocess.run(["bash", script, "--more"], cwd=folder, env=environment, check=True)
    assert "-np 16" in (folder / "mpirun.txt").read_text("utf-8")
    assert (folder / "rank.txt").read_text("utf-8") == "9 1 16 a1 two words\n"
    words = (folder / "words.txt").read_text("utf-8").splitlines()
    assert words[0] == "train.py"
    assert "--tensor-model-parallel-size" in words
    assert words[-1] == "--more"


def test_the_launcher_in_the_readme_needs_host_names_and_a_framework(folder: Path) -> None:
    write_distribution(folder, "mpi", readme_launcher())
    assert "PARC-E15" in compiled(folder, "mpi", "rankmap").output
    assert "mpirun needs the names of the hosts" in compiled(folder, "megatron", "mpi").output


def test_an_unknown_target_lists_plugins_among_the_valid_values(folder: Path) -> None:
    write_distribution(folder, "mylab", LAUNCHER)
    result = compiled(folder, "mylap")
    assert result.exit_code == 1
    assert "PARC-X16" in result.output
    assert "did you mean mylab?" in result.output


def test_two_distributions_with_one_name_are_both_named(folder: Path) -> None:
    write_distribution(folder, "mylab", LAUNCHER)
    write_distribution(folder, "mylab", LAUNCHER, dist="other-lab")
    for result in (compiled(folder, "mylab"), listed()):
        assert result.exit_code == 1
        assert "PARC-X23" in result.output
        assert "other-lab 1.0 and parc-mylab 1.0 register this name" in result.output


def test_a_plugin_never_replaces_a_built_in_backend(folder: Path) -> None:
    write_distribution(folder, "torchrun", LAUNCHER, dist="my-torchrun")
    assert compiled(folder, "megatron", "torchrun").exit_code == 0
    assert (folder / "out" / "torchrun" / "launch.sh").is_file()
    result = listed()
    assert result.exit_code == 1
    assert "my-torchrun 1.0 and PARC itself declare this name" in result.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import Artifact", "import Artefact", "ImportError"),
        ("NAME = ", "1 / 0 # ", "ZeroDivisionError: division by zero"),
        (f"= {DECLARED}", "= 7", "it is a int, must be a parc.backends.declaration.Declaration"),
        ("name=NAME", 'name="other"', "it declares the name 'other', the entry point is called"),
        (", training=__name__", "", "it declares neither a training nor a serving module"),
        ("training=__name__", 'training="no_such_module"', "ModuleNotFoundError"),
        ("training=__name__", 'training=__name__, default_for=("train",)', "default_for must be"),
        ("BACKEND = Launcher()", "", "has no BACKEND"),
        ("    name = NAME", '    name = "x"', "needs the name 'mylab' and at least one version"),
        ('("1", "2")', "()", "needs the name 'mylab' and at least one version"),
        ("def emit", "def emits", "lacks emit of Backend"),
        (
            "    def emit",
            "    def emit_ruoter(self):\n        pass\n\n    def emit",
            "write emit_router of PoolRouting",
        ),
        ("training=", "binds_layout=True, training=", "lacks"),
        ("training=", "binds_layout=True, serving=", "lacks"),
    ],
)
def test_a_defect_of_a_plugin_is_a_diagnostic(
    folder: Path, old: str, new: str, message: str
) -> None:
    assert old in LAUNCHER
    write_distribution(folder, "mylab", LAUNCHER.replace(old, new))
    write_distribution(folder, "sound", LAUNCHER)
    for result in (compiled(folder, "mylab", "rankmap"), listed()):
        assert result.exit_code == 1
        assert "PARC-X23" in result.output
        assert message in result.output
    assert "sound" in listed().stdout
    assert compiled(folder, "sound", "rankmap").exit_code == 0, "other plugins can be used"


@pytest.mark.parametrize("name", ["plan", "parc", "My Lab", "../up"])
def test_a_name_that_cannot_name_a_folder_of_files_is_refused(folder: Path, name: str) -> None:
    write_distribution(folder, name, LAUNCHER, dist="parc-mylab")
    result = listed()
    assert result.exit_code == 1
    assert "is not a valid name" in result.output


def test_built_in_backends_have_all_members_of_their_protocols() -> None:
    for one in BUILT_IN:
        training = Framework if one.binds_layout else Backend
        serving = Engine if one.binds_layout else ServingBackend
        if backend_has_role(one, "train"):
            target: object = backend(one.name)
            assert [name for name in protocol_members(training) if not hasattr(target, name)] == []
        if backend_has_role(one, "serve"):
            target = serving_backend(one.name)
            assert [name for name in protocol_members(serving) if not hasattr(target, name)] == []


def test_the_page_lists_every_optional_part() -> None:
    page = (ROOT / "backends/README.md").read_text("utf-8")
    assert {"GraphCapture", "PoolRouting"} <= {one.__name__ for one in optional_parts()}
    assert [one.__name__ for one in optional_parts() if f"| `{one.__name__}` |" not in page] == []
    for one in optional_parts():
        assert (one.__doc__ or "").startswith("Optional part of")


def test_members_of_a_protocol_include_those_of_its_bases() -> None:
    assert {"name", "versions", "check", "emit", "rules"} <= set(protocol_members(Framework))


def test_installed_packages_are_scanned_only_for_names_that_are_not_built_in() -> None:
    program = (
        "import sys\n"
        "from parc.backends import registry\n"
        "registry.backend('megatron')\n"
        "registry.default_targets('train')\n"
        "assert registry.find_backend_declaration('slurm') is not None\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "assert registry.find_backend_declaration('no-such-backend') is None\n"
        "assert 'importlib.metadata' in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        check=True,
    )
