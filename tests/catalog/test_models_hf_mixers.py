"""Configs with convolutions, Mamba or linear attention in listed layers, and shared keys."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import cache, flops, params
from parc.compiler.cost.serving.shard import count_rank_weights, shard_elements
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import LayerKind, Model
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec
from tests.catalog.family_counts import counted_configs
from tests.catalog.test_models_hf_families import resolved
from tests.cost.serving.serving_cases import VLLM, vllm_setup

FAMILIES = (
    *("bamba", "gemma3n_text", "gemma4_text", "gemma4_unified_text", "granitemoehybrid"),
    *("kimi_linear", "lfm2", "lfm2_moe", "minimax"),
)
LFM2 = {  # LiquidAI/LFM2-1.2B; its page says 1,170,340,608
    "model_type": "lfm2",
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 2048,
    "intermediate_size": 12288,
    "num_hidden_layers": 16,
}
GEMMA_4_E2B = {  # google/gemma-4-E2B
    "model_type": "gemma4_text",
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    "num_hidden_layers": 35,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
}
KIMI_LINEAR = {  # moonshotai/Kimi-Linear-48B-A3B
    "model_type": "kimi_linear",
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "head_dim": 128,
        "kda_layers": [n for n in range(1, 27) if n % 4],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}


def read(config: dict[str, Any]) -> Model:
    model, sink = resolved(config)
    assert model is not None, sink.diagnostics
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rank_that_serves_the_whole_model_has_its_parameters(family: str) -> None:
    for config, count in counted_configs():
        if config["model_type"] != family:
            continue
        model = read(config)
        weights = count_rank_weights(model, ServingLayout(), vllm_setup())
        # Decays in fp32 count twice, and small biases of the output are left out.
        elements = shard_elements(weights, params.final_norm_params(model))
        assert elements == pytest.approx(count, rel=1e-4), config


def test_a_convolution_has_four_square_matrices_and_a_state_of_two_tokens() -> None:
    model = read(LFM2)
    hidden = model.hidden
    assert model.cumulative_layer_counts[-1] == (6, 10, 16, 0)
    kind = LayerKind("convolution", "dense", 1)
    found = flops.layer_flops(model, kind, 1, 4096)
    assert found.attention_projections == 2 * 4 * hidden**2
    assert found.attention_core == 2 * 3 * hidden + 2 * hidden
    assert params.mixer_params(model, kind) == 4 * hidden**2 + 3 * hidden
    constants = VLLM
    assert cache.recurrent_state_bytes(model, constants, 1) == 2 * 2 * hidden
    assert cache.recurrent_state_bytes(model, constants, 2) == 2 * hidden


def test_only_layers_with_keys_of_their_own_have_a_cache() -> None:
    model = read(GEMMA_4_E2B)
    # 15 of 35 layers: 12 with a window, and three with full attention and twice the head dim.
    per_token = 35 * cache.mean_cache_bytes_per_token(model, 1, 1)
    assert per_token == pytest.approx(2 * (12 * 256 + 3 * 512))
    share = cache.windowed_cache_share(model, 1)
    assert share == pytest.approx(12 * 256 / (12 * 256 + 3 * 512))
    assert sorted({*model.ffn_sizes}) == [6144, 12288]
    keys = flops.projection_weights(model) - flops.projection_weights(
        replace(model, attention=replace(model.attention, shared_kv=True))
    )
    assert keys == 1536 * 2 * 256


def test_keys_that_are_values_have_one_projection_and_two_caches() -> None:
    model = read({"model_type": "gemma4_text", "attention_k_eq_v": True})
    full = model.with_shapes_of(model.last_kind)
    assert full.attention.keys_as_values
    plain = replace(full, attention=replace(full.attention, keys_as_values=False))
    width = 4 * 512
    assert params.attention_params(plain) - params.attention_params(full) == full.hidden * width
    assert cache.cache_bytes_per_token(full.attention, 1, 1) == 2 * width


def test_kimi_linear_has_a_state_per_head_and_latent_attention_in_listed_layers() -> None:
    model = read(KIMI_LINEAR)
    attention = [n for n, kind in enumerate(model.layer_kinds, 1) if kind.mixer == "attention"]
    assert attention == [4, 8, 12, 16, 20, 24, 27]
    # vLLM 0.33, kda_state_shape and kda_state_dtype: fp32 states, inputs of three tokens in bf16.
    state = 32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2
    assert cache.recurrent_state_bytes(model, VLLM, 1) == state
    assert cache.mean_cache_bytes_per_token(model, 1, 2) == (512 + 64) * 2


SMALL = {
    "layers": 4,
    "hidden": 256,
    "heads": 4,
    "ffn": 512,
    "vocab": 1024,
    "position": {"max_positions": 512},
}
CONVOLUTIONS = {"convolution": {}, "layer_variants": [{"layers": [1], "mixer": "convolution"}]}
WRONG = [
    ({"convolution": {}}, "model.convolution", "no layer has a convolution"),
    (
        {"layer_variants": [{"layers": [1], "mixer": "mamba"}]},
        "model.layer_variants[0].mixer",
        "needs model.mamba",
    ),
    (
        {**CONVOLUTIONS, "layer_variants": [{"layers": [1], "mixer": "convolution", "heads": 2}]},
        "model.layer_variants[0].heads",
        "no effect with mixer: convolution",
    ),
    (
        {"layer_variants": [{"layers": [1, 2], "shared_kv": True}]},
        "model.layer_variants[0].shared_kv",
        "layer 1 shares keys and values, but no earlier layer has any",
    ),
    (
        {"layer_variants": [{"layers": [2], "shared_kv": True, "keys_as_values": True}]},
        "model.layer_variants[0].keys_as_values",
        "no effect with shared_kv",
    ),
    (
        {"extra_weights": [{"name": "gate", "parameters": 8, "at": "convolution"}]},
        "model.extra_weights[0].at",
        "no layer has the token mixer convolution",
    ),
]


@pytest.mark.parametrize(("changes", "path", "words"), WRONG)
def test_a_mixer_without_description_or_effect_is_reported_at_its_key(
    changes: dict[str, Any], path: str, words: str
) -> None:
    sink = Sink()
    spec = ModelSpec.model_validate_json(json.dumps(SMALL | changes))
    assert resolve_model(spec, Library(None), sink) is None
    assert [(one.path, words in one.finding.message) for one in sink.diagnostics] == [(path, True)]
