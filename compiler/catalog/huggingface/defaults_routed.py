"""Defaults of the transformers config classes of decoders with experts (hf_routed).

Source: transformers 5.23.0, models/*/configuration_*.py; Ling: the configuration beside its
checkpoint.
"""

from __future__ import annotations

from parc.compiler.catalog.huggingface.defaults_dense import (
    ERNIE,
    EXAONE,
    HUNYUAN,
    LLAMA,
    OLMO,
    QWEN3_VL,
    Defaults,
)

_SIGMOID: Defaults = {
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
    "aux_loss_alpha": 0.0,
    "first_k_dense_replace": 0,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "num_experts_per_tok": 8,
}
_GLM_MOE: Defaults = (
    LLAMA
    | _SIGMOID
    | {
        "vocab_size": 151552,
        "intermediate_size": 10944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 1,
        "n_routed_experts": 128,
        "first_k_dense_replace": 1,
    }
)
_GRANITE_MOE: Defaults = LLAMA | {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.001,
}

ROUTED: dict[str, Defaults] = {
    "bailing_moe": LLAMA
    | _SIGMOID
    | {
        "vocab_size": 30592,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "max_position_embeddings": 16384,
        "num_experts": 16,
        "num_shared_experts": 0,
        "score_function": "softmax",
        "use_qkv_bias": False,
        "use_qk_norm": False,
        "partial_rotary_factor": 1.0,
        "n_group": None,
        "topk_group": None,
    },
    "dbrx": {
        "d_model": 2048,
        "n_heads": 16,
        "n_layers": 24,
        "max_seq_len": 2048,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    "dots1": LLAMA
    | _SIGMOID
    | {
        "vocab_size": 152064,
        "hidden_size": 4608,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 62,
        "num_key_value_heads": 32,
        "num_experts_per_tok": None,
        "norm_topk_prob": False,
        "use_sliding_window": True,
        "sliding_window": 4096,
        "max_window_layers": 62,
    },
    "ernie4_5_moe": ERNIE
    | {
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 1536,
        "moe_k": 6,
        "moe_num_experts": 64,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_interval": 1,
        "router_aux_loss_coef": 0.001,
    },
    "exaone_moe": EXAONE
    | _SIGMOID
    | {
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1024,
        "num_experts": 64,
        "num_shared_experts": 1,
        "routed_scaling_factor": 2.5,
    },
    "flex_olmo": OLMO
    | {
        "vocab_size": 100352,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "num_experts": 7,
        "num_experts_per_tok": 5,
        "norm_topk_prob": False,
        "router_aux_loss_coef": 0.01,
    },
    "glm4_moe": _GLM_MOE | {"use_qk_norm": False},
    "glm4_moe_lite": _SIGMOID
    | {
        "vocab_size": 154880,
        "hidden_size": 2048,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "n_shared_experts": 1,
        "n_routed_experts": 64,
        "routed_scaling_factor": 1.8,
        "kv_lora_rank": 512,
        "q_lora_rank": 768,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "qk_nope_head_dim": 192,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 202752,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
    "glm4v_moe_text": _GLM_MOE
    | {"vocab_size": 151424, "max_position_embeddings": 65536, "attention_bias": True},
    "granitemoe": _GRANITE_MOE,
    "granitemoehybrid": _GRANITE_MOE | {"shared_intermediate_size": 1024},
    "granitemoeshared": _GRANITE_MOE | {"shared_intermediate_size": 0},
    "hunyuan_v1_moe": HUNYUAN | {"num_experts": 1, "moe_topk": 1, "num_shared_expert": 1},
    "hy_v3": LLAMA
    | _SIGMOID
    | {
        "vocab_size": 120832,
        "intermediate_size": 13312,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 11158840.0,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1536,
        "num_experts": 192,
        "num_shared_experts": 1,
        "router_scaling_factor": 2.826,
    },
    "llama4_text": LLAMA
    | {
        "vocab_size": 202048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "num_experts_per_tok": 1,
        "num_local_experts": 16,
        "interleave_moe_layer_step": 1,
        "router_aux_loss_coef": 0.001,
    },
    "minimax_m2": LLAMA
    | {
        "vocab_size": 200064,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 196608,
        "rope_theta": 5000000.0,
        "num_experts_per_tok": 8,
        "num_local_experts": 256,
        "router_aux_loss_coef": 0.001,
        "use_routing_bias": True,
    },
    "olmoe": OLMO
    | {
        "hidden_size": 2048,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
        "router_aux_loss_coef": 0.01,
    },
    "qwen3_vl_moe_text": QWEN3_VL
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": None,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "moe_intermediate_size": 1408,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "router_aux_loss_coef": 0.001,
    },
    "solar_open": LLAMA
    | _SIGMOID
    | {
        "vocab_size": 196608,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "moe_intermediate_size": 1280,
        "n_shared_experts": 1,
        "n_routed_experts": 128,
    },
}
"""model_type -> key -> default."""

ROUTED["bailing_moe_v2"] = ROUTED["bailing_moe"]
