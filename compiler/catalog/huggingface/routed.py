"""Decoders with experts beside those of DeepSeek, Mixtral and Qwen: GLM, MiniMax, ERNIE, Ling."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq
from typing import Any

from parc.compiler.catalog.huggingface.attention import grouped_heads, window
from parc.compiler.catalog.huggingface.dense import MULTIPLIERS, hunyuan
from parc.compiler.catalog.huggingface.experts import (
    bailing_experts,
    deepseek_experts,
    ernie_experts,
    exaone_experts,
    mixtral_experts,
    share,
    softmax_experts,
)
from parc.compiler.catalog.huggingface.keys import Keys
from parc.compiler.catalog.huggingface.parts import ACTIVATIONS, biased, gated, routed, switched
from parc.compiler.catalog.huggingface.rope import rope_position


def _glm4_moe(keys: Keys, family: str) -> dict[str, Any]:
    base = switched(keys, output=False, percent="partial_rotary_factor")
    norm = family != "glm4v_moe_text" and keys.flag("use_qk_norm")
    base |= {"qk_norm": "head" if norm else "none"}
    return routed(base, deepseek_experts(keys, family))


def _dots1(keys: Keys, family: str) -> dict[str, Any]:
    base = switched(keys) | window(keys, switched=True) | {"qk_norm": "head"}
    return routed(base, deepseek_experts(keys, family))


def _solar_open(keys: Keys, family: str) -> dict[str, Any]:
    """Every layer routes: its config has no dense width."""
    keys.read.add("intermediate_size")
    return routed(switched(keys, output=False), deepseek_experts(keys, family))


def _exaone_moe(keys: Keys, family: str) -> dict[str, Any]:
    base = gated(keys) | grouped_heads(keys) | window(keys)
    base |= {"qk_norm": "head", "position": rope_position(keys)}
    return routed(base, exaone_experts(keys))


def _hy_v3(keys: Keys, family: str) -> dict[str, Any]:
    keys.read.add("enable_moe_fp32_combine")
    keys.wants("mlp_bias", False)
    base = switched(keys) | {"qk_norm": "head"}
    return routed(base, exaone_experts(keys, "router_scaling_factor"))


def _minimax_m2(keys: Keys, family: str) -> dict[str, Any]:
    """A norm over all heads of queries and keys; a load-balancing bias, as DeepSeek-V3 has one."""
    keys.read |= MINIMAX
    if keys.raw("attn_type_list") is not None and keys.uniform("attn_type_list", least=0) != 1:
        keys.note("K02", "attn_type_list", "attn_type_list: 0 is linear attention", "all 1")
    for key, known in (("use_qk_norm", True), ("qk_norm_type", "per_layer")):
        keys.wants(key, known)
    keys.wants("shared_intermediate_size", 0)
    keys.wants("scoring_func", "sigmoid")
    bias = "buffer" if keys.flag("use_routing_bias") else "none"
    base = gated(keys) | grouped_heads(keys) | {"qk_norm": "full"}
    base |= {"position": _rotary_dim(keys, base)}
    experts = mixtral_experts(keys, score_function="sigmoid", router_bias=bias)
    return base | {"ffn": 0, "experts": experts}


def _rotary_dim(keys: Keys, base: dict[str, Any]) -> dict[str, Any]:
    """Positions where ``rotary_dim`` says how much of a head is rotated."""
    position = rope_position(keys)
    dims = keys.size_or_none("rotary_dim")
    whole = base.get("head_dim") or base["hidden"] // base["heads"]
    if dims is None or "percent" in position:
        return position
    if dims > whole:
        keys.note("K03", "rotary_dim", f"rotary_dim {dims} is more than the {whole} of a head")
    return position | {"percent": min(dims / max(whole, 1), 1.0)}


def _ernie_moe(keys: Keys, family: str) -> dict[str, Any]:
    keys.read |= ERNIE
    keys.wants("use_bias", False)
    base = gated(keys) | grouped_heads(keys) | {"position": rope_position(keys)}
    return routed(base, ernie_experts(keys))


def _hunyuan_moe(keys: Keys, family: str) -> dict[str, Any]:
    """Experts and the shared expert are as wide as ``intermediate_size``."""
    base = hunyuan(keys, family)
    keys.wants("use_mixed_mlp_moe", True)
    if keys.uniform("num_shared_expert") != 1:
        keys.note("K02", "num_shared_expert", "there is one shared expert in this family", "1")
    if keys.raw("moe_intermediate_size") is not None:
        size = keys.uniform("moe_intermediate_size")
        if size != base["ffn"]:
            told = f"experts of width {size} beside an intermediate_size of {base['ffn']}"
            keys.note("K02", "moe_intermediate_size", told, "equal widths")
    experts = {
        "count": keys.uniform("num_experts"),
        "top_k": keys.uniform("moe_topk"),
        "size": base["ffn"],
        "shared_size": base["ffn"],
    }
    return base | {"ffn": 0, "experts": experts}


def _granite_moe(keys: Keys, family: str) -> dict[str, Any]:
    """Granite 3 with experts; ``granitemoeshared`` has a shared expert as well."""
    keys.read |= MULTIPLIERS
    experts = mixtral_experts(keys)
    if family == "granitemoeshared":
        experts["shared_size"] = keys.size("shared_intermediate_size", least=0)
    return switched(keys) | {"ffn": 0, "experts": experts}


def _granite_hybrid(keys: Keys, family: str) -> dict[str, Any]:
    """Granite 4 where no layer is Mamba; without experts its shared MLP is the only one."""
    keys.read |= MULTIPLIERS | {key for key in keys.config if key.startswith("mamba_")}
    keys.wants("normalization_function", "rmsnorm")
    types, layers = keys.raw("layer_types"), keys.size("num_hidden_layers")
    long = isinstance(types, list) and len(types) == layers
    if not long or any(name not in ("attention", "full_attention") for name in types):
        keys.note("K02", "layer_types", "Mamba layers alternate with attention layers")
    base, shared = switched(keys), keys.size("shared_intermediate_size", least=0)
    if keys.raw("position_embedding_type") != "rope":
        keys.wants("position_embedding_type", "nope")
        kept = {"max_positions": base["position"]["max_positions"]}
        base |= {"position": {"kind": "none", **kept}}
    if keys.size("num_local_experts", least=0) == 0:
        return base | {"ffn": shared}
    return base | {"ffn": 0, "experts": mixtral_experts(keys, shared_size=shared)}


def _olmoe(keys: Keys, family: str) -> dict[str, Any]:
    """OLMoE; FlexOlmo has its norms behind the sub-layers."""
    if keys.raw("clip_qkv") is not None:
        keys.note("K02", "clip_qkv", "clip_qkv: clipped queries, keys and values have no field")
    base = switched(keys) | {"qk_norm": "full", "ffn": 0}
    return base | {"experts": softmax_experts(keys, "intermediate_size")}


def _llama4(keys: Keys, family: str) -> dict[str, Any]:
    """Every n-th layer routes, with a shared expert; the others have ``intermediate_size_mlp``."""
    keys.read |= LLAMA4
    base = switched(keys) | {"ffn": keys.size("intermediate_size_mlp")}
    experts = mixtral_experts(keys, score_function="sigmoid")
    experts |= {"shared_size": experts["size"], "every": keys.size("interleave_moe_layer_step")}
    named, every = keys.raw("moe_layers"), experts["every"]
    expected = range(every - 1, keys.size("num_hidden_layers"), every)
    long = isinstance(named, list) and len(named) == len(expected)
    if named not in (None, []) and not (long and all(map(eq, named, expected))):
        told = f"moe_layers is not every {every}th layer, as interleave_moe_layer_step says"
        keys.note("K02", "moe_layers", told)
    return routed(base, experts)


def _dbrx(keys: Keys, family: str) -> dict[str, Any]:
    """DBRX: attention and experts have mappings of their own; norms have no bias."""
    attention, ffn = keys.part("attn_config", DBRX_PARTS), keys.part("ffn_config", DBRX_PARTS)
    activation = ffn.part("ffn_act_fn", {"name": "silu"})
    for each in (attention, ffn):  # what every mapping of old versions repeats, and K06
        each.read |= {"clip_qkv", "hidden_size", "model_type", "moe_jitter_eps"}
        each.read.add("tie_word_embeddings")
    base = {
        "hidden": keys.size("d_model"),
        "ffn": 0,
        "heads": keys.size("n_heads"),
        "kv_heads": attention.size("kv_n_heads"),
        "vocab": keys.size("vocab_size"),
        "activation": activation.word("name", ACTIVATIONS),
        "tied_embeddings": keys.flag("tie_word_embeddings"),
        "position": {
            "base": attention.number("rope_theta"),
            "max_positions": keys.size("max_seq_len"),
        },
    }
    ffn.wants("moe_normalize_expert_weights", 1)
    experts = {
        "count": ffn.size("moe_num_experts"),
        "top_k": ffn.size("moe_top_k"),
        "size": ffn.size("ffn_hidden_size"),
        "aux_loss_coefficient": share(ffn, "moe_loss_weight"),
    }
    return base | {"experts": experts}


def _bailing(keys: Keys, family: str) -> dict[str, Any]:
    """Ling and Ring: their code lies beside their checkpoints, and in vLLM (bailing_moe.py)."""
    keys.read |= {"router_dtype", "max_window_layers"}
    for key, known in (("norm_head", False), ("norm_softmax", False), ("use_bias", False)):
        keys.wants(key, known)
    base = gated(keys) | grouped_heads(keys)
    base |= biased(keys, queries=keys.flag("use_qkv_bias"), output=False)
    norm = "head" if keys.flag("use_qk_norm") else "none"
    if norm == "head":
        keys.wants("use_rmsnorm", True)
    base |= {"qk_norm": norm, "position": rope_position(keys, percent="partial_rotary_factor")}
    return routed(base, bailing_experts(keys))


ERNIE = frozenset({"moe_capacity", "moe_gate", "moe_gate_act", "moe_norm_min", "moe_use_aux_free"})
"""How ERNIE's router is trained; none of it has shapes."""
MINIMAX = frozenset(
    {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}
    | {"mlp_intermediate_size", "mtp_transformer_layers", "shared_moe_mode", "use_mtp"}
)
"""Left over from MiniMax-Text-01; of its token prediction num_mtp_modules speaks."""
LLAMA4 = frozenset(
    {"attention_chunk_size", "attn_scale", "attn_temperature_tuning", "floor_scale"}
    | {"for_llm_compressor", "layer_types", "no_rope_layers", "no_rope_layer_interval"}
    | {"use_qk_norm"}
)
"""What of Llama 4 has no shapes; K06 says so."""

DBRX_PARTS = {
    "kv_n_heads": 1,
    "rope_theta": 10000.0,
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "moe_loss_weight": 0.01,
}

ROUTED: dict[str, Callable[[Keys, str], dict[str, Any]]] = {
    "bailing_moe": _bailing,
    "bailing_moe_v2": _bailing,
    "dbrx": _dbrx,
    "dots1": _dots1,
    "ernie4_5_moe": _ernie_moe,
    "exaone_moe": _exaone_moe,
    "flex_olmo": _olmoe,
    "glm4_moe": _glm4_moe,
    "glm4v_moe_text": _glm4_moe,
    "granitemoe": _granite_moe,
    "granitemoehybrid": _granite_hybrid,
    "granitemoeshared": _granite_moe,
    "hunyuan_v1_moe": _hunyuan_moe,
    "hy_v3": _hy_v3,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "olmoe": _olmoe,
    "solar_open": _solar_open,
}
