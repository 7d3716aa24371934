"""Dense decoders with RMSNorm beside Llama's line: GLM, OLMo, Granite, Seed, ERNIE, EXAONE, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.compiler.catalog.huggingface.attention import grouped_heads, window
from parc.compiler.catalog.huggingface.keys import Keys
from parc.compiler.catalog.huggingface.parts import biased, gated, switched
from parc.compiler.catalog.huggingface.rope import alpha_position, rope_position


def _glm(keys: Keys, family: str) -> dict[str, Any]:
    """GLM-4: biases on queries, keys and values; GLM-4-0414 norms what sub-layers give as well."""
    if family == "glm4v_text":
        keys.wants("attention_bias", True)
    base = switched(keys, output=False, percent="partial_rotary_factor")
    return base if family == "glm" else base | {"norms_per_layer": 4}


def _olmo(keys: Keys, family: str) -> dict[str, Any]:
    """OLMo 2 and 3: a norm behind each sub-layer, and one over all heads of queries and keys."""
    base = switched(keys) | {"qk_norm": "full"}
    return base | window(keys) if family == "olmo3" else base


def _granite(keys: Keys, family: str) -> dict[str, Any]:
    keys.read |= MULTIPLIERS
    return switched(keys) | {"mlp_bias": keys.flag("mlp_bias")}


def _smollm3(keys: Keys, family: str) -> dict[str, Any]:
    """Llama, but every fourth layer has no positions."""
    keys.read |= {"no_rope_layers", "no_rope_layer_interval", "max_window_layers"}
    keys.wants("use_sliding_window", False)
    return switched(keys) | {"mlp_bias": keys.flag("mlp_bias")}


def _seed_oss(keys: Keys, family: str) -> dict[str, Any]:
    base = switched(keys) | {"attention_output_bias": keys.flag("attention_out_bias")}
    return base | {"mlp_bias": keys.flag("mlp_bias")}


def _ernie(keys: Keys, family: str) -> dict[str, Any]:
    bias = keys.flag("use_bias")
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=bias)
    return base | {"mlp_bias": bias, "position": rope_position(keys)}


def hunyuan(keys: Keys, family: str) -> dict[str, Any]:
    """Hunyuan V1: norms of queries and keys by head; some keys are switches of older code."""
    for key, known in (("use_qk_norm", True), ("use_rotary_pos_emb", True), ("norm_type", "rms")):
        keys.wants(key, known)
    for key in ("mlp_bias", "use_cla", "add_classification_head"):
        keys.wants(key, False)
    keys.read |= {"attention_head_dim", "cla_share_factor", "class_num", "dense_list", "pool_type"}
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    head_dim = base.get("head_dim") or base["hidden"] // base["heads"]
    return base | {"qk_norm": "head", "position": alpha_position(keys, head_dim)}


def _exaone4(keys: Keys, family: str) -> dict[str, Any]:
    """A norm behind each sub-layer, by head on queries and keys; full layers without positions."""
    base = gated(keys) | grouped_heads(keys) | window(keys)
    return base | {"qk_norm": "head", "position": rope_position(keys)}


def _arcee(keys: Keys, family: str) -> dict[str, Any]:
    """Llama with a plain MLP, its activation squared ReLU."""
    return switched(keys) | {"gated": False, "mlp_bias": keys.flag("mlp_bias")}


def _helium(keys: Keys, family: str) -> dict[str, Any]:
    base = switched(keys, output=False) | {"mlp_bias": keys.flag("mlp_bias")}
    width = base["heads"] * base.get("head_dim", 0)
    if width and width != base["hidden"]:
        told = f"heads x head_dim is {width}, and the output projection takes {base['hidden']}"
        keys.note("K03", "head_dim", told)
    return base


def _ministral(keys: Keys, family: str) -> dict[str, Any]:
    return gated(keys) | grouped_heads(keys) | window(keys) | {"position": rope_position(keys)}


MULTIPLIERS = frozenset(
    {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"}
)
"""Granite scales what layers add, embeddings, attention and logits; K06 says so."""

DENSE: dict[str, Callable[[Keys, str], dict[str, Any]]] = {
    "arcee": _arcee,
    "ernie4_5": _ernie,
    "exaone4": _exaone4,
    "glm": _glm,
    "glm4": _glm,
    "glm4v_text": _glm,
    "granite": _granite,
    "helium": _helium,
    "hunyuan_v1_dense": hunyuan,
    "ministral": _ministral,
    "ministral3": _ministral,
    "olmo2": _olmo,
    "olmo3": _olmo,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
}
