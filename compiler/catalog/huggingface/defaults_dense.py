"""Defaults of the transformers config classes of dense decoders with RMSNorm (hf_dense).

Source: transformers 5.23.0, models/*/configuration_*.py; MiMo: the configuration beside its
checkpoint. What a class takes from its base or works out itself stands here as well.
"""

from __future__ import annotations

from typing import Any

Defaults = dict[str, Any]

LLAMA: Defaults = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_GLM: Defaults = LLAMA | {
    "vocab_size": 151552,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1.5625e-07,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
}
OLMO: Defaults = LLAMA | {"vocab_size": 50304, "rms_norm_eps": 1e-5}
ERNIE: Defaults = LLAMA | {
    "vocab_size": 103424,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "use_bias": False,
}
HUNYUAN: Defaults = LLAMA | {"vocab_size": 290943, "rms_norm_eps": 1e-5}
EXAONE: Defaults = LLAMA | {
    "vocab_size": 102400,
    "intermediate_size": 16384,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}
_QWEN_VL: Defaults = LLAMA | {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 80,
}
QWEN3_VL: Defaults = LLAMA | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 128000,
    "rope_theta": 500000.0,
    "use_sliding_window": False,
}

DENSE: dict[str, Defaults] = {
    "arcee": LLAMA
    | {
        "hidden_size": 2560,
        "intermediate_size": 18432,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
    "ernie4_5": ERNIE
    | {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
    },
    "exaone4": EXAONE,
    "glm": _GLM,
    "glm4": _GLM,
    "glm4v_text": _GLM
    | {
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 1.0,
        "head_dim": None,
    },
    "granite": LLAMA,
    "helium": LLAMA
    | {
        "vocab_size": 48000,
        "hidden_size": 2560,
        "intermediate_size": 7040,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-8,
        "rope_theta": 100000.0,
    },
    "hunyuan_v1_dense": HUNYUAN,
    "mimo": LLAMA
    | {
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "vocab_size": 151936,
        "attention_bias": True,
    },
    "ministral": LLAMA
    | {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "ministral3": LLAMA
    | {
        "vocab_size": 131072,
        "intermediate_size": 14336,
        "num_hidden_layers": 34,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "olmo2": OLMO,
    "olmo3": OLMO | {"rope_theta": 500000.0, "sliding_window": 4096, "sliding_window_pattern": 4},
    "qwen2_5_vl_text": _QWEN_VL,
    "qwen2_vl_text": _QWEN_VL,
    "qwen3_vl_text": QWEN3_VL,
    "seed_oss": LLAMA
    | {
        "vocab_size": 155136,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 80,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 524288,
        "attention_bias": True,
        "attention_out_bias": False,
    },
    "smollm3": LLAMA
    | {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2000000.0,
        "tie_word_embeddings": True,
    },
    "vaultgemma": LLAMA
    | {
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
    },
}
"""model_type -> key -> default."""
