"""Configs whose layers have different shapes, sparse attention, chunks or latent experts."""

import pytest

from parc.compiler.cost.counts import cache, flops, params
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import LayerKind
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec
from tests.catalog.configs_hybrid import NEMOTRON_3_NANO
from tests.catalog.test_models_hf_families import resolved

MULTIPLIERS = (
    *([2.625], [5.25] * 5, [-2.625] * 2, [5.25] * 3, [-3.28125], [5.25] * 30, [-1.3125]),
    *([-2.625] * 2, [-1.3125], [-5.25], [-1.3125], [-2.625], [-1.3125] * 3, [5.25], [-1.3125]),
    *([-1.0] * 2, [-1.3125], [-1.0] * 3, [-1.3125] * 2, [-0.5] * 2, [-1.0] * 2, [-0.5] * 2),
    *([-1.0], [-0.5] * 2, [5.25] * 9),
)
"""MLP width of each layer relative to the hidden size; negative for layers without attention."""
NEMOTRON_SUPER = {  # nvidia/Llama-3_3-Nemotron-Super-49B-v1; its page says 49,867,145,216
    "model_type": "nemotron-nas",
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "vocab_size": 128256,
    "block_configs": [
        {
            "attention": {"n_heads_in_group": 8 if one > 0 else None, "no_op": one < 0},
            "ffn": {"ffn_mult": abs(one), "no_op": False},
        }
        for run in MULTIPLIERS
        for one in run
    ],
}


def read(config):
    model, sink = resolved(config)
    assert model is not None, sink.diagnostics
    return model


def test_nemotron_super_has_its_published_parameters_and_caches_keys_in_49_of_80_layers() -> None:
    model = read(NEMOTRON_SUPER)
    assert params.total_params(model) == 49_867_145_216
    assert model.cumulative_layer_counts[-1] == (49, 0, 80, 0)
    assert max(model.ffn_sizes) == 28672
    assert min(model.ffn_sizes) == 2816
    assert cache.mean_cache_bytes_per_token(model, 1, 2) == 2 * 8 * 128 * 2


def test_each_layer_of_mimo_has_the_cache_of_its_key_value_heads() -> None:
    model = read({"model_type": "mimo_v2_flash"})
    full, sliding = 4 * (192 + 128), 8 * (192 + 128)
    per_token = cache.mean_cache_bytes_per_token(model, 1, 1)
    assert per_token * 48 == pytest.approx(9 * full + 39 * sliding)
    assert cache.count_windowed_layers(model) == 39
    assert cache.count_windowed_layers(model, first=0, layers=6) == 4


def test_the_layer_lists_of_hub_configs_mean_the_same_as_those_of_transformers() -> None:
    listed = {
        "hybrid_layer_pattern": [0 if n == 0 or (n + 1) % 6 == 0 else 1 for n in range(48)],
        "moe_layer_freq": [0] + [1] * 47,
        "swa_num_key_value_heads": 8,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
    }
    hub, plain = (read({"model_type": "mimo_v2_flash"} | one) for one in (listed, {}))
    assert (hub.variants, hub.experts) == (plain.variants, plain.experts)
    wide = read({"model_type": "mimo_v2_flash"} | listed | {"swa_num_key_value_heads": 16})
    more = 8 * (192 + 128) * plain.hidden * 39
    assert params.total_params(wide) - params.total_params(plain) == more


def test_a_layer_without_attention_has_neither_its_weights_nor_its_flops() -> None:
    model = read(NEMOTRON_SUPER)
    plain, *_, thin = (kind for kind in model.kinds if kind.mlp == "dense")
    assert thin.mixer == "none"
    assert flops.layer_flops(model, thin, 1.0, 4096).attention_core == 0
    assert flops.layer_flops(model, plain, 1.0, 4096).attention_core > 0
    width = model.with_shapes_of(thin).ffn.size
    dense, experts = params.layer_kind_params_on_rank(model, thin, (1, 1, 1))
    assert (dense, experts) == (3 * 8192 * width + 8192, 0)


def test_an_indexer_limits_the_keys_and_adds_its_own_to_the_cache() -> None:
    model = read({"model_type": "deepseek_v32"})
    plain = read({"model_type": "deepseek_v3"})
    assert flops.mean_visible_keys(model, 1024) == flops.mean_visible_keys(plain, 1024)
    assert flops.mean_visible_keys(model, 65536) == pytest.approx(2048 * (1 - 2048 / 131072))
    # 128 fp8 elements and one fp32 scale.
    extra = cache.mean_cache_bytes_per_token(model, 1, 1) - 576
    assert extra == 128 + 4


def test_layers_that_share_selected_keys_have_no_indexer() -> None:
    types = ["full", "shared", "shared", "full"]
    shared = read({"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "indexer_types": types})
    own = read({"model_type": "glm_moe_dsa", "num_hidden_layers": 4})
    assert own.attention.indexer is not None
    one = params.indexer_params(own, own.attention.indexer)
    assert params.total_params(own) - params.total_params(shared) == 2 * one
    assert flops.mean_visible_keys(own, 65536) == flops.mean_visible_keys(shared, 65536)


def test_blocks_of_keys_are_selected_only_in_the_sparse_layers_of_minimax_m3() -> None:
    sparse = {"layer_types": ["full_attention"] + ["minimax_m3_sparse"] * 3}
    model = read({"model_type": "minimax_m3_vl_text", "num_hidden_layers": 4} | sparse)
    assert model.attention.indexer is not None
    assert model.attention.indexer.top_k == 16 * 128
    own = [one.attention.indexer is not None for one, _ in model.attention_models]
    shares = [share for _, share in model.attention_models]
    assert (own, shares) == ([True, False], [0.75, 0.25])


def test_llama_4_attends_within_chunks_except_in_every_fourth_layer() -> None:
    model = read({"model_type": "llama4_text"})
    assert (model.attention.window, model.attention.chunked) == (8192, True)
    assert flops.mean_visible_keys(model, 65536) == pytest.approx(0.75 * 4096 + 0.25 * 32768)
    assert cache.count_windowed_layers(model) == 36
    listed = read({"model_type": "llama4_text", "no_rope_layers": [0] + [1] * 47})
    assert cache.count_windowed_layers(listed) == 47


def test_latent_experts_read_and_write_a_projection_of_the_tokens() -> None:
    plain, latent = read(NEMOTRON_3_NANO), read(NEMOTRON_3_NANO | {"moe_latent_size": 1024})
    assert plain.experts is not None
    assert params.expert_params(latent) * plain.hidden == params.expert_params(plain) * 1024
    projections = params.expert_projection_params(latent)
    assert projections == 2 * plain.hidden * 1024
    saved = plain.experts.count * (params.expert_params(plain) - params.expert_params(latent))
    layers = plain.experts.layers
    difference = params.total_params(plain) - params.total_params(latent)
    assert difference == layers * (saved - projections)
    kind = LayerKind("none", "experts")
    assert flops.layer_flops(latent, kind, 1, 1).experts * plain.hidden == pytest.approx(
        flops.layer_flops(plain, kind, 1, 1).experts * 1024
    )


SMALL = {"name": "small", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 100}
SMALL |= {"position": {"max_positions": 64}}


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"layer_variants": ({"layers": (5,)},)}, "[0].layers", "layer 5 does not exist"),
        ({"layer_variants": ({"layers": (1, 1)},)}, "[0].layers", "layer 1 is listed twice"),
        ({"layer_variants": ({"layers": (1,), "kv_heads": 3},)}, "[0].kv_heads", "not divisible"),
        (
            {"layer_variants": ({"layers": (1,), "attention": False, "heads": 2},)},
            "[0].heads",
            "no effect with attention: false",
        ),
        (
            {"layer_variants": ({"layers": (1,), "mlp": False, "ffn": 64},)},
            "[0].ffn",
            "no effect with mlp: false",
        ),
        (
            {"layer_variants": ({"layers": (1,), "full_attention": True},)},
            "[0].full_attention",
            "needs model.window",
        ),
        (
            {"layer_variants": ({"layers": (1,), "indexer": "shared"},)},
            "[0].indexer",
            "without model.indexer",
        ),
        (
            {"pattern": "****", "layer_variants": ({"layers": (1,)},)},
            "model.layer_variants",
            "cannot be combined with pattern",
        ),
        ({"window_chunks": True}, "model.window_chunks", "no effect without window"),
        (
            {"extra_weights": ({"name": "x", "parameters": 1, "at": "experts"},)},
            "extra_weights[0].at",
            "no layer has experts",
        ),
        ({"indexer": {"heads": 4, "top_k": 8}}, "model.indexer.head_dim", "is not set"),
    ],
)
def test_a_wrong_layer_description_is_reported_at_its_key(change, path, words) -> None:
    sink = Sink()
    assert resolve_model(ModelSpec(**(SMALL | change)), None, sink) is None  # type: ignore[arg-type]
    (found,) = sink.diagnostics
    assert (found.code, found.path.endswith(path)) == ("PARC-K03", True), found
    assert words in found.finding.message


def test_extra_weights_are_counted_where_they_are() -> None:
    extra = [{"name": at, "parameters": 7, "at": at} for at in ("layers", "attention", "output")]
    plain = resolve_model(ModelSpec(**SMALL), None, Sink())  # type: ignore[arg-type]
    more = resolve_model(ModelSpec(**SMALL, extra_weights=tuple(extra)), None, Sink())  # type: ignore[arg-type]
    assert plain is not None
    assert more is not None
    assert params.total_params(more) - params.total_params(plain) == 7 * (4 + 4 + 1)
