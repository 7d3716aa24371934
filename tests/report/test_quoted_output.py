"""Tests of command output that pages quote; ``--update-golden`` updates the quotes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.specs import parc
from tests.lint.scripts import MEGATRON

ROOT = Path(__file__).parent.parent.parent
SERVICE = """\
parc: 1
name: svc
model: llama-3.1-405b
cluster:
  node: hgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-05]"}
    - {name: r02, nodes: "r02n[01-05]"}
  spare: [r01n05, r02n05]
job:
  kind: serve
  traffic: {input_tokens: 2000, output_tokens: 500, concurrency: 640}
  precision: bf16
goals: {maximize: throughput}
layout: {tp: 8, pp: 2}
emit: [rankmap, slurm, vllm]
"""


def script_with_a_bad_batch() -> None:
    """Write a launch script whose global batch 4 replicas cannot share."""
    text = MEGATRON.replace("--global-batch-size 128", "--global-batch-size 130")
    assert text != MEGATRON
    Path("run.sh").write_text(text, encoding="utf-8")


def compiled_service() -> None:
    """Compile the service that is replanned."""
    Path("svc.yaml").write_text(SERVICE, encoding="utf-8")
    assert parc("compile", "svc.yaml", "-o", "build/svc").exit_code == 0


@dataclass(frozen=True)
class Quote:
    """Command of a page whose output the page shows."""

    page: str
    words: tuple[str, ...]
    prepare: Callable[[], None]
    """Writes the files that the command reads into the current folder."""


REPLAN = ("replan", "svc.yaml", "--drain", "r01n[02-03]", "-o", "build/svc")
QUOTES = (
    Quote("docs/lint.md", ("lint", "run.sh"), script_with_a_bad_batch),
    Quote("docs/placement.md", REPLAN, compiled_service),
)


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: quote.page)
def test_a_page_quotes_what_the_command_prints(
    quote: Quote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    quote.prepare()
    page = ROOT / quote.page
    text = page.read_text("utf-8")
    command = rf"\$ parc {quote.words[0]} [^\n]*\n"
    block = re.search(rf"(?ms)```console\n({command})(.*?)^```\n", text)
    assert block, f"{quote.page} has no block that runs parc {quote.words[0]}"
    assert shlex.split(block[1])[2:] == list(quote.words)
    result = parc(*quote.words)
    assert result.exit_code in (0, 1), result.output
    if request.config.getoption("--update-golden"):
        text = text[: block.start(2)] + result.output + text[block.end(2) :]
        page.write_text(text, encoding="utf-8", newline="\n")
        return
    assert block[2] == result.output
