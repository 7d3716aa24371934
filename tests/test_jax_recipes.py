"""Recomputation of JAX runs, read from the recipe that the source names."""

from __future__ import annotations

import re

import pytest

from benchmarks.accuracy.layouts import recompute_of
from benchmarks.accuracy.wide.jax_recipes import POLICIES, policy_words, recipe_shard

CLOUD = "NVIDIA/dgxc-benchmarking tag {} {}"
PAX = "NVIDIA/JAX-Toolbox rosetta/rosetta/projects/pax/README.md"


@pytest.mark.parametrize(
    ("source", "name", "modules"),
    [
        (CLOUD.format("v24.11.1", "paxml_README_5b.md"), "", ("core_attn", "layernorm")),
        (
            CLOUD.format("v24.11.1", "maxtext_README_70b.md"),
            "",
            ("core_attn", "layernorm", "mlp_in"),
        ),
        (
            CLOUD.format("v25.04.02", "maxtext_README_70b.md"),
            "",
            ("core_attn", "layernorm", "attn_out", "mlp_in"),
        ),
        (PAX, "pax-126M-h100-80-bf16", ()),
    ],
)
def test_a_policy_lists_the_recomputed_modules(
    source: str, name: str, modules: tuple[str, ...]
) -> None:
    words = policy_words({"source": source, "id": name})
    assert recompute_of(words).modules == modules


def test_repeated_layers_of_pax_save_nothing_and_other_sources_have_no_policy() -> None:
    assert policy_words({"source": PAX, "id": "pax-5B-h100-80-bf16"}) == "full"
    assert policy_words({"source": "a paper", "id": "maxtext"}) == ""


def test_every_pattern_compiles_and_every_value_is_a_granularity() -> None:
    assert all(re.compile(pattern) for pattern, _, _ in POLICIES)
    assert {words.partition(":")[0] for _, _, words in POLICIES} <= {"none", "selective", "full"}


def test_the_mesh_of_a_recipe_shards_the_state_over_some_of_the_hosts() -> None:
    assert recipe_shard(CLOUD.format("v24.11.1", "paxml_README_5b.md")) == 8
    assert recipe_shard(CLOUD.format("v24.11.1", "paxml_README_175b.md")) == 128
    assert recipe_shard(CLOUD.format("v24.11.1", "maxtext_README_70b.md")) is None
