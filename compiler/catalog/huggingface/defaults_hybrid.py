"""Defaults of the transformers classes whose layers differ in what mixes tokens.

Source: transformers 5.23.0, models/{qwen3_next,qwen3_5,qwen3_5_moe,nemotron_h}/configuration_*.py.
"""

from __future__ import annotations

from typing import Any

_DELTA_NET: dict[str, Any] = {
    "attention_bias": False,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 32768,
    "num_attention_heads": 16,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 248320,
}
_NEXT = _DELTA_NET | {
    "decoder_sparse_step": 1,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "norm_topk_prob": True,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 512,
    "vocab_size": 151936,
}

HYBRID: dict[str, dict[str, Any]] = {
    "qwen3_next": _NEXT,
    # Every layer routes, so that the class has no dense width; the one here is not used.
    "qwen3_5_moe_text": _NEXT
    | {
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 40,
        "vocab_size": 248320,
    },
    "qwen3_5_text": _DELTA_NET
    | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "num_key_value_heads": 4,
    },
    "nemotron_h": {
        "attention_bias": False,
        "chunk_size": 128,
        "conv_kernel": 4,
        "hidden_size": 4096,
        "intermediate_size": 21504,
        "layer_norm_epsilon": 1e-5,
        "mamba_head_dim": 64,
        "mamba_hidden_act": "silu",
        "mamba_num_heads": 128,
        "mamba_proj_bias": False,
        "max_position_embeddings": 4096,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 7688,
        "moe_shared_expert_intermediate_size": 7688,
        "n_group": 1,
        "n_groups": 8,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 32,
        "num_experts_per_tok": 2,
        "num_key_value_heads": 8,
        "residual_in_fp32": False,
        "routed_scaling_factor": 1.0,
        "ssm_state_size": 128,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "vocab_size": 131072,
    },
}
"""model_type -> key -> default."""
