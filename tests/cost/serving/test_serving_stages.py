"""Weights and cache of every stage, against vLLM's own models and planner on the meta device."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.serving.stages import stage_caches, stage_splits
from parc.compiler.ir import ServingLayout
from parc.compiler.ir.serving import split_layers_evenly
from tests.property_settings import examples
from tests.search.serving_specs import problem_of, spec

GIB = 2**30
# vLLM 0.33, model classes built on the meta device for one rank: GiB of weights, and bytes a token
# of the real KV-cache spec on one GPU.
MEASURED: list[tuple[str, dict[str, Any], ServingLayout, float, int]] = [
    ("llama-3.1-70b", {}, ServingLayout(tp=8), 16.429, 40_960),
    ("llama-3.1-70b", {"kv_precision": "fp8"}, ServingLayout(tp=8), 16.429, 20_480),
    ("llama-3.1-70b", {}, ServingLayout(tp=16), 8.372, 40_960),
    ("llama-3.1-70b", {}, ServingLayout(tp=8, pp=4), 4.230, 10_240),
    ("deepseek-v3", {"precision": "fp8"}, ServingLayout(tp=8, ep=8), 79.293, 70_272),
    ("deepseek-v3", {"precision": "fp8"}, ServingLayout(dp=16, ep=16), 55.843, 70_272),
    ("qwen3-235b-a22b", {}, ServingLayout(tp=8, ep=8), 54.910, 48_128),
    ("qwen3-235b-a22b", {}, ServingLayout(tp=8, pp=2, ep=8), 27.600, 24_064),
]


@pytest.mark.parametrize(("model", "job", "layout", "weights", "token_bytes"), MEASURED)
def test_the_first_stage_is_that_of_the_real_model(
    model: str, job: dict[str, Any], layout: ServingLayout, weights: float, token_bytes: int
) -> None:
    problem = problem_of(spec(model, "hgx-h200", 4, job=job))
    first = stage_caches(problem, layout)[0]
    assert first.weights_bytes / GIB == pytest.approx(weights, rel=0.005)
    assert first.block_bytes / problem.service.block_tokens == token_bytes


def test_stages_in_the_middle_hold_no_vocabulary() -> None:
    problem = problem_of(spec("llama-3.1-70b", "hgx-h200", 4))
    sizes = [
        stage.weights_bytes / GIB for stage in stage_caches(problem, ServingLayout(tp=8, pp=4))
    ]
    assert sizes == pytest.approx([4.230, 3.985, 3.985, 4.230], abs=0.002)


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        (61, 2, (31, 30)),
        (80, 4, (20, 20, 20, 20)),
        (126, 4, (31, 32, 32, 31)),
        (61, 4, (15, 15, 16, 15)),
        (10, 4, (2, 3, 3, 2)),
        (11, 4, (3, 3, 3, 2)),
    ],
)
def test_the_even_split_is_that_of_vllm(layers: int, pp: int, stages: tuple[int, ...]) -> None:
    assert split_layers_evenly(layers, pp, "before_last") == stages


def test_the_engine_declares_which_stages_get_the_remaining_layers() -> None:
    assert split_layers_evenly(11, 4, "first") == (3, 3, 3, 2)
    assert split_layers_evenly(10, 4, "first") == (3, 3, 2, 2)
    assert split_layers_evenly(10, 4, "before_last") == (2, 3, 3, 2)


@given(layers=st.integers(1, 200), pp=st.integers(1, 32))
def test_every_split_holds_every_layer_once_and_no_stage_is_empty(layers: int, pp: int) -> None:
    if pp > layers:
        return
    splits = stage_splits(layers, pp, "before_last")
    assert splits[0] == split_layers_evenly(layers, pp, "before_last")
    for split in splits:
        assert sum(split) == layers
        assert len(split) == pp
        assert min(split) >= 1


@examples(15)
@given(tokens=st.integers(1, 131_072))
def test_a_longer_request_never_needs_less_cache(tokens: int) -> None:
    problem = problem_of(spec("llama-3.1-70b", "hgx-h200"))
    layout = ServingLayout(tp=8)
    (short,), (long,) = (
        stage_caches(problem, layout, longest) for longest in (tokens, min(tokens + 1, 131_072))
    )
    assert short.longest_bytes <= long.longest_bytes
    assert short.blocks == long.blocks


def test_decode_context_parallelism_shares_the_cache_of_a_request() -> None:
    problem = problem_of(spec("deepseek-v3", "hgx-h200", job={"precision": "fp8"}))
    (alone,) = stage_caches(problem, ServingLayout(tp=8, ep=8), 32_768)
    (shared,) = stage_caches(problem, ServingLayout(tp=8, ep=8, dcp=8), 32_768)
    assert shared.longest_bytes == alone.longest_bytes / 8
    assert shared.block_bytes == alone.block_bytes
