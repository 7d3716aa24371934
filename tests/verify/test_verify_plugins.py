"""Frameworks of other packages: their verifier is used, and files without one are reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from parc.backends.built_in import BUILT_IN
from parc.backends.registry import backend_declaration, verifier_of_backend
from parc.backends.verifier import EngineVerifier, FrameworkVerifier, Verifier
from parc.compiler.cli import main
from tests.backends.plugin_distributions import (
    LAUNCHER,
    forget_plugins,
    scanned,
    write_distribution,
)

FRAMEWORK = '''\
"""mylab: a framework with the layouts of fsdp and one file of sizes."""

import json

from parc.backends.declaration import Declaration
from parc.backends.registry import framework
from parc.backends.verifier import FileDependencies
from parc.compiler.ir import Artifact
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes

NAME = "{name}"
FILE = f"{{NAME}}/sizes.json"


class Backend:
    name = NAME

    def emit(self, plan):
        layout = plan.layout
        sizes = dict(pp=1, dp_replicate=layout.dp_replicate, dp_shard=layout.dp_shard, cp=1)
        return (Artifact(FILE, json.dumps(sizes | dict(tp=layout.tp)) + "\\n"),)

    def __getattr__(self, name):
        return getattr(framework("fsdp"), name)


def read_sizes(text):
    return MeshSizes(**positive_sizes(FILE, json.loads(text)))


BACKEND = Backend()
NOT_READ = {{"problem.job": "no setting", "problem.model": "no setting", "layout": "no setting"}}


class Verifier(DeviceMeshVerifier):
    not_in_files = NOT_READ


VERIFIER = Verifier(
    file=FILE,
    builder=NAME,
    read_sizes=read_sizes,
    columns=("dp-replicate", "dp-shard", "tp"),
    other_families=("dp",),
)
DECLARATION = Declaration(
    name=NAME,
    package=__name__,
    training=__name__,
    binds_layout=True,
    verifier=__name__,
    spec_fields=("job", "model"),
)
'''
"""Its backend delegates to fsdp to be short; its verifier is a complete one."""
SPEC = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2},
    "emit": ["mylab", "rankmap"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path``, in which a test installs ``mylab`` and compiles a spec for it."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def parc(folder: Path, *words: str) -> Result:
    spec = folder / "spec.yaml"
    spec.write_text(json.dumps(SPEC, indent=1), encoding="utf-8")
    return CliRunner().invoke(main, [one.format(folder=folder) for one in words])


CHECK = ("check", "{folder}/spec.yaml")
COMPILE = ("compile", "{folder}/spec.yaml", "-o", "{folder}/out")
VERIFY = ("verify", "{folder}/out")


def test_a_plugin_with_a_verifier_is_verified(folder: Path) -> None:
    write_distribution(folder, "mylab", FRAMEWORK)
    compiled = parc(folder, *COMPILE)
    assert compiled.exit_code == 0, compiled.output
    assert "PARC-A13" not in compiled.output
    assert parc(folder, *VERIFY).exit_code == 0
    sizes = folder / "out" / "mylab" / "sizes.json"
    for old, new, code in (('"tp": 2', '"tp": 4', "A05"), ('"tp": 2', '"tp": -2', "A04")):
        text = sizes.read_text("utf-8")
        sizes.write_text(text.replace(old, new), encoding="utf-8")
        result = parc(folder, *VERIFY)
        assert result.exit_code == 1
        assert f"PARC-{code}" in result.output
        sizes.write_text(text, encoding="utf-8")


def test_other_groups_than_those_of_the_plugin_are_found(folder: Path) -> None:
    swapped = FRAMEWORK.replace("tp=layout.tp)", "tp=layout.dp_shard)")
    swapped = swapped.replace("dp_shard=layout.dp_shard", "dp_shard=layout.tp")
    write_distribution(folder, "mylab", swapped)
    for command in (CHECK, COMPILE):
        result = parc(folder, *command)
        assert result.exit_code == 1
        assert "PARC-A01" in result.output
    assert not (folder / "out").exists(), "files that contradict each other are not written"


@pytest.mark.parametrize("code", [FRAMEWORK.replace("    verifier=__name__,\n", ""), LAUNCHER])
def test_files_of_a_plugin_without_a_verifier_are_reported(folder: Path, code: str) -> None:
    write_distribution(folder, "mylab", code)
    compiled = parc(folder, *COMPILE)
    assert compiled.exit_code == 0, compiled.output
    assert "PARC-A13" in compiled.output
    assert "PARC-A13" in parc(folder, *CHECK).output
    assert "PARC-A13" in parc(folder, *COMPILE, "--check").output
    result = parc(folder, *VERIFY)
    assert result.exit_code == 1
    assert "PARC-A13" in result.output
    assert "its plugin declares no verifier" in result.output


def test_files_of_a_plugin_that_is_not_installed_are_reported(folder: Path) -> None:
    write_distribution(folder, "mylab", FRAMEWORK)
    assert parc(folder, *COMPILE).exit_code == 0
    shutil.rmtree(folder / "parc_mylab-1.0.dist-info")
    forget_plugins()
    result = parc(folder, *VERIFY)
    assert result.exit_code == 1
    assert "no installed backend has this name" in result.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("VERIFIER = ", "CHECKER = ", "has no VERIFIER"),
        ("    file=FILE,\n", "", "TypeError"),
        ("VERIFIER = Verifier(", "VERIFIER = dict(", "lacks"),
    ],
)
def test_a_defective_verifier_is_a_diagnostic(
    folder: Path, old: str, new: str, message: str
) -> None:
    write_distribution(folder, "mylab", FRAMEWORK.replace(old, new))
    result = parc(folder, *COMPILE)
    assert result.exit_code == 1
    assert "PARC-X23" in result.output
    assert message in result.output


def test_a_verifier_that_fails_is_a_defect_of_the_plugin_or_of_an_edited_file(
    folder: Path,
) -> None:
    # The verifier expects an integer, as the backend writes it, and does no checks.
    careless = FRAMEWORK.replace("positive_sizes(FILE, json.loads(text))", "json.loads(text)")
    write_distribution(folder, "mylab", careless)
    assert parc(folder, *COMPILE).exit_code == 0
    sizes = folder / "out" / "mylab" / "sizes.json"
    sizes.write_text("[]", encoding="utf-8")
    result = parc(folder, *VERIFY)
    assert result.exit_code == 1
    assert "PARC-A04" in result.output


def test_a_verifier_that_always_fails_stops_the_compile(folder: Path) -> None:
    code = FRAMEWORK.replace("MeshSizes(**positive_sizes(FILE, json.loads(text)))", "1 / 0")
    write_distribution(folder, "mylab", code)
    for command in (COMPILE, CHECK):
        result = parc(folder, *command)
        assert result.exit_code == 1
        assert "PARC-X23" in result.output
        assert "of parc-mylab 1.0 raised ZeroDivisionError" in result.output
    assert not (folder / "out").exists()


def test_every_built_in_backend_has_a_verifier_with_all_members() -> None:
    from parc.backends.plugins import protocol_members

    for one in BUILT_IN:
        found = verifier_of_backend(one.name)
        assert found is not None, one.name
        role = backend_declaration(one.name)
        protocol: type = Verifier
        if role.binds_layout:
            protocol = FrameworkVerifier if role.is_framework else EngineVerifier
        assert [name for name in protocol_members(protocol) if not hasattr(found, name)] == []
