"""Tests of the command group: help, exit codes, closed pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from parc import __version__
from parc.compiler.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("pydantic", "ruamel", "jinja2", "jsonschema", "parc.compiler.pipeline")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_imports_click_and_nothing_heavy() -> None:
    code = (
        "import sys\nfrom parc.compiler.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "print([name for name in sys.modules if name.startswith('parc.compiler.cli.')])"
    )
    ran = run_python(code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_check_imports_neither_templates_nor_verifiers() -> None:
    spec = str(ROOT / "examples" / "llama-3-70b" / "spec.yaml")
    code = (
        "import sys\nfrom parc.compiler.cli import main\n"
        f"main(['check', {spec!r}], standalone_mode=False)\n"
        "print([name for name in sys.modules if name in ('jinja2', 'jsonschema')"
        " or name.startswith('parc.compiler.verify') or name.endswith('.verify')])"
    )
    ran = run_python(code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_starts_with_its_line_in_the_list(name: str) -> None:
    command: click.Command = import_module(f"parc.compiler.cli.commands.{name}").command
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name]
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme_and_in_its_page(name: str) -> None:
    assert f"parc {name}" in (ROOT / "README.md").read_text("utf-8")
    assert f"## parc {name}\n" in (ROOT / "docs" / "cli.md").read_text("utf-8")


def test_the_page_of_the_command_line_is_current() -> None:
    from parc.compiler.cli.help_page import reference_page

    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == reference_page(), "run make docs"


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"parc, version {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["chek"])
    assert result.exit_code == 2
    assert "No such command 'chek'. Did you mean 'check'?" in result.output


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make ``parc init`` raise ``error``."""
    from parc.compiler.cli.commands import init

    def broken() -> None:
        raise error

    monkeypatch.setattr(init, "command", click.command("init")(broken))


def test_a_bug_is_one_line_and_exit_code_70(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARC_DEBUG", raising=False)
    failing(monkeypatch, ZeroDivisionError("division\nby zero"))
    result = CliRunner().invoke(main, ["init"])
    assert result.exit_code == 70
    (line,) = result.stderr.splitlines()
    assert "ZeroDivisionError: division by zero (test_group.py:" in line
    assert "please report" in line


def test_the_traceback_of_a_bug_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARC_DEBUG", "1")
    failing(monkeypatch, ZeroDivisionError("division by zero"))
    result = CliRunner().invoke(main, ["init"])
    assert result.exit_code == 70
    assert "Traceback (most recent call last)" in result.stderr


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert CliRunner().invoke(main, ["init"]).exit_code == 130


def test_an_unreadable_file_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, PermissionError(13, "Permission denied", "spec.yaml"))
    result = CliRunner().invoke(main, ["init"])
    assert result.exit_code == 2
    assert result.stderr == "parc: spec.yaml: Permission denied\n"


def test_a_closed_pipe_ends_without_a_message() -> None:
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "parc", "init"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert ran.stderr == b""
    assert ran.returncode == 141


SPEC = """\
parc: 1
name: x
model: llama-3-8b
cluster: {node: dgx-h100, nodes: 1}
job: {sequence_length: 4096, global_batch: none}
"""
READERS: dict[str, tuple[str, ...]] = {
    "check": (),
    "lint": (),
    "compile": (),
    "estimate": (),
    "search": (),
    "calibrate": (),
    "replan": ("--drain", "n1"),
    "diff": ("spec.yaml",),
    "verify": (),
    "import": (),
}
"""Command that reads a file -> further arguments. ``import`` also needs a format first."""


def parc_in(folder: Path, *args: str, closed: int | None = None) -> tuple[int, str, str]:
    """Run ``parc`` in ``folder`` with the file descriptor ``closed`` closed."""
    child = f"import os, sys; os.close({closed}); " if closed is not None else ""
    # The streams are made when Python starts, so the descriptor is closed before.
    command = [sys.executable, "-c", f"{child}os.execv(sys.argv[1], sys.argv[1:])"]
    command = [*command, sys.executable, "-m", "parc", *args]
    command = command if closed is not None else command[3:]
    ran = subprocess.run(
        [os.fsencode(word) for word in command],
        cwd=folder,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    return ran.returncode, ran.stdout.decode("utf-8"), ran.stderr.decode("utf-8")


def in_process(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, args)
    return result.exit_code, result.output


def reader_arguments(name: str, file: str, *options: str) -> tuple[str, ...]:
    kind = ("sbatch",) if name == "import" else ()
    return (name, *kind, file, *READERS[name], *options)


def formats(name: str) -> list[str]:
    command: click.Command = import_module(f"parc.compiler.cli.commands.{name}").command
    return [
        choice
        for parameter in command.params
        if parameter.name == "style" and isinstance(parameter.type, click.Choice)
        for choice in parameter.type.choices
    ] or [""]


@pytest.mark.parametrize("name", READERS)
def test_a_closed_standard_input_is_an_unreadable_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parc.compiler.spec.reading import source

    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    # CliRunner replaces sys.stdin, so that the module that reads it gets its own.
    monkeypatch.setattr(source, "sys", SimpleNamespace(stdin=None))
    code, output = in_process(*reader_arguments(name, "-"))
    assert code == 2
    assert len(output.splitlines()) == 1
    assert "internal error" not in output


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_closed_stream_is_no_bug(descriptor: int, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    code, out, error = parc_in(tmp_path, "check", "spec.yaml", closed=descriptor)
    assert code == 1
    assert ("PARC-X02" in out) == (descriptor != 1)
    assert error == ""


def test_a_spec_from_closed_standard_input_is_reported(tmp_path: Path) -> None:
    code, _, error = parc_in(tmp_path, "check", "-", closed=0)
    assert (code, error) == (2, "parc: cannot read standard input: it is closed\n")


@pytest.mark.parametrize("name", READERS)
def test_a_file_name_that_is_not_utf8_works_in_every_format(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    strange = os.fsdecode(b"bad\xff.yaml")
    for file in (strange, "spec.yaml"):
        Path(file).write_text(SPEC, encoding="utf-8")
    for style in formats(name):
        options = ("--format", style) if style else ()
        for file in (strange, "missing-" + strange):
            code, output = in_process(*reader_arguments(name, file, *options))
            assert code in (0, 1, 2), output
            assert "internal error" not in output


def test_sarif_has_the_bytes_of_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    strange = os.fsdecode(b"bad\xff.yaml")
    (tmp_path / strange).write_text(SPEC, encoding="utf-8")
    code, out, error = parc_in(tmp_path, "check", strange, "--format", "sarif")
    assert (code, error) == (1, "")
    (result,) = json.loads(out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "bad%FF.yaml"
