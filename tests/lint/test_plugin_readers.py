"""A plugin declares a linter and an import format, and both commands use them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parc.backends.plugins import PluginProblem
from parc.backends.registry import find_backend_declaration
from tests.backends.plugin_distributions import LAUNCHER, scanned, write_distribution
from tests.parc_process import run_parc

DECLARED = "Declaration(name=NAME, package=__name__, training=__name__)"
READERS = """Declaration(
    name=NAME,
    package=__name__,
    training=__name__,
    linter=__name__,
    importers=(__name__,),
)
"""
CODE = (
    LAUNCHER.replace(DECLARED, READERS)
    + """

def lint(script, options, sink):
    sink.report("F01", "--mylab-size is unknown to mylab")
    return []


def read(text, name, sink):
    from parc.compiler.topology.readers.reader_state import Fragment

    return Fragment(spec={{"layout": {{"tp": 4}}}})


def __getattr__(name):
    if name == "LINTER":
        from parc.compiler.tools.lint.linter import ScriptLinter

        return ScriptLinter(lambda script: "mylab-train" in script.text, lint)
    if name == "IMPORTERS":
        from parc.compiler.tools.importers.formats import BackendImporters
        from parc.compiler.topology.readers.registry import FileFormat

        file_format = FileFormat(read, "arguments of mylab", ("mylab-train",))
        return BackendImporters({{"mylab-args": file_format}})
    raise AttributeError(name)
"""
)
"""Readers are built on first use, because their modules import the registry."""
SCRIPT = "torchrun --nproc-per-node 8 mylab-train --mylab-size 4\n"


def parc(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``parc WORDS`` on SCRIPT with the distributions in ``folder``, in a new process."""
    return run_parc(*words, "-", packages=folder, given=SCRIPT)


@pytest.mark.parametrize("framework", ["auto", "mylab"])
def test_the_linter_of_a_plugin_is_detected_and_can_be_selected(
    tmp_path: Path, framework: str
) -> None:
    write_distribution(tmp_path, "mylab", CODE)
    result = parc(tmp_path, "lint", "--framework", framework)
    assert result.returncode == 1, result.stderr
    assert "error[PARC-F01]: --mylab-size is unknown to mylab" in result.stdout


@pytest.mark.parametrize("kind", ["auto", "mylab-args"])
def test_the_import_format_of_a_plugin_is_detected_and_can_be_selected(
    tmp_path: Path, kind: str
) -> None:
    write_distribution(tmp_path, "mylab", CODE)
    result = parc(tmp_path, "import", kind)
    assert (result.returncode, result.stderr) == (0, "")
    assert "layout:\n  tp: 4\n" in result.stdout


@pytest.mark.parametrize("missing", ["LINTER", "IMPORTERS"])
def test_a_declared_reader_that_is_missing_is_a_problem_of_the_plugin(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(tmp_path, "mylab", CODE.replace(f'"{missing}"', '"OTHER"'))
    with scanned(tmp_path, monkeypatch):
        found = find_backend_declaration("mylab")
    assert isinstance(found, PluginProblem)
    assert f"{missing} of parc_mylab lacks" in found.message
    assert parc(tmp_path, "lint").returncode in (0, 1)
