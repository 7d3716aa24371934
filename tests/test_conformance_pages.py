"""The pages state the families, strategies and tools of the conformance tests as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parc.backends.tensorrt_llm.backend import VERSIONS
from parc.compiler.diagnostics.table_yaml import parse_table
from tests.project_files import ROOT

TESTS = ROOT / "tests/conformance"
PAGE = (ROOT / "docs/conformance.md").read_text("utf-8")
TORCH = (ROOT / "docs/torch.md").read_text("utf-8")
FAMILIES = parse_table((TESTS / "torch/tiny_families.yaml").read_text("utf-8"))
STRATEGIES = re.findall(
    r'^    "([^"]+)": \("', (TESTS / "torch/test_families.py").read_text("utf-8"), re.MULTILINE
)
NO_TOOL = {"page", "network", "rank_site", "slurm"}
"""Folders whose programs have rows under other names."""


def test_the_pages_state_the_number_of_tested_families() -> None:
    count, strategies = len(FAMILIES), len(STRATEGIES)
    assert strategies == 6, "write the number of strategies in words"
    assert f"the losses of {count} families with six strategies" in PAGE
    assert f" {count} model families reached the same losses" in TORCH
    assert f"repeats these {count * strategies} runs" in TORCH


def test_the_page_lists_the_tested_families() -> None:
    listed = TORCH.partition("The families:\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(FAMILIES)


@pytest.mark.parametrize("program", sorted(TESTS.glob("*/*_checker.py")), ids=lambda one: one.name)
def test_every_checking_program_has_a_row(program: Path) -> None:
    assert f"| `{program.relative_to(TESTS)}` |" in PAGE


def test_every_folder_of_a_tool_has_a_row() -> None:
    folders = {one.parent.name for one in TESTS.glob("*/*.py")} - NO_TOOL
    assert {"tensorrt_llm", "vllm"} <= folders
    assert [name for name in sorted(folders) if f"| `{name}/" not in PAGE] == []


def test_the_row_of_tensorrt_llm_names_its_versions() -> None:
    assert f"TensorRT-LLM {VERSIONS[0]} to {VERSIONS[-1]}" in PAGE
