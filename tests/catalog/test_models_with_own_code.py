"""Published configs whose class is next to the checkpoint, and rotary scaling without a flag.

Counts, all on the meta device: modeling_internlm2.py and modeling_chatglm.py of the checkpoints;
Phi3ForCausalLM, Qwen2ForCausalLM and MiniMaxForCausalLM of transformers 5.20.2; a copy of the
layers of modeling_exaone.py.
"""

from __future__ import annotations

import pytest

from parc.backends.megatron.rules.inexpressible_positions import inexpressible_positions
from parc.compiler.cost.counts import params
from tests.catalog.test_models_hf_families import resolved
from tests.compiled import resolved as resolved_spec

CONFIGS = {
    "THUDM/chatglm3-6b": (
        {
            "model_type": "chatglm",
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "apply_query_key_layer_scaling": True,
            "apply_residual_connection_post_layernorm": False,
            "attention_dropout": 0.0,
            "attention_softmax_in_fp32": True,
            "bias_dropout_fusion": True,
            "ffn_hidden_size": 13696,
            "fp32_residual_connection": False,
            "hidden_dropout": 0.0,
            "hidden_size": 4096,
            "kv_channels": 128,
            "layernorm_epsilon": 1e-05,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "num_attention_heads": 32,
            "num_layers": 28,
            "original_rope": True,
            "padded_vocab_size": 65024,
            "post_layer_norm": True,
            "rmsnorm": True,
            "seq_length": 8192,
            "tie_word_embeddings": False,
        },
        6243584000,
    ),
    "THUDM/glm-4-9b-chat": (
        {
            "model_type": "chatglm",
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "ffn_hidden_size": 13696,
            "hidden_size": 4096,
            "kv_channels": 128,
            "layernorm_epsilon": 1.5625e-07,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "num_attention_heads": 32,
            "num_hidden_layers": 40,
            "num_layers": 40,
            "rope_ratio": 500,
            "original_rope": True,
            "padded_vocab_size": 151552,
            "vocab_size": 151552,
            "post_layer_norm": True,
            "rmsnorm": True,
            "seq_length": 131072,
            "tie_word_embeddings": False,
        },
        9399951360,
    ),
    "LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct": (
        {
            "model_type": "exaone",
            "activation_function": "silu",
            "hidden_size": 2560,
            "head_dim": 80,
            "intermediate_size": 7168,
            "layer_norm_epsilon": 1e-05,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_layers": 30,
            "rope_theta": 1000000,
            "rope_scaling": {
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "tie_word_embeddings": True,
            "vocab_size": 102400,
        },
        2405327360,
    ),
    "internlm/internlm2-chat-7b": (
        {
            "model_type": "internlm2",
            "vocab_size": 92544,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "bias": False,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-05,
            "rope_theta": 1000000,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
            "tie_word_embeddings": False,
            "attn_implementation": "eager",
        },
        7737708544,
    ),
    # The count is that of the safetensors on the page of the repository.
    "deepseek-ai/deepseek-moe-16b-base": (
        {
            "model_type": "deepseek",
            "attention_bias": False,
            "aux_loss_alpha": 0.001,
            "first_k_dense_replace": 1,
            "hidden_act": "silu",
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "max_position_embeddings": 4096,
            "moe_intermediate_size": 1408,
            "moe_layer_freq": 1,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "num_attention_heads": 16,
            "num_experts_per_tok": 6,
            "num_hidden_layers": 28,
            "num_key_value_heads": 16,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 10000,
            "scoring_func": "softmax",
            "seq_aux": True,
            "tie_word_embeddings": False,
            "vocab_size": 102400,
        },
        16375728128,
    ),
    "MiniMaxAI/MiniMax-M1-80k": (
        {
            "model_type": "minimax_m1",
            "attn_type_list": [*[0] * 7, 1] * 10,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 6144,
            "intermediate_size": 9216,
            "layernorm_full_attention_alpha": 3.55,
            "layernorm_full_attention_beta": 1.0,
            "layernorm_linear_attention_alpha": 3.5,
            "layernorm_linear_attention_beta": 1.0,
            "layernorm_mlp_alpha": 3.5,
            "layernorm_mlp_beta": 1.0,
            "max_position_embeddings": 10240000,
            "num_attention_heads": 64,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 80,
            "num_key_value_heads": 8,
            "num_local_experts": 32,
            "postnorm": True,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000000.0,
            "rotary_dim": 64,
            "router_aux_loss_coef": 0.001,
            "shared_intermediate_size": 0,
            "shared_moe_mode": "sigmoid",
            "sliding_window": None,
            "tie_word_embeddings": False,
            "vocab_size": 200064,
        },
        456089655296,
    ),
    "microsoft/Phi-4-mini-instruct": (
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "max_position_embeddings": 131072,
            "num_attention_heads": 24,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.75,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "long_factor": [1.0] * 48,
                "short_factor": [1.0] * 48,
                "type": "longrope",
            },
            "rope_theta": 10000.0,
            "sliding_window": 262144,
            "tie_word_embeddings": True,
            "vocab_size": 200064,
            "attention_bias": False,
            "mlp_bias": False,
            "interpolate_factor": 1,
            "lm_head_bias": False,
            "full_attn_mod": 1,
            "embd_pdrop": 0.0,
        },
        3836021760,
    ),
    "text part of OpenGVLab/InternVL3-8B": (
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "max_position_embeddings": 32768,
            "num_attention_heads": 28,
            "num_hidden_layers": 28,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06,
            "rope_scaling": {"factor": 2.0, "rope_type": "dynamic", "type": "dynamic"},
            "rope_theta": 1000000.0,
            "sliding_window": None,
            "vocab_size": 151674,
            "tie_word_embeddings": False,
        },
        7612820992,
    ),
}
PHI, INTERN = "microsoft/Phi-4-mini-instruct", "text part of OpenGVLab/InternVL3-8B"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_the_parameters_of_its_class(name: str) -> None:
    config, count = CONFIGS[name]
    model, sink = resolved(config)
    assert model is not None, sink.diagnostics
    assert params.total_params(model) == count
    assert {found.code for found in sink.diagnostics} <= {"PARC-K06"}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"multi_query_attention": False}, "first version"),
        ({"add_bias_linear": True}, "biases in all"),
        ({"rmsnorm": False}, "rmsnorm"),
    ],
)
def test_the_first_chatglm_is_refused(changed: dict[str, bool], word: str) -> None:
    _, sink = resolved(CONFIGS["THUDM/chatglm3-6b"][0] | changed)
    assert [found.code for found in sink.diagnostics if word in found.finding.message] == [
        "PARC-K02"
    ]


def test_the_rotary_base_of_chatglm_is_multiplied_by_its_ratio() -> None:
    model, _ = resolved(CONFIGS["THUDM/glm-4-9b-chat"][0])
    assert (model.position.base, model.position.percent) == (5_000_000, 0.5)


def test_longrope_has_the_length_before_scaling_next_to_its_factors() -> None:
    model, _ = resolved(CONFIGS[PHI][0])
    position = model.position
    assert (position.scaling, position.scaling_factor) == ("longrope", 32)
    assert (position.original_max_positions, position.max_positions) == (4096, 131072)


@pytest.mark.parametrize("name", [PHI, INTERN])
def test_megatron_has_no_flag_for_scaling_of_this_kind(name: str) -> None:
    model, _ = resolved(CONFIGS[name][0])
    found = [code for code, _, finding in inexpressible_positions(model, "0.19")]
    assert found == ["E04"]


@pytest.mark.parametrize(("length", "scaling"), [(4096, "none"), (8192, "dynamic")])
def test_dynamic_scaling_matters_only_beyond_the_context_length(length: int, scaling: str) -> None:
    spec = {
        "model": {
            **{"layers": 4, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 32000},
            "position": {"max_positions": 4096, "scaling": "dynamic", "scaling_factor": 2},
        },
        "cluster": {"node": "hgx-h100", "nodes": 1},
        "job": {"sequence_length": length, "global_batch": 64},
    }
    problem, sink = resolved_spec({"parc": 1, "name": "t", "emit": ["accelerate"], **spec})
    assert problem is not None, sink.diagnostics
    assert problem.model.position.scaling == scaling
