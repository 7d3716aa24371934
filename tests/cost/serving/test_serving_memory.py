"""Weights and cache of a rank against vLLM 0.33: its model classes and its cache planner.

The figures are those of the classes built on the meta device and of the planner for an H200 of
139.8 GiB at 0.92, with 6 GiB taken for activations, graphs and buffers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.memory import kv_bytes_per_token, request_cache_bytes
from parc.compiler.cost.serving.shard import count_rank_weights, shard_elements, weights_bytes
from parc.compiler.ir.serving import ServingLayout, ServingSetup
from tests.cost.serving.serving_cases import cluster, model, vllm_setup

GIB = 2**30
BF16 = vllm_setup(memory_share=0.92, overhead_bytes=6 * GIB)
FP8 = replace(BF16, weights="fp8")
TP8, TP16 = ServingLayout(tp=8), ServingLayout(tp=16)
EP8, DP16 = ServingLayout(tp=8, ep=8), ServingLayout(dp=16, ep=16)

PARAMETERS = [
    ("llama-3.1-70b", TP8, 8_820_367_360),
    ("llama-3.1-70b", TP16, 4_494_729_216),
    ("qwen3-235b-a22b", EP8, 29_479_808_512),
]
CAPACITY = [
    ("llama-3.1-70b", BF16, TP8, (16.429, 40_960, 2_783_616)),
    ("llama-3.1-70b", replace(BF16, kv="fp8"), TP8, (16.429, 20_480, 5_567_232)),
    ("llama-3.1-70b", BF16, TP16, (8.372, 40_960, 2_994_832)),
    ("llama-3.1-70b", BF16, ServingLayout(tp=8, pp=4), (4.230, 10_240, 12_410_000)),
    ("deepseek-v3", FP8, EP8, (79.293, 70_272, 661_952)),
    ("deepseek-v3", FP8, DP16, (55.843, 70_272, 1_020_256)),
    ("qwen3-235b-a22b", BF16, EP8, (54.910, 48_128, 1_510_512)),
]


@pytest.mark.parametrize(("name", "layout", "count"), PARAMETERS)
def test_a_rank_holds_as_many_parameters_as_in_vllm(
    name: str, layout: ServingLayout, count: int
) -> None:
    found = model(name)
    assert shard_elements(count_rank_weights(found, layout, BF16), found.hidden) == count


@pytest.mark.parametrize(("name", "setup", "layout", "planned"), CAPACITY)
def test_weights_and_cache_are_those_of_vllms_planner(
    name: str, setup: ServingSetup, layout: ServingLayout, planned: tuple[float, int, int]
) -> None:
    gib, token, tokens = planned
    device = cluster("hgx-h200")
    device = replace(device, gpu=replace(device.gpu, memory_bytes=int(139.8 * GIB)))
    found = build_deployment(model(name), device, setup, layout).memory
    assert found.weights_bytes / GIB == pytest.approx(gib, rel=2e-4)
    assert found.kv_bytes_per_token == token
    assert found.kv_tokens == pytest.approx(tokens, rel=1e-3)


def test_weights_over_the_budget_leave_no_cache() -> None:
    found = build_deployment(
        model("llama-3.1-70b"), cluster("hgx-h200"), BF16, ServingLayout()
    ).memory
    assert found.kv_tokens == 0


def test_the_cache_of_latent_attention_is_whole_on_every_tensor_rank() -> None:
    one, eight = (
        kv_bytes_per_token(model("deepseek-v3"), ServingLayout(tp=tp), FP8) for tp in (1, 8)
    )
    assert one == eight == 61 * 576 * 2


def test_key_value_heads_are_repeated_past_their_number() -> None:
    found = model("qwen3-235b-a22b")  # 4 key-value heads
    tokens = [kv_bytes_per_token(found, ServingLayout(tp=tp), BF16) for tp in (1, 4, 8)]
    assert tokens[0] == 4 * tokens[1] == 4 * tokens[2]


def test_4_bit_weights_take_their_scales_along() -> None:
    found = model("llama-3.1-8b")
    wide, int4, nvfp4 = (
        weights_bytes(found, TP8, replace(BF16, weights=weights))
        for weights in ("bf16", "int4", "nvfp4")
    )
    assert wide / 4 < int4 < nvfp4 < wide / 2


def test_windowed_layers_keep_their_window_alone() -> None:
    found = model("gemma-3-27b")  # 5 of 6 layers see 1,024 tokens
    short, long = (request_cache_bytes(found, TP8, BF16, tokens) for tokens in (1024, 102_400))
    assert short < long < 20 * short
    full = kv_bytes_per_token(found, TP8, BF16)
    assert request_cache_bytes(found, TP8, BF16, 1024) == full * 1024


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_leaves_memory_for_its_activations(engine: str) -> None:
    setup = ServingSetup(ENGINES[engine])
    device = cluster("hgx-h100")
    found = build_deployment(model("llama-3.1-8b"), device, setup, ServingLayout()).memory
    spare = device.gpu.memory_bytes - found.weights_bytes - found.kv_bytes
    assert 4e9 < spare < 18e9
