"""Tests of shell completion, pre-commit hooks and the schema for editors."""

from __future__ import annotations

import json
import shlex
from importlib.resources import files
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from ruamel.yaml import YAML

from parc.compiler.cli import main
from tests.cli.specs import parc, write_spec
from tests.project_files import ROOT


def completions(*words: str) -> list[tuple[str, str]]:
    """Return (type, text) of the completions of the last word; the words before are complete."""
    shell = BashComplete(main, {}, "parc", "_PARC_COMPLETE")
    found = shell.get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in found]


def test_a_placeholder_in_a_page_is_explained_on_it() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        text = page.read_text("utf-8")
        assert "OWNER/" not in text or text.count("`OWNER/parc` on this page stands for ") == 1, (
            page
        )


def test_commands_options_values_and_topics_are_completed() -> None:
    assert completions("ch") == [("plain", "check")]
    assert completions("check", "--fail") == [("plain", "--fail-on")]
    assert completions("check", "--fail-on", "w") == [("plain", "warning")]
    assert completions("explain", "layout.t") == [("plain", "layout.tp")]
    assert completions("init", "--preset", "core") == [("plain", "coreweave-sunk")]
    assert ("plain", "h100-sxm-80gb") in completions("init", "--gpu", "h100")
    assert completions("init", "--model", "./my") == [("file", "./my")]
    assert completions("catalog", "sites", "core") == [("plain", "coreweave-sunk")]


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_arguments_that_are_files_are_completed_as_files(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for parameter in command.params:
        metavar = (parameter.metavar or "").removesuffix("...")
        if isinstance(parameter, click.Argument) and metavar in FILES:
            found = parameter.shell_complete(click.Context(command), "a")
            assert [(item.type, item.value) for item in found] in ([("file", "a")], [("dir", "a")])


FILES = ("SPEC", "FILE", "RUNS", "OLD", "NEW", "DIR")


def test_the_script_for_the_shell_calls_parc() -> None:
    runner = CliRunner(env={"_PARC_COMPLETE": "zsh_source"})
    result = runner.invoke(main, [], prog_name="parc")
    assert result.exit_code == 0
    assert "_PARC_COMPLETE=zsh_complete parc" in result.stdout


def hook(name: str, *words: str) -> tuple[int, str]:
    """Run a pre-commit hook with further words; return (exit code, output)."""
    hooks = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (entry,) = (shlex.split(one["entry"]) for one in hooks if one["id"] == name)
    result = CliRunner().invoke(main, [*entry[1:], *words])
    return result.exit_code, result.output


def test_the_hook_check_fails_on_an_error(tmp_path: Path) -> None:
    good = write_spec(tmp_path)
    bad = write_spec(tmp_path, ("tp: 8", "tp: 5"), name="b.parc.yaml")
    assert hook("parc-check", good)[0] == 0
    code, output = hook("parc-check", good, bad)
    assert code == 1
    assert "PARC-D01" in output


def test_the_hook_lint_skips_scripts_of_other_programs(tmp_path: Path) -> None:
    (tmp_path / "other.sh").write_text("echo hello\n")
    (tmp_path / "serve.sh").write_text("vllm serve llama-3-8b --tensor-parallel-size 5\n")
    assert hook("parc-lint", str(tmp_path / "other.sh"))[0] == 0
    assert hook("parc-lint", str(tmp_path / "serve.sh"))[0] == 1


def test_the_hook_compile_fails_if_committed_files_are_out_of_date(tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path), str(tmp_path / "launch")
    assert parc("compile", spec, "-o", out).exit_code == 0
    assert hook("parc-compile-check", spec, "-o", out)[0] == 0
    write_spec(tmp_path, ("global_batch: 64", "global_batch: 128"))
    code, output = hook("parc-compile-check", spec, "-o", out)
    assert code == 1
    assert "PARC-O01" in output


def test_the_schema_is_at_the_documented_path_of_the_package() -> None:
    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    path = files("parc") / "schemas" / "spec.schema.json"
    assert "`parc/schemas/spec.schema.json`" in page
    schema = json.loads(path.read_text("utf-8"))
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "cluster" in json.dumps(schema["$defs"]["Spec"]["properties"])
