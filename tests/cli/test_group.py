"""Tests of the command group: help, exit codes, closed pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

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
    from parc.compiler.cli.help_page import page

    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == page(), "run make docs"


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
