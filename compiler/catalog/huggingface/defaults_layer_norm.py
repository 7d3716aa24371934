"""Defaults of the transformers config classes of decoders with LayerNorm (hf_layer_norm).

Source: transformers 5.23.0, models/*/configuration_*.py.
"""

from __future__ import annotations

from parc.compiler.catalog.huggingface.defaults_dense import LLAMA, Defaults

_COHERE: Defaults = LLAMA | {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}

LAYER_NORM: dict[str, Defaults] = {
    "cohere": _COHERE | {"rope_theta": 500000.0, "use_qk_norm": False},
    "cohere2": _COHERE | {"sliding_window": 4096, "sliding_window_pattern": 4},
    "falcon": {
        "vocab_size": 65024,
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "layer_norm_epsilon": 1e-5,
        "multi_query": True,
        "parallel_attn": True,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "activation": "gelu",
        "tie_word_embeddings": True,
    },
    "gpt_bigcode": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_pytorch_tanh",
        "layer_norm_epsilon": 1e-5,
        "multi_query": True,
        "tie_word_embeddings": True,
    },
    "jais2": LLAMA
    | {
        "vocab_size": 150272,
        "hidden_size": 3328,
        "intermediate_size": 26624,
        "num_attention_heads": 26,
        "head_dim": 128,
        "hidden_act": "relu2",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "nemotron": LLAMA
    | {
        "vocab_size": 256000,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_attention_heads": 48,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
    },
    "persimmon": LLAMA
    | {
        "vocab_size": 262144,
        "intermediate_size": 16384,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "hidden_act": "relu2",
        "max_position_embeddings": 16384,
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "qk_layernorm": True,
    },
    "stablelm": LLAMA
    | {
        "vocab_size": 50304,
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.25,
        "use_qkv_bias": False,
    },
    "starcoder2": LLAMA
    | {
        "vocab_size": 49152,
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "norm_epsilon": 1e-5,
        "use_bias": True,
        "tie_word_embeddings": True,
    },
}
"""model_type -> key -> default."""
