"""Parts that readers of Hugging Face configs share: the MLP, biases, norms, layers that route."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.huggingface.attention import grouped_heads
from parc.compiler.catalog.huggingface.keys import Keys
from parc.compiler.catalog.huggingface.rope import rope_position

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Activation of transformers -> activation of the spec."""


def gated(keys: Keys, activation: str = "hidden_act") -> dict[str, Any]:
    """What most decoders since Llama share: RMSNorm and a gated MLP."""
    return {
        "hidden": keys.size("hidden_size"),
        "ffn": keys.size("intermediate_size"),
        "vocab": keys.size("vocab_size"),
        "activation": keys.word(activation, ACTIVATIONS),
        "norm_epsilon": keys.number("rms_norm_eps"),
        "tied_embeddings": keys.flag("tie_word_embeddings"),
    }


def biased(keys: Keys, *, queries: bool, output: bool | None = None) -> dict[str, Any]:
    """Attention biases; the output has one where the queries have."""
    return {"qkv_bias": queries, "attention_output_bias": queries if output is None else output}


def switched(keys: Keys, *, output: bool = True, percent: str = "") -> dict[str, Any]:
    """Llama, its attention biases switched by ``attention_bias``.

    ``output``: the switch counts for the output as well; ``percent``: key of the rotated share.
    """
    queries = keys.flag("attention_bias")
    base = gated(keys) | grouped_heads(keys)
    base |= biased(keys, queries=queries, output=queries and output)
    return base | {"position": rope_position(keys, percent=percent)}


def layer_norm(keys: Keys, epsilon: str) -> dict[str, Any]:
    """LayerNorm and a plain MLP with biases everywhere."""
    return {
        "norm": "layernorm",
        "norm_epsilon": keys.number(epsilon),
        "gated": False,
        "mlp_bias": True,
        "vocab": keys.size("vocab_size"),
        "tied_embeddings": keys.flag("tie_word_embeddings"),
    }


def routed(base: dict[str, Any], experts: dict[str, Any]) -> dict[str, Any]:
    """``base`` with experts; the dense width stays only where a layer is dense."""
    if experts.get("first_dense_layers", 0) == 0 and experts.get("every", 1) == 1:
        base = base | {"ffn": 0}
    return base | {"experts": experts}
