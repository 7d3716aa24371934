"""Defaults of the transformers config classes, for keys that a config.json leaves out.

Source: transformers 4.57.1, models/*/configuration_*.py. An absent or None ``head_dim`` means
hidden_size / num_attention_heads, an absent or None ``num_key_value_heads`` means as many as heads.
"""

from __future__ import annotations

from parc.compiler.catalog.huggingface.defaults_dense import DENSE, Defaults
from parc.compiler.catalog.huggingface.defaults_hybrid import HYBRID
from parc.compiler.catalog.huggingface.defaults_layer_norm import LAYER_NORM
from parc.compiler.catalog.huggingface.defaults_routed import ROUTED

_DECODER: Defaults = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_QWEN2: Defaults = _DECODER | {
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "vocab_size": 151936,
}
_ROUTED: Defaults = {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": False}
_GEMMA: Defaults = _DECODER | {
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "vocab_size": 256000,
}
_DEEPSEEK_V3: Defaults = _DECODER | {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "aux_loss_alpha": 0.0,
    "max_position_embeddings": 4096,
    "vocab_size": 129280,
}

DEFAULTS: dict[str, Defaults] = {
    "llama": _DECODER
    | {"intermediate_size": 11008, "max_position_embeddings": 2048, "vocab_size": 32000},
    "mistral": _DECODER
    | {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "vocab_size": 32000,
    },
    "mixtral": _DECODER
    | {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "router_aux_loss_coef": 0.001,
        "vocab_size": 32000,
    },
    "qwen2": _QWEN2,
    "qwen3": _QWEN2 | {"head_dim": 128},
    "qwen2_moe": _QWEN2
    | _ROUTED
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "moe_intermediate_size": 1408,
        "num_attention_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 16,
        "qkv_bias": True,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen3_moe": _QWEN2
    | _ROUTED
    | {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "router_aux_loss_coef": 0.001,
    },
    "deepseek_v2": _DEEPSEEK_V3
    | {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "moe_intermediate_size": 1407,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "n_shared_experts": 2,
        "n_routed_experts": 64,
        "routed_scaling_factor": 1.0,
        "n_group": None,
        "topk_group": None,
        "num_experts_per_tok": None,
        "first_k_dense_replace": 0,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "aux_loss_alpha": 0.001,
        "max_position_embeddings": 2048,
        "vocab_size": 32000,
    },
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gemma": _GEMMA
    | {
        "hidden_size": 3072,
        "intermediate_size": 24576,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 16,
    },
    "gemma2": _GEMMA
    | {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
    },
    "gemma3_text": _GEMMA
    | {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
        "rope_theta": 1e6,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
    },
    "gpt_oss": _DECODER
    | {
        "attention_bias": True,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        },
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "sliding_window_pattern": 2,
        "vocab_size": 201088,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "tie_word_embeddings": True,
        "vocab_size": 50257,
    },
    "gpt_neox": {
        "attention_bias": True,
        "hidden_act": "gelu",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "tie_word_embeddings": False,
        "use_parallel_residual": True,
        "vocab_size": 50432,
    },
    "phi": _DECODER
    | {
        "hidden_act": "gelu_new",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        "num_hidden_layers": 24,
        "partial_rotary_factor": 0.5,
        "qk_layernorm": False,
        "vocab_size": 51200,
    },
    "phi3": _DECODER
    | {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 4096,
        "partial_rotary_factor": 1.0,
        "rms_norm_eps": 1e-5,
        "vocab_size": 32064,
    },
    **DENSE,
    **HYBRID,
    **LAYER_NORM,
    **ROUTED,
}
"""model_type -> key -> default."""
