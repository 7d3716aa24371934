"""A Hugging Face config gives the same model as the catalog entry, with old and new keys.

Configs of Qwen3-Next, Qwen3.5 and Nemotron-H become hybrid models.
"""

import json
from dataclasses import replace

import pytest

from parc.compiler.catalog.huggingface.config import model_spec_from_config
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
from tests.catalog.configs import LIKE_THE_CATALOG, LLAMA, QWEN3_MOE, ROPE_LLAMA
from tests.catalog.configs_hybrid import (
    HYBRIDS,
    NEMOTRON_3_NANO,
    NEMOTRON_H_8B,
    QWEN3_5,
    QWEN3_NEXT,
)

BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def resolved(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    sink = Sink()
    return resolve_model("./config.json", Library(tmp_path), sink), sink


@pytest.mark.parametrize("name", sorted(LIKE_THE_CATALOG))
def test_a_config_gives_the_model_of_the_catalog(name, tmp_path):
    model, sink = resolved(LIKE_THE_CATALOG[name], tmp_path)
    entry = resolve_model(name, Library(None), Sink())
    assert entry is not None
    assert model is not None, sink.diagnostics
    assert not sink.failed()
    # The standard deviation of the initial weights is that of the paper, not of the config.
    assert replace(model, name=entry.name, source=entry.source, init_std=entry.init_std) == entry


def test_the_published_config_of_qwen3_coder_is_read(tmp_path):
    # Keys of Qwen/Qwen3-Coder-480B-A35B-Instruct beside those of other Qwen3 models with experts.
    shapes = {"hidden_size": 6144, "intermediate_size": 8192, "moe_intermediate_size": 2560}
    counts = {"num_attention_heads": 96, "num_experts": 160, "num_experts_per_tok": 8}
    depth = {"num_hidden_layers": 62, "max_window_layers": 62, "num_key_value_heads": 8}
    context = {"max_position_embeddings": 262144, "rope_theta": 10000000, "rope_scaling": None}
    others = {"use_qk_norm": True, "qkv_bias": False, "shared_expert_intermediate_size": 0}
    config = {**QWEN3_MOE, **shapes, **counts, **depth, **context, **others}
    model, sink = resolved(config, tmp_path)
    entry = resolve_model("qwen3-coder-480b-a35b", Library(None), Sink())
    assert model is not None, sink.diagnostics
    assert entry is not None
    assert not sink.diagnostics
    # The standard deviation of the initial weights is that of the paper, not of the config.
    assert replace(model, name=entry.name, source=entry.source, init_std=entry.init_std) == entry
    for wrong in ({"use_qk_norm": False}, {"qkv_bias": True}):
        model, sink = resolved({**config, **wrong}, tmp_path)
        assert [found.code for found in sink.diagnostics] == ["PARC-K02"]


def test_gemma_has_its_own_head_dim_and_ties_by_default(tmp_path):
    # google/gemma-7b: 8,537,680,896 parameters on its page; every key is the default of the class.
    model, _ = resolved({"model_type": "gemma"}, tmp_path)
    assert params.total_params(model) == 8_537_680_896


def test_phi_has_one_norm_per_layer_and_a_bias_on_its_head(tmp_path):
    # microsoft/phi-1_5: 1,418,270,720 on its page, of which 51,200 are the bias of the head.
    model, sink = resolved({"model_type": "phi"}, tmp_path)
    assert params.total_params(model) == 1_418_270_720
    assert [found.code for found in sink.diagnostics] == ["PARC-K06"]


def test_new_rope_parameters_mean_the_same_as_the_old_keys():
    old = model_spec_from_config(LLAMA, "x")
    config = {k: v for k, v in LLAMA.items() if not k.startswith("rope_")}
    new = model_spec_from_config(
        config | {"rope_parameters": {"rope_theta": 500000.0} | ROPE_LLAMA}, "x"
    )
    assert new == old
    assert old.mapping["position"]["scaling"] == "llama3"


def test_rope_parameters_by_layer_type_are_those_of_full_attention():
    table = {
        "full_attention": {"rope_theta": 2e6, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
    }
    reading = model_spec_from_config({"model_type": "gemma3_text", "rope_parameters": table}, "x")
    position = reading.mapping["position"]
    assert (position["base"], position["scaling"], position["scaling_factor"]) == (2e6, "linear", 8)


def test_a_family_with_own_names_of_dimensions_reads_the_usual_names_too():
    # bigscience/bloom-560m has n_layer and n_embed, but num_attention_heads.
    bloom = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}
    reading = model_spec_from_config(bloom, "x")
    sizes = {"hidden": 1024, "layers": 24, "heads": 16}
    assert {key: reading.mapping[key] for key in sizes} == sizes
    assert [note.code for note in reading.notes if note.code != "K06"] == []


def test_the_own_name_of_a_dimension_counts_if_a_config_has_both_names():
    config = {"model_type": "gpt2", "n_layer": 4, "num_hidden_layers": 4}
    same = model_spec_from_config(config, "x")
    assert (same.mapping["layers"], same.notes) == (4, ())
    other = model_spec_from_config(config | {"num_hidden_layers": 8}, "x")
    assert (other.mapping["layers"], [note.code for note in other.notes]) == (4, ["K05"])


def test_an_invalid_dimension_is_reported_at_the_name_that_the_config_has():
    (note,) = model_spec_from_config({"model_type": "gpt2", "num_hidden_layers": -1}, "x").notes
    assert (note.code, note.key) == ("K03", "num_hidden_layers")


def test_a_name_that_the_class_does_not_accept_stays_unknown():
    (note,) = model_spec_from_config(LLAMA | {"n_layer": 99}, "x").notes
    assert (note.code, note.key) == ("K05", "n_layer")


def test_the_rotated_fraction_may_be_written_twice():
    # nvidia/Qwen3.6-27B-NVFP4, saved by transformers 5
    rope = {"rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25}
    config = QWEN3_NEXT | {"rope_parameters": rope, "partial_rotary_factor": 0.25}
    reading = model_spec_from_config({**config, "model_type": "qwen3_5_text"}, "x")
    assert "partial_rotary_factor" not in [note.key for note in reading.notes]
    config |= {"partial_rotary_factor": 0.5}
    reading = model_spec_from_config({**config, "model_type": "qwen3_5_text"}, "x")
    assert "partial_rotary_factor" in [note.key for note in reading.notes]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["full_attention"] * 4, {}),
        (["sliding_attention"] * 4, {"window": 128}),
        (["sliding_attention", "full_attention"] * 2, {"window": 128, "full_attention_every": 2}),
    ],
)
def test_layer_types_become_a_window_and_a_period(types, expected):
    config = {
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "layer_types": types,
        "sliding_window": 128,
    }
    mapping = model_spec_from_config(config, "x").mapping
    keys = ("window", "full_attention_every")
    assert {key: mapping[key] for key in keys if key in mapping} == expected


def test_scores_that_are_not_normalized_after_top_k_need_pre_softmax():
    loose = model_spec_from_config(QWEN3_MOE | {"norm_topk_prob": False}, "x")
    assert loose.mapping["experts"]["pre_softmax"]
    assert not model_spec_from_config(QWEN3_MOE, "x").mapping["experts"]["pre_softmax"]


def test_leading_dense_layers_and_the_sparse_step_become_the_pattern(tmp_path):
    model, _ = resolved(QWEN3_MOE | {"num_hidden_layers": 6, "mlp_only_layers": [0, 1]}, tmp_path)
    assert model.experts.pattern == (False, False, True, True, True, True)
    model, _ = resolved(QWEN3_MOE | {"num_hidden_layers": 6, "decoder_sparse_step": 2}, tmp_path)
    assert model.experts.pattern == (False, True) * 3
    assert model.ffn.size == 6144


def test_prediction_layers_and_quantization_are_reported_and_not_used(tmp_path):
    model, sink = resolved(LIKE_THE_CATALOG["deepseek-v3"], tmp_path)
    assert model.mtp_layers == 0
    assert [found.code for found in sink.diagnostics] == ["PARC-K04", "PARC-K04"]
    assert {found.severity for found in sink.diagnostics} == {"advice"}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"attention_dropout": 0.1}, 1),
        ({"resid_pdrop": 0.1, "embd_pdrop": 0.1}, 2),
        ({"router_jitter_noise": 0.01}, 1),
        ({"attention_dropout": 0.0, "router_jitter_noise": None, "classifier_dropout": 0.1}, 0),
    ],
)
def test_dropout_and_noise_are_reported_and_not_used(settings, found, tmp_path):
    _, sink = resolved(LLAMA | settings, tmp_path)
    assert [one.code for one in sink.diagnostics] == ["PARC-K04"] * found


def test_layer_types_of_full_attention_are_not_a_finding(tmp_path):
    config = LLAMA | {"layer_types": ["full_attention"] * 80}
    model, sink = resolved(config, tmp_path)
    assert model is not None
    assert not sink.diagnostics


@pytest.mark.parametrize("name", sorted(HYBRIDS))
def test_a_config_gives_the_hybrid_of_the_catalog(name, tmp_path):
    model, sink = resolved(HYBRIDS[name], tmp_path)
    entry = resolve_model(name, Library(None), Sink())
    assert entry is not None
    assert model is not None, sink.diagnostics
    assert {found.code for found in sink.diagnostics} <= {"PARC-K04"}
    assert replace(model, name=entry.name, source=entry.source) == entry


def test_layer_types_and_the_interval_give_the_same_model():
    types = (["linear_attention"] * 2 + ["full_attention"]) * 16
    listed = model_spec_from_config(QWEN3_NEXT | {"layer_types": types}, "x")
    spaced = model_spec_from_config(QWEN3_NEXT | {"full_attention_interval": 3}, "x")
    assert listed == spaced
    assert listed.mapping["linear_attention"]["full_attention_every"] == 3


def test_block_types_and_letters_give_the_same_model():
    letters = NEMOTRON_3_NANO["hybrid_override_pattern"]
    config = {k: v for k, v in NEMOTRON_3_NANO.items() if k != "hybrid_override_pattern"}
    del config["num_hidden_layers"]
    for names in (BLOCKS, BLOCKS | {"M": "linear_attention", "*": "full_attention"}):
        types = [names[letter] for letter in letters]
        reading = model_spec_from_config(config | {"layers_block_type": types}, "x")
        assert reading == model_spec_from_config(NEMOTRON_3_NANO, "x")


def test_experts_that_no_layer_has_are_not_read():
    with_experts = NEMOTRON_H_8B | {"n_routed_experts": 8, "moe_latent_size": 1024}
    reading = model_spec_from_config(with_experts, "x")
    assert reading == model_spec_from_config(NEMOTRON_H_8B, "x")
    assert not reading.notes


def test_another_chunk_size_than_targets_assume_is_reported():
    (note,) = model_spec_from_config(NEMOTRON_H_8B | {"chunk_size": 256}, "x").notes
    assert (note.code, note.key) == ("K06", "chunk_size")


@pytest.mark.parametrize(
    ("config", "key", "words"),
    [
        (QWEN3_NEXT | {"layer_types": ["linear_attention"] * 48}, "layer_types", "full attention"),
        (QWEN3_NEXT | {"layer_types": ["sliding_attention"] * 48}, "layer_types", "sliding"),
        (QWEN3_NEXT | {"attn_output_gate": False}, "attn_output_gate", "whatever"),
        (QWEN3_5 | {"mlp_only_layers": [0]}, "mlp_only_layers", "every layer"),
        (QWEN3_5 | {"decoder_sparse_step": 2}, "decoder_sparse_step", "every layer"),
        (QWEN3_5 | {"norm_topk_prob": False}, "norm_topk_prob", "normalizes"),
        (NEMOTRON_3_NANO | {"n_shared_experts": 2}, "n_shared_experts", "disagree"),
        (NEMOTRON_3_NANO | {"mlp_bias": True}, "mlp_bias", "shared expert"),
        (NEMOTRON_3_NANO | {"norm_topk_prob": False}, "norm_topk_prob", "normalized"),
        (NEMOTRON_H_8B | {"mamba_proj_bias": True}, "mamba_proj_bias", "biases"),
        (NEMOTRON_H_8B | {"use_bias": True}, "use_bias", "biases"),
        (NEMOTRON_H_8B | {"use_conv_bias": False}, "use_conv_bias", "convolution"),
        (NEMOTRON_H_8B | {"attention_bias": True}, "attention_bias", "disagree"),
        (NEMOTRON_H_8B | {"tie_word_embeddings": True}, "tie_word_embeddings", "disagree"),
        (NEMOTRON_H_8B | {"mamba_n_groups": 4}, "mamba_n_groups", "structure"),
        (NEMOTRON_H_8B | {"mlp_hidden_act": "xielu"}, "mlp_hidden_act", "xielu"),
        (
            NEMOTRON_H_8B | {"hybrid_override_pattern": "MX"},
            "hybrid_override_pattern",
            "unsupported",
        ),
        (NEMOTRON_H_8B | {"layers_block_type": ["moa"]}, "layers_block_type", "unsupported"),
    ],
)
def test_an_unsupported_hybrid_is_rejected_with_the_reason(config, key, words):
    errors = [n for n in model_spec_from_config(config, "x").notes if n.code == "K02"]
    assert any(note.key == key and words in note.message for note in errors), errors


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ({"layers_block_type": "MEM"}, "layers_block_type"),
        ({"num_hidden_layers": 51}, "num_hidden_layers"),
    ],
)
def test_an_empty_or_inconsistent_pattern_is_an_error(changes, key):
    reading = model_spec_from_config(NEMOTRON_H_8B | changes, "x")
    assert ("K03", key) in {(note.code, note.key) for note in reading.notes}


def test_invalid_letters_are_rejected_with_the_valid_ones() -> None:
    changes = {"hybrid_override_pattern": "MX" * 26, "num_hidden_layers": 52}
    (note,) = model_spec_from_config(NEMOTRON_H_8B | changes, "x").notes
    assert (note.code, note.help) == ("K02", "valid values: M, *, -, E")


JUNK = [None, True, 0, -1, 1.5, "x", [], {}, [None], [["M"]], float("nan"), 10**400]


@pytest.mark.parametrize("name", sorted(HYBRIDS))
def test_no_value_of_any_key_of_a_hybrid_ends_in_a_traceback(name, tmp_path):
    config = HYBRIDS[name]
    for key in sorted({*config, "layer_types", "layers_block_type", "n_group", "chunk_size"}):
        for junk in JUNK:
            reading = model_spec_from_config(config | {key: junk}, "x")
            assert reading.failed or reading.mapping["layers"] > 0
