"""Small spec for the tests of commands, and helpers that run commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from parc.compiler.cli import main

SPEC = """\
parc: 1
name: small
model: llama-3-8b
cluster:
  node: dgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-02]"}
    - {name: r02, nodes: "r02n[01-02]"}
job: {sequence_length: 8192, global_batch: 64}
layout: {tp: 8, cp: 1, pp: 1, micro_batch: 1}
"""


def write_spec(folder: Path, *changes: tuple[str, str], name: str = "spec.yaml") -> str:
    """Write SPEC with every (old, new) of ``changes`` replaced; return the path."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def parc(*words: str, given: str | None = None) -> Result:
    """Run ``parc WORDS``."""
    return CliRunner().invoke(main, list(words), input=given)


def hosts(directory: Path) -> list[str]:
    """Return the hosts in the parc.lock of an output directory, by node rank."""
    found: list[str] = json.loads((directory / "parc.lock").read_text())["decisions"]["hosts"]
    return found


def replanned(*words: str) -> dict[str, Any]:
    """Return the result of ``parc replan`` as JSON types."""
    result = parc("replan", *words, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)["replan"]
    return found
