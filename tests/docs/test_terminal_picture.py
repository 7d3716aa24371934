"""The picture in the README shows what the commands print; ``--update-golden`` draws it again."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from parc.compiler.cli import command_steps, main
from tests.docs.terminal_picture import COLORS, terminal_svg
from tests.project_files import ROOT

PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
SPEC = """\
parc: 1
name: my-run
model: llama-3-70b
cluster: {node: dgx-h100, nodes: 32}
job: {sequence_length: 8192, global_batch: 1024, precision: bf16}
layout: {tp: 6}
"""
COMMANDS = (
    "cat spec.yaml",
    "parc check spec.yaml",
    "parc compile spec.yaml --set layout.tp=8",
)
TITLE = (
    "Terminal: parc check reports that tp=6 does not divide 64 attention heads and suggests "
    "layout.tp: 8; parc compile then prints the layout, memory, step time and files."
)


def test_the_picture_of_the_readme_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_steps, "use_color", lambda stream: True)
    Path("spec.yaml").write_text(SPEC, "utf-8")
    assert "docs/pictures/terminal.svg" in (ROOT / "README.md").read_text("utf-8")
    drawn = terminal_svg([(command, _output(command)) for command in COMMANDS], TITLE)
    if request.config.getoption("--update-golden"):
        PICTURE.write_text(drawn, "utf-8")
    assert PICTURE.read_text("utf-8") == drawn, "run make golden"


def test_a_picture_is_xml_with_a_line_per_line_of_output_and_its_colors() -> None:
    root = ET.fromstring(terminal_svg([("run <a>", "\x1b[31m\x1b[1mno\x1b[0m & yes\n")], "A & B"))
    texts = [one for one in root.iter() if one.tag.endswith("}text")]
    assert [one.text for one in texts] == ["$", "run <a>", "no", "& yes"]
    assert [one.get("fill") for one in texts][2:] == [COLORS[31], None]
    assert root.get("aria-label") == "A & B"


def _output(command: str) -> str:
    program, *words = command.split()
    if program == "cat":
        return SPEC
    result = CliRunner().invoke(main, words, color=True)
    assert result.exit_code in (0, 1), result.output
    return result.output
