"""Compressed keys, attention next to Mamba, and Mamba-1: published ratios and sums of parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.cost.counts.cache import (
    mean_cache_bytes_per_token,
    recurrent_state_bytes,
    window_bytes_next_to_compression,
)
from parc.compiler.cost.counts.flops import layer_flops, mean_visible_keys
from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.ir import LayerKind, Model
from tests.catalog.test_models_hf_families import resolved
from tests.cost.serving.serving_cases import VLLM
from tests.hybrid_models import model_of

FLASH: dict[str, Any] = {"model_type": "deepseek_v4"}
PRO = FLASH | {
    **{"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128},
    **{"q_lora_rank": 1536, "o_groups": 16, "n_routed_experts": 384},
    **{"moe_intermediate_size": 3072, "index_topk": 1024},
}
MILLION = 2**20
SMALL: dict[str, Any] = {
    **{"layers": 2, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 1000},
    "position": {"max_positions": 1024},
    "mamba": {"heads": 8, "head_dim": 64, "state_size": 32},
}


def read(config: dict[str, Any]) -> Model:
    return resolved(config)[0]


def cache_bytes(model: Model, tokens: int) -> float:
    """Return the bytes that a request of ``tokens`` tokens caches in 8 bit."""
    entries = tokens * mean_cache_bytes_per_token(model, 1, 1.0)
    return model.layers * (entries + window_bytes_next_to_compression(model, 1, 1.0))


def flops_of_token(model: Model, context: int) -> float:
    """Return the FLOPs of a token that sees ``context`` tokens, without the output projection."""
    # The mean over a sequence is that of the token in its middle.
    kinds = Counter(model.layer_kinds).items()
    return sum(count * layer_flops(model, kind, 1.0, 2 * context).total for kind, count in kinds)


def test_the_cache_of_deepseek_v4_is_the_published_share_of_that_of_deepseek_v3_2() -> None:
    """Model card of DeepSeek-V4-Pro: 10 % of the cache for a million tokens, 7 % for Flash."""
    whole = cache_bytes(read({"model_type": "deepseek_v32"}), MILLION)
    assert cache_bytes(read(PRO), MILLION) / whole == pytest.approx(0.10, rel=0.12)
    assert cache_bytes(read(FLASH), MILLION) / whole == pytest.approx(0.07, rel=0.12)


def test_the_flops_of_deepseek_v4_are_the_published_share_of_those_of_deepseek_v3_2() -> None:
    """Model card of DeepSeek-V4-Pro: 27 % of the FLOPs of a token after a million tokens."""
    whole = flops_of_token(read({"model_type": "deepseek_v32"}), MILLION)
    assert flops_of_token(read(PRO), MILLION) / whole == pytest.approx(0.27, rel=0.05)


@pytest.mark.parametrize("top_k", [16, 10**6])
def test_a_query_sees_the_window_and_the_compressed_entries_that_the_indexer_selects(
    top_k: int,
) -> None:
    length, window, rate = 4096, 64, 8
    facts = SMALL | {
        **{"mamba": None, "window": window, "joint_kv": True, "kv_heads": 1},
        "indexer": {"heads": 2, "head_dim": 16, "top_k": top_k},
        "layer_variants": [{"layers": [1, 2], "compression": {"rate": rate}}],
    }
    seen = [min(t, window) + min(t // rate, top_k) for t in range(1, length + 1)]
    assert mean_visible_keys(model_of(facts), length) == pytest.approx(sum(seen) / length, rel=0.01)


def test_a_layer_with_attention_next_to_mamba_has_the_work_and_the_states_of_both() -> None:
    both = model_of(SMALL | {"layer_variants": [{"layers": [1, 2], "mixer": "parallel"}]})
    alone = model_of(SMALL | {"layer_variants": [{"layers": [2], "mixer": "mamba"}]})
    found = layer_flops(both, LayerKind("parallel", "dense", 1), 1.0, 512)
    attention = layer_flops(alone, LayerKind("attention", "dense"), 1.0, 512)
    mamba = layer_flops(alone, LayerKind("mamba", "dense", 1), 1.0, 512)
    assert found.total == attention.total + mamba.total - mamba.mlp
    counts = both.cumulative_layer_counts[-1]
    assert counts[:2] == (2, 2)  # each layer caches keys and values, and has a state


def test_mamba_1_has_a_state_per_channel_and_projections_after_the_convolution() -> None:
    first = read({"model_type": "mamba", "hidden_size": 256, "num_hidden_layers": 2})
    mamba = first.mamba
    assert mamba is not None
    assert (mamba.heads, mamba.head_dim, mamba.step_rank) == (512, 1, 16)
    assert mamba.step_projections == ((16 + 2 * 16, 512), (512, 16))
    second = replace(first, mamba=replace(mamba, step_rank=0))
    conv = 2.0 * (mamba.conv_size - 1)
    # B and C of Mamba-2 pass through the convolution, which caches its last inputs.
    difference = recurrent_state_bytes(second, VLLM, 1) - recurrent_state_bytes(first, VLLM, 1)
    assert difference == conv * 2 * mamba.state_size
    part = recurrence_of_layer(first, LayerKind("mamba", "none"))
    assert part is not None
    assert part.inner_products == mamba.step_projections
