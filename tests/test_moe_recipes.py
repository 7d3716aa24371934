"""Options that recipes turn on, read from the source of a row."""

from __future__ import annotations

import re

import pytest

from benchmarks.accuracy.predict import GRAPHS, with_features
from benchmarks.accuracy.wide.moe_recipes import (
    FEATURES,
    RECOMPUTE,
    WHOLE,
    container_release,
    recipe_words,
)
from parc.compiler.ir import Efficiency

BRIDGE = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md [{}]"
WORDS = {
    *("deep-ep", "ep-overlap", "part-graph", "cuda-graph"),
    *("fused-experts", "token-drop", "unfused-routing", "unfused-core"),
}


def row(source: str, model: str, gpu: str, precision: str, ep: str = "8") -> dict[str, str]:
    facts = {"model": model, "gpu": gpu, "precision": precision, "ep": ep, "experts": ""}
    return {"source": source, "id": "", **facts}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (BRIDGE.format("26.04.01"), (26, 4, 1)),
        (BRIDGE.format("25.09"), (25, 9, 0)),
        ("NVIDIA/dgxc-benchmarking tag v25.05.05 README.md", (25, 4, 1)),
        ("NVIDIA/dgxc-benchmarking tag v27.01", (27, 1, 0)),
        ("a paper of 2024", (0, 0, 0)),
    ],
)
def test_the_release_is_the_version_of_the_container(
    source: str, expected: tuple[int, int, int]
) -> None:
    assert container_release(source) == expected


@pytest.mark.parametrize(
    ("release_", "facts", "expected"),
    [
        ("26.08", ("Qwen3-235B-A22B", "gb200", "fp8-mx"), WHOLE),
        ("26.02", ("Qwen3-235B-A22B", "gb200", "fp8-mx"), "deep-ep+part-graph"),
        ("26.02", ("Qwen3-235B-A22B", "h100-80", "fp8-cs"), "ep-overlap"),
        ("26.02", ("DeepSeek-V3", "h100-80", "fp8-cs"), "deep-ep"),
        ("25.11", ("DeepSeek-V3", "h100-80", "fp8-cs"), "deep-ep+ep-overlap"),
        ("26.06", ("gpt-oss-20b", "gb200", "nvfp4"), "deep-ep+cuda-graph"),
        ("25.11", ("gpt-oss-120b", "b200", "bf16"), ""),
        ("25.09", ("Mixtral-8x7B", "h100-80", "bf16"), "token-drop"),
    ],
)
def test_a_row_without_options_gets_the_options_of_its_recipe(
    release_: str, facts: tuple[str, str, str], expected: str
) -> None:
    assert recipe_words(FEATURES, row(BRIDGE.format(release_), *facts)) == expected


@pytest.mark.parametrize(
    ("release_", "gpu", "precision", "expected"),
    [
        ("25.11", "gb200", "bf16", "selective:layernorm+moe_act"),
        ("26.08", "gb200", "bf16", "selective:layernorm+moe_act"),
        ("26.08", "gb200", "fp8-mx", "none"),
        ("26.08", "h100-80", "fp8-cs", "selective:layernorm+moe_act"),
        ("26.04", "gb300", "bf16", ""),
    ],
)
def test_gpt_oss_recomputes_on_gpus_with_less_memory(
    release_: str, gpu: str, precision: str, expected: str
) -> None:
    facts = row(BRIDGE.format(release_), "gpt-oss-120b", gpu, precision)
    assert recipe_words(RECOMPUTE, facts) == expected


def test_dense_rows_and_other_sources_get_nothing() -> None:
    assert recipe_words(FEATURES, row(BRIDGE.format("26.08"), "Llama", "gb200", "fp8", "1")) == ""
    assert recipe_words(FEATURES, row("a paper", "Mixtral-8x7B", "h100-80", "bf16")) == ""


def test_every_option_is_known_and_every_pattern_compiles() -> None:
    said = {word for recipe in FEATURES for word in recipe.words.split("+") if word}
    assert said <= WORDS
    for recipe in (*FEATURES, *RECOMPUTE):
        assert re.compile(recipe.source)
        assert re.compile(recipe.pattern)
    assert {recipe.words.partition(":")[0] for recipe in RECOMPUTE} <= {"none", "selective", "full"}


@pytest.mark.parametrize("word", sorted(WORDS - {"deep-ep", "ep-overlap", *GRAPHS}))
def test_a_software_option_changes_its_row(word: str) -> None:
    assert with_features(Efficiency(), word) != Efficiency()
