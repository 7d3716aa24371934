"""Settings of dense recipes, read from the source of a row."""

from __future__ import annotations

import re

import pytest

from benchmarks.accuracy.runs import PUBLISHED, read_runs
from benchmarks.accuracy.wide.dense_recipes import RECIPES, Settings, recipe_settings

DGXC = "NVIDIA/dgxc-benchmarking tag {} README.md"
BRIDGE = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md [26.04]"
OVERLAPPED = frozenset({"tp-overlap"})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            (DGXC.format("v25.04.02 llama3.1_"), "Llama-3.1-70B", "h100-80", "bf16", "4"),
            Settings("none", True, OVERLAPPED),
        ),
        (
            (DGXC.format("v25.04.02 llama3.1_"), "Llama-3.1-8B", "h100-80", "bf16", "1"),
            Settings("none", False),
        ),
        (
            (DGXC.format("v25.02.02 nemotron_"), "Nemotron-4-340B", "h100-80", "fp8", "8"),
            Settings("selective:core_attn", True, OVERLAPPED),
        ),
        ((BRIDGE, "Llama-3-70B", "gb200", "nvfp4", "2"), Settings("none", True)),
        (
            (BRIDGE, "Llama-3-8B", "gb200", "fp8-mx", "1"),
            Settings("none", False, frozenset({"cuda-graph"})),
        ),
        ((BRIDGE, "Llama-3-8B", "h100-80", "fp8-cs", "1"), Settings(None, False)),
        (("a paper of 2024", "Llama-3-70B", "h100-80", "bf16", "8"), Settings()),
        ((DGXC.format("v24.11.1 maxtext_"), "Llama-2-70B", "h100-80", "bf16", "1"), Settings()),
    ],
)
def test_a_row_without_settings_gets_those_of_its_recipe(
    facts: tuple[str, ...], expected: Settings
) -> None:
    row = dict(zip(("source", "model", "gpu", "precision", "tp"), facts, strict=True))
    assert recipe_settings(row) == expected


def test_each_pattern_fits_a_published_run() -> None:
    gpus = {"dgx-h100": "h100-80"}
    texts = [
        f"{run.source} {run.model} {gpus.get(run.node, run.node)} {run.recipe}"
        for run in read_runs(PUBLISHED / "runs.csv")
    ]
    for pattern, _, _ in RECIPES:
        assert any(re.search(pattern, text, re.IGNORECASE) for text in texts), pattern
