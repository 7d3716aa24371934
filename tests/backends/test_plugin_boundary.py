"""A broken plugin breaks no command that does not use it; ``parc backends`` finds its defects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from parc.backends.engine_constants import build_engine_constants
from parc.backends.registry import engine
from parc.compiler.check_plugins import _launch_fields
from parc.compiler.cli import main
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.engine_constants import RANGES, UndeclaredConstantsError, _numbers
from parc.compiler.spec.schema import serving_fields, training_fields
from tests.backends.plugin_distributions import (
    LAUNCHER,
    delegating_module,
    scanned,
    write_distribution,
)
from tests.parc_process import run_parc
from tests.project_files import ROOT

TABLE = (ROOT / "backends" / "vllm" / "constants.yaml").read_text("utf-8")
READERS = """
from parc.backends.declaration import Declaration


def fail(*_):
    raise RuntimeError("no reader")


def __getattr__(name):
    if name == "LINTER":
        from parc.compiler.tools.lint.linter import ScriptLinter

        return ScriptLinter(fail, fail)
    if name == "IMPORTERS":
        from parc.compiler.tools.importers.formats import BackendImporters, LaunchLines
        from parc.compiler.topology.readers.registry import FileFormat

        form = FileFormat(fail, "arguments of mylab", ("torchrun",), confirms=fail)
        return BackendImporters({{"mylab-args": form}}, LaunchLines(fail, fail))
    raise AttributeError(name)


DECLARATION = Declaration(
    name=NAME, package=__name__, training=__name__, linter=__name__, importers=(__name__,)
)
"""
TRAINING = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "emit": ["mylab", "rankmap"],
}
SCRIPT = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2\n"
BATCH = f"#SBATCH --nodes=2\n{SCRIPT}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions, and of files."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in words])


def write_package(folder: Path, name: str, code: str, **files: str) -> None:
    """Write a plugin that is a package with data files."""
    write_distribution(folder, name, code)
    package = folder / f"parc_{name}"
    package.mkdir()
    (folder / f"parc_{name}.py").rename(package / "__init__.py")
    for file, text in files.items():
        (package / file.replace("_yaml", ".yaml")).write_text(text, encoding="utf-8")


def test_readers_that_fail_do_not_recognize_a_file(folder: Path) -> None:
    def parc(*words: str, given: str = SCRIPT) -> subprocess.CompletedProcess[str]:
        # A new process, because the commands keep the readers of all plugins.
        return run_parc(*words, "-", packages=folder, given=given)

    write_distribution(folder, "mylab", LAUNCHER + READERS)
    linted = parc("lint", "--allow-unknown")
    assert "PARC-X23" not in linted.stdout + linted.stderr
    assert "checks evaluated" in linted.stdout
    imported = parc("import", "auto", given=BATCH)
    assert imported.returncode == 0, imported.stderr
    assert "tp: 2" in imported.stdout
    unknown = parc("lint", given="srun ./own_program\n").stdout
    assert "LINTER.recognizes() of parc-mylab 1.0 raised RuntimeError: no reader" in unknown
    forced = parc("lint", "--framework", "mylab")
    assert forced.returncode == 1
    assert "LINTER.lint() of parc-mylab 1.0 raised RuntimeError: no reader" in forced.stderr
    assert "bug in PARC" not in forced.stderr


@pytest.mark.parametrize("table", ["job: [1", "job.steps: [1, 2]"])
def test_a_broken_table_of_fields_breaks_only_its_plugin(folder: Path, table: str) -> None:
    write_package(folder, "mylab", LAUNCHER, without_effect_yaml=table)
    explained = run("explain", "job.global_batch")
    assert explained.exit_code == 0, explained.output
    assert "effect: unknown with mylab: without_effect.yaml of parc-mylab 1.0" in explained.output
    listed = run("backends")
    assert listed.exit_code == 1
    assert "without_effect.yaml of parc-mylab 1.0 raised" in listed.output
    assert "megatron" in listed.output


def test_an_unknown_field_of_the_table_is_named(folder: Path) -> None:
    write_package(folder, "mylab", LAUNCHER, without_effect_yaml="job.global_bach: no reason\n")
    listed = run("backends")
    assert listed.exit_code == 1
    assert "'job.global_bach' (did you mean job.global_batch?)" in listed.output


@pytest.mark.parametrize(
    ("members", "declared", "message"),
    [
        ('strategies = {"tensor": "--tp"}', "", "strategies has the unknown name 'tensor'"),
        ('strategies = ["tp"]', "", "strategies of parc-mylab 1.0 is ['tp'], must be Mapping"),
        ("", 'launch_fields=("argz",)', "unknown field 'argz' (did you mean args?)"),
        ("", 'launch_fields="args"', "launch_fields is 'args', must be a tuple of (text, ...)"),
        ('stack = KernelStack("x", like="torch")', "", "like='torch' (did you mean torch-"),
        (
            'stack = KernelStack("x", rows={"hoper": Efficiency()})',
            "",
            "unknown GPU generation 'hoper' (did you mean hopper?)",
        ),
        ("versions = (5,)", "", "versions of parc-mylab 1.0 is a value whose [0] is 5"),
    ],
)
def test_parc_backends_finds_wrong_names_before_any_compile(
    folder: Path, members: str, declared: str, message: str
) -> None:
    write_distribution(folder, "mylab", delegating_module("fsdp", members, declared=declared))
    write_distribution(folder, "sound", LAUNCHER)
    listed = run("backends")
    assert listed.exit_code == 1
    assert message in listed.output
    assert "sound" in listed.output
    (folder / "spec.yaml").write_text(json.dumps(TRAINING), encoding="utf-8")
    assert message in run("check", folder / "spec.yaml").output


def test_a_finding_names_other_frameworks_without_the_broken_plugin(folder: Path) -> None:
    broken = delegating_module(
        "megatron", "def find_split(self, problem, pp, vpp):\n    return 1 / 0"
    )
    write_distribution(folder, "mylab", broken)
    spec = {**TRAINING, "emit": ["fsdp", "rankmap"], "layout": {"pp": 2}}
    (folder / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    report = run("check", folder / "spec.yaml").output
    assert "frameworks that support this: megatron" in report
    assert "mylab" not in report
    assert "PARC-X23" not in report


def test_a_class_in_place_of_an_object_is_named(folder: Path) -> None:
    code = LAUNCHER.replace("BACKEND = Launcher()", "BACKEND = Launcher")
    write_distribution(folder, "mylab", code)
    assert (
        "BACKEND of parc_mylab is a class, must be an object: Launcher()" in run("backends").output
    )


def test_parc_backends_calls_the_members_of_an_engine(folder: Path) -> None:
    members = 'def service_features(self, model):\n    return frozenset({"telepathy"})'
    write_distribution(folder, "mylab", delegating_module("vllm", members, serves=True))
    listed = run("backends")
    assert listed.exit_code == 1
    assert "returned the unknown feature 'telepathy'" in listed.output


def test_a_stack_without_factors_names_the_members_of_the_plugin(folder: Path) -> None:
    code = delegating_module("fsdp", 'stack = KernelStack("mylab")')
    write_distribution(folder, "mylab", code)
    (folder / "spec.yaml").write_text(json.dumps(TRAINING), encoding="utf-8")
    report = run("check", folder / "spec.yaml").output
    assert "PARC-K08" in report
    assert "mylab has no efficiency factors for GPUs of generation hopper" in report
    assert "rows={'hopper': Efficiency(...)}" in report
    assert "hopper.yaml" not in report


def test_every_number_of_the_constants_has_a_range() -> None:
    for name in ("vllm", "sglang", "tensorrt-llm"):
        for key, value in _numbers(engine(name).constants(), ""):
            low, high = RANGES[key]
            assert low <= value <= high, (name, key)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("step_seconds", "-2.0", "step_seconds is -2, must be from 0 to 10"),
        ("poll_steps", "-50.0", "arrivals.poll_steps is -50, must be from 0 to 1000"),
        ("vocab_multiple", "0", "sharding.vocab_multiple is 0, must be from 1 to 1e+06"),
        ("default_share", "80.0", "memory.default_share is 80, must be from 0 to 1"),
        ("context_bytes", ".nan", "memory.context_bytes is nan, must be from 0 to 1e+12"),
    ],
)
def test_a_constant_outside_of_its_range_is_refused_with_its_line(
    key: str, value: str, message: str
) -> None:
    lines = TABLE.split("\n")
    number = next(at for at, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
    lines[number] = f"  {key}: {value}"
    text = "\n".join(lines)
    with pytest.raises(UndeclaredConstantsError) as found:
        build_engine_constants("mylab", parse_table(text), "a.yaml", text)
    assert str(found.value).startswith(f"a.yaml:{number + 1}: ")
    assert message in str(found.value)


def test_the_fields_of_launch_are_those_of_the_schema() -> None:
    paths = [path for fields in (training_fields(), serving_fields()) for path in fields]
    start = "launch."
    assert {one.removeprefix(start) for one in paths if one.startswith(start)} == _launch_fields()
