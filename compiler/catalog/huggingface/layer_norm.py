"""Decoders with LayerNorm, or with attention and MLP side by side: StarCoder, Falcon, Cohere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.compiler.catalog.huggingface.attention import grouped_heads, window
from parc.compiler.catalog.huggingface.keys import Keys
from parc.compiler.catalog.huggingface.parts import ACTIVATIONS, biased, layer_norm
from parc.compiler.catalog.huggingface.rope import rope_position


def _plain(keys: Keys, epsilon: str, *, bias: bool, mlp_bias: bool) -> dict[str, Any]:
    """LayerNorm, an MLP without a gate, grouped queries."""
    return (
        layer_norm(keys, epsilon)
        | grouped_heads(keys)
        | biased(keys, queries=bias)
        | {
            "mlp_bias": mlp_bias,
            "hidden": keys.size("hidden_size"),
            "ffn": keys.size("intermediate_size"),
            "activation": keys.word("hidden_act", ACTIVATIONS),
        }
    )


def _starcoder2(keys: Keys, family: str) -> dict[str, Any]:
    for key, known in (("mlp_type", "default"), ("norm_type", "layer_norm")):
        keys.wants(key, known)
    bias = keys.flag("use_bias")
    base = _plain(keys, "norm_epsilon", bias=bias, mlp_bias=bias)
    return base | window(keys) | {"position": rope_position(keys)}


def _switched(keys: Keys, epsilon: str) -> dict[str, Any]:
    """Biases of attention and of the MLP have a switch each."""
    return _plain(keys, epsilon, bias=keys.flag("attention_bias"), mlp_bias=keys.flag("mlp_bias"))


def _nemotron(keys: Keys, family: str) -> dict[str, Any]:
    position = rope_position(keys, percent="partial_rotary_factor")
    return _switched(keys, "norm_eps") | {"position": position}


def _jais2(keys: Keys, family: str) -> dict[str, Any]:
    return _switched(keys, "layer_norm_eps") | {"position": rope_position(keys)}


def _persimmon(keys: Keys, family: str) -> dict[str, Any]:
    keys.read.add("num_key_value_heads")  # it has as many as heads
    base = _plain(keys, "layer_norm_eps", bias=True, mlp_bias=True)
    base.pop("kv_heads", None)
    norm = "head" if keys.flag("qk_layernorm") else "none"
    return base | {
        "qk_norm": norm,
        "position": rope_position(keys, percent="partial_rotary_factor"),
    }


def _stablelm(keys: Keys, family: str) -> dict[str, Any]:
    """LayerNorm around a gated MLP; the norms of StableLM 2 12B, one a head, have no field."""
    keys.wants("qk_layernorm", False)
    keys.wants("use_parallel_residual", False)
    base = _plain(keys, "layer_norm_eps", bias=keys.flag("use_qkv_bias"), mlp_bias=False)
    position = rope_position(keys, percent="partial_rotary_factor")
    return base | {"gated": True, "attention_output_bias": False, "position": position}


def _gpt2(keys: Keys, family: str) -> dict[str, Any]:
    hidden = keys.size("n_embd")
    return (
        layer_norm(keys, "layer_norm_epsilon")
        | biased(keys, queries=True)
        | {
            "hidden": hidden,
            "ffn": keys.size_or_none("n_inner") or 4 * hidden,
            "heads": keys.size("n_head"),
            "activation": keys.word("activation_function", ACTIVATIONS),
            "position": {"kind": "learned", "max_positions": keys.size("n_positions")},
        }
    )


def _gpt_bigcode(keys: Keys, family: str) -> dict[str, Any]:
    base = _gpt2(keys, family)
    return base | {"kv_heads": 1 if keys.flag("multi_query") else base["heads"]}


def _falcon(keys: Keys, family: str) -> dict[str, Any]:
    """Falcon: 40B has two norms a layer and grouped queries, 7B one norm and one key-value head."""
    keys.wants("alibi", False)
    hidden = keys.size("hidden_size")
    bias = keys.flag("bias")
    return (
        layer_norm(keys, "layer_norm_epsilon")
        | biased(keys, queries=bias)
        | _falcon_block(keys)
        | {
            "mlp_bias": bias,
            "hidden": hidden,
            "ffn": keys.size_or_none("ffn_hidden_size") or 4 * hidden,
            "activation": keys.word("activation", ACTIVATIONS),
            "position": rope_position(keys),
        }
    )


def _falcon_block(keys: Keys) -> dict[str, Any]:
    """Heads and norms of the three forms: new, side by side, one after the other."""
    heads = keys.size("num_attention_heads")
    grouped = keys.size_or_none("num_kv_heads") or heads
    norms = keys.size_or_none("num_ln_in_parallel_attn")
    multi, parallel = keys.flag("multi_query"), keys.flag("parallel_attn")
    if keys.flag("new_decoder_architecture"):
        two = not parallel or norms in (None, 2)
        return {"heads": heads, "kv_heads": grouped, "norms_per_layer": 2 if two else 1}
    found: dict[str, Any] = {"heads": heads, "kv_heads": 1 if multi else heads}
    if parallel:
        return found | {"norms_per_layer": 2 if norms == 2 else 1}
    return found | {"norms_per_layer": 2, "family": "falcon-serial"}


def _cohere(keys: Keys, family: str) -> dict[str, Any]:
    """Command R: one norm before both sub-layers, without bias, so counted as an RMSNorm."""
    keys.read |= COHERE
    for key in ("use_embedding_sharing", "use_gated_activation", "use_parallel_block"):
        keys.wants(key, True)
    base = {
        "hidden": keys.size("hidden_size"),
        "ffn": keys.size("intermediate_size"),
        "vocab": keys.size("vocab_size"),
        "activation": keys.word("hidden_act", ACTIVATIONS),
        "norm_epsilon": keys.number("layer_norm_eps"),
        "norms_per_layer": 1,
        "tied_embeddings": keys.flag("tie_word_embeddings"),
    }
    base |= grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    base |= {"qk_norm": "full" if keys.flag("use_qk_norm") else "none"}
    return base | (window(keys) if family == "cohere2" else {}) | {"position": rope_position(keys)}


COHERE = frozenset(
    {"layer_switch", "logit_scale", "order_of_interleaved_layers", "position_embedding_type"}
    | {"rotary_pct", "use_parallel_embedding"}
)
"""Keys of Cohere's configs that say what its class does anyway, or what K06 says."""

LAYER_NORM: dict[str, Callable[[Keys, str], dict[str, Any]]] = {
    "cohere": _cohere,
    "cohere2": _cohere,
    "falcon": _falcon,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "jais2": _jais2,
    "nemotron": _nemotron,
    "persimmon": _persimmon,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
