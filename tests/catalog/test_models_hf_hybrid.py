"""Configs of Qwen3-Next, Qwen3.5 and Nemotron-H become hybrid models."""

import json
from dataclasses import replace

import pytest

from parc.compiler.catalog.huggingface.config import model_spec_from_config
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
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
