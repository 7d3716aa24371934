"""Blocks, weights and states of hybrid models against vLLM 0.33: its classes and its planner.

The figures are those of the classes built on the meta device for one rank of an H100, of the block
size that its platform then sets, and of its planner for 20 GiB of cache and requests of 8,192.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.counts.cache import count_windowed_layers, recurrent_state_bytes
from parc.compiler.cost.serving.memory import cache_blocks, request_cache_bytes
from parc.compiler.cost.serving.shard import weights_bytes
from parc.compiler.cost.serving.stages import (
    service_cache_blocks,
    stage_caches,
)
from parc.compiler.ir import Model, ServingLayout
from parc.compiler.ir.serving import ServingSetup
from tests.cost.serving.serving_cases import VLLM, vllm_setup
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT, model_of
from tests.search.serving_specs import plan_of, planned, problem_of, spec

GIB = 2**30
LOCAL = {"checkpoint": "/models/hybrid"}
BF16 = vllm_setup()
FP8_CACHE = vllm_setup(kv="fp8")
NEXT = model_of(QWEN3_NEXT, family="qwen3_next")
NANO = model_of(NEMOTRON_NANO, family="nemotron_h")
QWEN35 = model_of(
    QWEN3_NEXT,
    family="qwen3_5_moe_text",
    layers=60,
    hidden=4096,
    heads=32,
    vocab=248320,
    linear_attention={**QWEN3_NEXT["linear_attention"], "value_heads": 64},
    experts={**QWEN3_NEXT["experts"], "size": 1024, "shared_size": 1024},
)
"""Dimensions of Qwen3.5-397B-A17B; its state is in fp32, that of Qwen3-Next in 16 bit."""
H56_FACTS: dict[str, Any] = {
    "name": "nemotron-h-56b",
    "family": "nemotron_h",
    "layers": 118,
    "hidden": 8192,
    "heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 131072,
    "ffn": 32768,
    "gated": False,
    "activation": "relu2",
    "position": {"kind": "none", "max_positions": 8192},
    "pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "mamba": {"heads": 256, "head_dim": 64, "state_size": 256, "groups": 8},
}
H56 = model_of(H56_FACTS)
TP1, TP8 = ServingLayout(), ServingLayout(tp=8)
PLANNED: list[tuple[Model, ServingSetup, ServingLayout, float, tuple[int, int, int, float]]] = [
    (NEXT, BF16, TP1, 148.40512, (576, 12, 1517, 63.2083)),
    (NEXT, BF16, TP8, 18.65075, (192, 12, 9102, 175.0385)),
    (NEXT, FP8_CACHE, ServingLayout(tp=4), 37.18374, (576, 12, 6068, 252.8333)),
    (NANO, BF16, TP1, 58.81851, (2096, 6, 1667, 104.1875)),
    (H56, BF16, TP8, 13.11563, (4128, 10, 1016, 50.8)),
    (QWEN35, BF16, TP8, 92.53183, (576, 15, 2427, 101.125)),
    (QWEN35, BF16, ServingLayout(tp=4, dcp=2), 184.76929, (1088, 15, 1285, 98.8462)),
]
"""Model, formats, layout; GiB of weights, tokens of a block, its pages, blocks, requests."""


@pytest.mark.parametrize(("found", "setup", "layout", "gib", "planned"), PLANNED)
def test_weights_and_blocks_are_those_of_vllms_classes_and_planner(
    found: Model,
    setup: ServingSetup,
    layout: ServingLayout,
    gib: float,
    planned: tuple[int, int, int, float],
) -> None:
    cut = cache_blocks(found, setup, layout.tp, 16)
    pages = cut.pages_per_block(found, 0, found.layers)
    blocks = int(20 * GIB // (pages * cut.page_bytes))
    requests = blocks / cut.blocks_of_request(8192, layout.dcp)
    assert weights_bytes(found, layout, setup) / GIB == pytest.approx(gib, rel=1e-6)
    assert (cut.tokens, pages, blocks) == planned[:3]
    assert requests == pytest.approx(planned[3], rel=1e-5)


def test_a_longer_block_is_asked_for_in_multiples() -> None:
    assert cache_blocks(NANO, BF16, 2, 32).tokens == 2112
    assert cache_blocks(NANO, BF16, 2, 16).tokens == 2096


@given(tokens=st.integers(1, 262_144), blocks=st.integers(1, 10_000), tp=st.sampled_from([1, 2, 8]))
def test_the_longest_request_that_fits_is_the_longest(tokens: int, blocks: int, tp: int) -> None:
    cut = cache_blocks(NANO, BF16, tp, 16)
    longest = cut.longest_request_tokens(blocks, 1)
    assert longest is not None
    assert (tokens <= longest) == (cut.blocks_of_request(tokens, 1) <= blocks)


def test_layers_without_keys_hold_any_length() -> None:
    found = model_of(NEMOTRON_NANO, layers=6, pattern="MEMEME")
    cut = cache_blocks(found, BF16, 1, 16)
    assert (cut.attention, cut.recurrent) == (0, 1)
    assert cut.longest_request_tokens(cut.blocks_for_states, 1) is None
    assert cut.longest_request_tokens(cut.blocks_for_states - 1, 1) == 0
    tree = spec({**NEMOTRON_NANO, "layers": 6, "pattern": "MEMEME"}, "hgx-h100", job=LOCAL)
    assert plan_of(tree).limits.max_model_len == 262_144


def test_a_plain_model_has_blocks_of_its_tokens_alone() -> None:
    cut = service_cache_blocks(problem_of(spec("llama-3.1-70b", "hgx-h200")), TP8)
    assert (cut.tokens, cut.attention, cut.recurrent, cut.blocks_for_states) == (16, 1, 0, 0)
    assert cut.blocks_of_request(33, 1) == 3


@pytest.mark.parametrize("found", [NEXT, NANO, QWEN35, H56])
def test_a_state_is_split_with_the_heads(found: Model) -> None:
    whole, split = (recurrent_state_bytes(found, VLLM, tp) for tp in (1, 8))
    assert split == whole / 8


def test_a_window_is_that_of_attention_layers() -> None:
    found = model_of(NEMOTRON_NANO, window=1024)
    assert count_windowed_layers(found) == 6
    short, long = (request_cache_bytes(found, TP1, BF16, tokens) for tokens in (2048, 65_536))
    assert short == long


def test_one_group_of_mamba_heads_is_copied_to_every_rank() -> None:
    found = model_of(NEMOTRON_NANO, mamba={**NEMOTRON_NANO["mamba"], "groups": 1})
    tail = (4096 / 8 + 2 * 128) * 3 * 2
    assert recurrent_state_bytes(found, VLLM, 8) == 4096 * 128 / 8 * 4 + tail


def test_engines_keep_states_in_fp32_where_nothing_says_otherwise() -> None:
    narrow, wide = (
        recurrent_state_bytes(NEXT, VLLM, 1),
        recurrent_state_bytes(NEXT, ENGINES["sglang"], 1),
    )
    assert wide - narrow == 32 * 128 * 128 * 2


def test_stages_hold_keys_and_states_of_their_own_layers() -> None:
    problem = problem_of(spec(H56_FACTS, "hgx-h200", job=LOCAL))
    layout = ServingLayout(tp=2, pp=4)
    stages = stage_caches(problem, layout, 4096)
    cut = service_cache_blocks(problem, layout)
    assert [stage.layers for stage in stages] == [29, 30, 30, 29]
    # 2, 3, 3 and 2 of ten attention layers; 13, 14, 13 and 14 of 54 Mamba layers in six groups
    assert [stage.block_bytes / cut.page_bytes for stage in stages] == [3, 3, 3, 3]
    whole = sum(stage.weights_bytes for stage in stages)
    # embedding and output projection on every stage
    spare = 3 * 2 * 2 * 131072 * 8192 / 2
    assert whole - spare == pytest.approx(weights_bytes(H56, ServingLayout(tp=2), BF16), rel=1e-9)


def test_a_request_takes_its_states_beside_its_tokens() -> None:
    one, two, four = (request_cache_bytes(NEXT, TP1, BF16, tokens) for tokens in (1000, 2000, 4000))
    assert four - two == pytest.approx(2 * (two - one))
    assert one > 2 * (two - one)


def test_no_more_sequences_are_asked_for_than_there_are_blocks() -> None:
    tree = spec(H56_FACTS, "hgx-h100", job=LOCAL, layout={"tp": 2, "pp": 1, "replicas": 4})
    limits = plan_of(tree).limits
    assert limits.max_num_seqs == limits.blocks < 300
    assert limits.longest_blocks == -(-8192 // limits.block_tokens) + 6 * 3
    assert limits.full_requests == pytest.approx(limits.blocks / limits.longest_blocks, rel=1e-3)


def test_a_request_that_does_not_fit_is_reported_with_its_states() -> None:
    layout = {"tp": 2, "pp": 1, "replicas": 4}
    tree = spec(H56_FACTS, "hgx-h100", job=LOCAL, layout=layout, goals={"memory_headroom": "28%"})
    (found,) = planned(tree)[1].diagnostics
    assert found.code == "PARC-V01"
    assert "20,480 B + 1.4 GiB of states" in found.finding.label
    assert found.finding.help.startswith("increase tp")
