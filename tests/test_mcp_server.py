"""Tests of the tools of the MCP server; tests/conformance calls them with the SDK's client."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner

from parc.compiler.cli import main
from parc.compiler.mcp_server import ToolInputError, Tools
from tests.cli.specs import SPEC, write_spec


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Return tools whose root is a folder with one spec, next to a file outside the root."""
    root = tmp_path / "root"
    root.mkdir()
    write_spec(root)
    write_spec(tmp_path, name="secret.yaml")
    return Tools(root)


def test_a_diagnostic_has_its_code_position_and_fix(tools: Tools) -> None:
    result = tools.check("spec.yaml", ["layout.tp=5"])
    (found,) = (one for one in result.diagnostics if one.severity == "error")
    assert not result.ok
    assert (found.code, found.path, found.fix) == ("PARC-D01", "layout.tp", "layout.tp: 4")
    assert found.span is not None
    assert found.span.file == "--set"


def test_a_spec_can_be_a_text(tools: Tools) -> None:
    result = tools.check(SPEC.replace("llama-3-8b", "llama-9"))
    assert [one.span.line for one in result.diagnostics if one.span] == [3]
    assert {one.file for one in result.diagnostics} == {"<text>"}


def test_search_and_estimate_agree_on_the_chosen_layout(tools: Tools) -> None:
    found = tools.search("spec.yaml", ["~layout"], top=2)
    document = tools.estimate("spec.yaml", ["~layout"]).estimate
    assert document is not None
    assert [row["rank"] for row in found.candidates] == [1, 2]
    assert found.candidates[0]["tp"] == document["layout"]["tp"]
    assert sum(row.count for row in found.dropped) < found.enumerated


def test_a_spec_with_errors_has_diagnostics_and_no_result(tools: Tools) -> None:
    wrong = ["layout.tp=5"]
    assert tools.estimate("spec.yaml", wrong).estimate is None
    assert tools.search("spec.yaml", wrong).candidates == []
    assert not tools.search("spec.yaml", wrong).ok
    different = tools.diff("spec.yaml", SPEC.replace("tp: 8", "tp: 5"))
    assert (different.changed, [one.code for one in different.diagnostics]) == (None, ["PARC-D01"])


def test_a_diff_compares_a_spec_with_an_output_directory(tools: Tools, tmp_path: Path) -> None:
    root = tmp_path / "root"
    words = ["compile", str(root / "spec.yaml"), "-o", str(root / "out")]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert tools.diff("spec.yaml", "out").changed is False
    changed = tools.diff("out", SPEC.replace("global_batch: 64", "global_batch: 128"))
    assert changed.changed is True
    assert "128" in changed.markdown
    (root / "out" / "torchrun").rename(tmp_path / "moved")
    (root / "out" / "torchrun").symlink_to(tmp_path / "moved")
    with pytest.raises(ToolInputError, match=r"cannot read 'out/torchrun/.*outside"):
        tools.diff("spec.yaml", "out")


@pytest.mark.parametrize("path", ["../secret.yaml", "link.yaml", "{}/secret.yaml", "-", "a\0b"])
def test_a_file_outside_the_root_is_not_read(tools: Tools, tmp_path: Path, path: str) -> None:
    (tmp_path / "root" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    for call in (tools.check, tools.search, lambda one: tools.diff("spec.yaml", one)):
        with pytest.raises(ToolInputError, match="cannot read"):
            call(path.format(tmp_path))


def test_a_file_that_a_spec_names_outside_the_root_is_a_diagnostic(tools: Tools) -> None:
    result = tools.check(SPEC.replace("llama-3-8b", "../secret.json"))
    assert [one.code for one in result.diagnostics] == ["PARC-I11"]


def test_topics_are_explained(tools: Tools) -> None:
    assert "Tensor parallel size" in tools.explain("layout.tp").text
    with pytest.raises(ToolInputError, match=r"'layout\.xp' is not a code"):
        tools.explain("layout.xp")


@pytest.mark.skipif(importlib.util.find_spec("mcp") is not None, reason="the SDK is installed")
def test_without_the_sdk_the_command_names_the_extra() -> None:
    result = CliRunner().invoke(main, ["mcp"])
    assert result.exit_code == 2
    assert "pip install 'parc-compiler[mcp]'" in result.stderr
