"""Model families have the parameters of transformers, with each of their switches both ways."""

import json
from pathlib import Path

import pytest

from parc.compiler.catalog.huggingface.config import model_spec_from_config
from parc.compiler.catalog.huggingface.family_files import shipped_families
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.resolve.resolve_model import resolve_model
from tests.catalog.family_counts import counted_configs

ROOT = Path(__file__).parents[2]
COUNTED = counted_configs()
FAMILIES = shipped_families()
PACKAGE = ROOT / "compiler/catalog/huggingface"
REFUSED = parse_table((PACKAGE / "refused_families.yaml").read_text("utf-8"))
OTHERWISE = {
    *("bailing_moe", "bailing_moe_v2", "deci", "kimi_k2", "mimo", "nemotron-nas"),
    *("chatglm", "exaone", "internlm2", "minimax_m1", "minimax_text_01", "deepseek"),
}
"""Families without a class in transformers."""


class OneFile(Library):
    """Library whose only user file is one config."""

    def __init__(self, config):
        super().__init__()
        self._config = config

    def text(self, path, limit_bytes=0):
        return json.dumps(self._config)


def resolved(config, part=""):
    sink = Sink()
    return resolve_model(f"./config.json{part}", OneFile(config), sink), sink


@pytest.mark.parametrize("family", sorted({config["model_type"] for config, _ in COUNTED}))
def test_a_family_has_the_parameters_that_transformers_counts(family):
    for config, count in COUNTED:
        if config["model_type"] == family:
            model, sink = resolved(config)
            assert model is not None, (config, sink.diagnostics)
            assert params.total_params(model) == count, config
            codes = {found.code for found in sink.diagnostics}
            assert codes <= {"PARC-K06"}, sink.diagnostics
            assert ("PARC-K06" in codes) == (FAMILIES.unsupported_parts(model.family) != "")


def test_every_family_that_is_read_is_counted():
    assert {*FAMILIES.names()} == {config["model_type"] for config, _ in COUNTED} | OTHERWISE
    assert not {*FAMILIES.names()} & REFUSED.keys()


def test_an_unknown_key_in_a_nested_mapping_is_reported():
    _, sink = resolved({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 8, "odd": 1}})
    assert {found.code for found in sink.diagnostics} == {"PARC-K05", "PARC-K06"}


def test_the_page_names_every_family_that_is_read():
    page = (ROOT / "docs" / "import.md").read_text("utf-8")
    assert not [family for family in FAMILIES.names() if f"`{family}`" not in page]


LING_LITE = {  # inclusionAI/Ling-lite-1.5; its page says 16.8 B, 2.75 B of them active
    "model_type": "bailing_moe",
    "first_k_dense_replace": 0,
    "hidden_size": 2048,
    "intermediate_size": 1408,
    "max_position_embeddings": 32768,
    "moe_intermediate_size": 1408,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "num_shared_experts": 2,
    "rope_theta": 600000,
    "use_bias": False,
    "use_qkv_bias": False,
    "norm_head": False,
    "vocab_size": 126464,
}


def test_ling_has_two_shared_experts():
    model, _ = resolved(LING_LITE)
    assert params.total_params(model) == pytest.approx(16.8e9, rel=0.005)
    assert (model.ffn.size, model.experts.shared_size) == (0, 2816)
    assert model.experts.score_function == "softmax"


def test_ling_2_has_qk_norms_and_a_load_balancing_bias():
    more = {"score_function": "sigmoid", "moe_router_enable_expert_bias": True}
    norms = {"use_qk_norm": True, "use_rmsnorm": True, "partial_rotary_factor": 0.5}
    model, sink = resolved(LING_LITE | more | norms | {"n_group": 8, "topk_group": 4})
    assert sink.diagnostics == ()
    assert (model.attention.qk_norm, model.position.percent) == ("head", 0.5)
    assert (model.experts.router_bias, model.experts.groups) == ("buffer", 8)
    older, _ = resolved(LING_LITE)
    assert params.total_params(model) - params.total_params(older) == 28 * 2 * 128


MIMO = {"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008}


def test_mimo_has_the_parameters_of_qwen2_without_token_prediction():
    config = MIMO | {"num_key_value_heads": 8, "num_nextn_predict_layers": 1}
    model, sink = resolved(config)
    qwen2, _ = resolved({**config, "model_type": "qwen2", "num_nextn_predict_layers": 0})
    assert params.total_params(model) == params.total_params(qwen2)
    assert [found.code for found in sink.diagnostics] == ["PARC-K04"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm"),
        ({"model_type": "stablelm", "use_parallel_residual": True}, "use_parallel_residual"),
        ({"model_type": "smollm3", "use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "falcon", "alibi": True}, "alibi"),
        ({"model_type": "olmoe", "clip_qkv": 8.0}, "clip_qkv"),
        ({"model_type": "granitemoehybrid", "mamba_proj_bias": True}, "mamba_proj_bias"),
        ({"model_type": "lfm2_moe", "norm_topk_prob": False}, "not normalized"),
        ({"model_type": "minimax_m2", "attn_type_list": [0, 1]}, "attn_type_list"),
        ({"model_type": "minimax_m2", "use_qk_norm": False}, "use_qk_norm"),
        ({"model_type": "minimax_m2", "scoring_func": "softmax"}, "scoring_func"),
        ({"model_type": "minimax_m2", "shared_intermediate_size": 64}, "shared_inter"),
        ({"model_type": "ernie4_5_moe", "use_bias": True}, "use_bias"),
        ({"model_type": "ernie4_5_moe", "moe_layer_end_index": 5}, "dense layers after that layer"),
        ({"model_type": "hunyuan_v1_moe", "moe_topk": [1, 2]}, "differs between layers"),
        ({"model_type": "hunyuan_v1_moe", "moe_intermediate_size": 64}, "as wide as"),
        ({"model_type": "hunyuan_v1_moe", "num_shared_expert": 2}, "one shared expert"),
        ({"model_type": "hunyuan_v1_dense", "use_cla": True}, "use_cla"),
        ({"model_type": "llama4_text", "moe_layers": [1]}, "moe_layers"),
        ({"model_type": "exaone_moe", "mlp_layer_types": ["sparse"] * 31 + ["dense"]}, "sparse"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LGLG"}, "sliding_window_pattern"),
        ({"model_type": "glm4v_text", "attention_bias": False}, "attention_bias"),
        ({"model_type": "dbrx", "ffn_config": {"ffn_act_fn": {"name": "xielu"}}}, "name"),
        (LING_LITE | {"norm_head": True}, "norm_head"),
        (LING_LITE | {"use_qk_norm": True, "use_rmsnorm": False}, "use_rmsnorm"),
        (
            LING_LITE | {"score_function": "sigmoid"} | {"moe_router_enable_expert_bias": False},
            "moe_router",
        ),
    ],
)
def test_a_switch_whose_parameters_have_no_field_is_rejected(config, words):
    model, sink = resolved(config)
    assert model is None
    assert {found.code for found in sink.diagnostics if found.severity == "error"} == {"PARC-K02"}
    assert any(words in found.finding.message for found in sink.diagnostics)


def test_a_pattern_of_letters_sets_the_period_of_full_attention():
    model, _ = resolved({"model_type": "exaone4", "sliding_window_pattern": "LLLG"})
    assert (model.attention.window, model.attention.full_attention_every) == (4096, 4)


def test_hunyuans_alpha_raises_the_rotary_base():
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    config = {"model_type": "hunyuan_v1_dense", "head_dim": 128, "rope_scaling": scaling}
    model, _ = resolved(config)
    assert model.position.base == pytest.approx(10000.0 * 1000.0 ** (128 / 126))
    assert model.position.scaling == "none"


def test_rotary_dims_become_a_share_of_the_head_dim():
    model, _ = resolved({"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64})
    assert model.position.percent == 0.5


def test_mrope_is_plain_rope_for_text():
    table = {"type": "mrope", "mrope_section": [16, 24, 24]}
    model, sink = resolved({"model_type": "qwen2_5_vl_text", "rope_scaling": table})
    assert (model.position.scaling, sink.diagnostics) == ("none", ())


WRAPPED = {
    "model_type": "qwen3_vl",
    "vision_config": {"hidden_size": 1152},
    "tie_word_embeddings": True,
    "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 4096},
}


def test_the_text_decoder_is_read_if_the_spec_names_its_part():
    model, sink = resolved(WRAPPED, "#text_config")
    assert sink.diagnostics == ()
    assert (model.family, model.tied_embeddings) == ("qwen3_vl_text", True)
    assert model.source == "./config.json#text_config"


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_a_text_decoder_without_a_separate_mapping_is_named_in_the_same_way(family):
    config = {"model_type": family, "hidden_size": 3584, "num_attention_heads": 28}
    config |= {"num_key_value_heads": 4, "vision_config": {"hidden_size": 1280}}
    model, sink = resolved(config, "#text_config")
    assert sink.diagnostics == ()
    assert (model.family, model.hidden) == (f"{family}_text", 3584)
    _, refused = resolved(config)
    assert "#text_config" in refused.diagnostics[0].finding.help


def test_a_decoder_without_model_type_has_the_family_of_the_whole_model():
    # nvidia/MiniMax-M3-NVFP4: transformers takes the class of text_config from minimax_m3_vl.
    inner = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2}
    model, sink = resolved({"model_type": "qwen3_vl", "text_config": inner}, "#text_config")
    assert sink.diagnostics == ()
    assert (model.family, model.hidden) == ("qwen3_vl_text", 512)
    _, refused = resolved({"model_type": "qwen3_vl", "text_config": inner})
    assert "append #text_config" in refused.diagnostics[0].finding.help
    unknown, _ = resolved({"model_type": "brand_new", "text_config": inner}, "#text_config")
    assert unknown is None
    null = {**inner, "model_type": None}
    assert resolved({"model_type": "qwen3_vl", "text_config": null}, "#text_config")[0] is None


@pytest.mark.parametrize(
    ("keys", "reason", "advice"),
    [
        # google/t5gemma-2b-2b-ul2, and any model of this kind that transformers saves
        ({"encoder": {}, "decoder": {}}, "an encoder and a decoder", "decoder-only"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder", "decoder-only"),
        # meta-llama/Llama-3.2-11B-Vision
        ({"cross_attention_layers": [3, 8]}, "attend to another input", "section model"),
        ({"is_encoder_decoder": False, "cross_attention_layers": []}, "", "section model"),
    ],
)
def test_the_keys_of_an_unknown_family_show_why_it_is_not_supported(keys, reason, advice):
    (note,) = model_spec_from_config({"model_type": "brand_new", **keys}, "x").notes
    assert (note.code, note.key) == ("K02", "model_type")
    assert reason in note.message
    assert advice in note.help
    assert (":" in note.message) == bool(reason)
    whole = {"model_type": "wrapper", "text_config": {"model_type": "brand_new", **keys}}
    assert reason in model_spec_from_config(whole, "x").notes[0].help


def test_a_family_with_the_keys_of_another_one_has_its_parameters():
    keys = {"num_hidden_layers": 4, "attn_type_list": [0, 0, 0, 1], "shared_intermediate_size": 0}
    keys |= {"postnorm": True, "rotary_dim": 64, "shared_moe_mode": "sigmoid"}
    published, own = (
        model_spec_from_config({"model_type": name, **keys}, "x")
        for name in ("minimax_text_01", "minimax_m1")
    )
    assert published.mapping == own.mapping | {"family": "minimax_text_01"}
    assert published.notes == own.notes


def test_a_decoder_two_levels_below_is_found():
    # Qwen/Qwen3-Omni-30B-A3B-Instruct
    inner = {"model_type": "qwen3_omni_moe_text", "head_dim": 128, "vocab_size": 152064}
    inner |= {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32}
    thinker = {"model_type": "qwen3_omni_moe_thinker", "text_config": inner}
    config = {"model_type": "qwen3_omni_moe", "thinker_config": thinker, "talker_config": {}}
    _, refused = resolved(config)
    (found,) = refused.diagnostics
    assert "contains several models" in found.finding.message
    assert "config.json#thinker_config.text_config" in found.finding.help
    model, sink = resolved(config, "#thinker_config.text_config")
    assert sink.diagnostics == ()
    assert params.total_params(model) == 30_532_646_912


def test_an_invalid_value_in_a_part_is_shown_in_that_part():
    inner = {**WRAPPED["text_config"], "hidden_size": -1}
    _, sink = resolved(WRAPPED | {"text_config": inner}, "#text_config")
    (found,) = sink.diagnostics
    text = json.dumps(WRAPPED | {"text_config": inner})
    assert text[found.span.column - 1 :].startswith('"hidden_size": -1')


@pytest.mark.parametrize("part", ["#vision", "#tie_word_embeddings", "#text_config.model_type"])
def test_a_missing_part_is_reported_with_the_existing_ones(part):
    model, sink = resolved(WRAPPED, part)
    (found,) = sink.diagnostics
    assert model is None
    assert (found.code, found.span.line) == ("PARC-K02", 1)
    assert "'text_config'" in found.finding.help


def test_a_part_without_a_supported_family_is_explained():
    inners: list[dict[str, str]] = [{}, {"model_type": "qwen4_exp_text"}, {"model_type": "new"}]
    helps = [
        model_spec_from_config({"model_type": "new_vl", "text_config": inner}, "x").notes[0].help
        for inner in inners
    ]
    assert "has no model_type" in helps[0]
    assert REFUSED["qwen4_exp_text"] in helps[1]
    assert "which is not supported" in helps[2]
