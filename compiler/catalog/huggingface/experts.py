"""Mixture-of-experts part of a Hugging Face config, by family."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.huggingface.keys import Keys, shown

_SCORES = {"softmax": "softmax", "sigmoid": "sigmoid"}
_V2_METHODS = {"greedy": "1", "group_limited_greedy": "groups"}
_V3_METHODS = {"noaux_tc": "buffer"}


def mixtral_experts(keys: Keys, **more: Any) -> dict[str, Any]:
    """Mixtral and gpt-oss: every layer routes, the dense width is that of an expert."""
    return {
        "count": keys.size("num_local_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": keys.size("intermediate_size"),
        "aux_loss_coefficient": share(keys, "router_aux_loss_coef"),
    } | more


def qwen_experts(keys: Keys, *, shared: bool) -> dict[str, Any]:
    """Qwen2-MoE (``shared``: with a gated shared expert) and Qwen3-MoE."""
    # Softmax over all, top-k, normalise is the same as top-k, then softmax.
    found: dict[str, Any] = {
        "count": keys.size("num_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": keys.size("moe_intermediate_size"),
        "pre_softmax": not keys.flag("norm_topk_prob"),
        "every": keys.size("decoder_sparse_step"),
        "first_dense_layers": _leading_dense(keys),
        "aux_loss_coefficient": share(keys, "router_aux_loss_coef"),
    }
    if shared:
        found["shared_size"] = keys.size("shared_expert_intermediate_size", least=0)
        found["shared_gate"] = found["shared_size"] > 0
    return found


def _leading_dense(keys: Keys) -> int:
    """``mlp_only_layers`` as a count of leading dense layers."""
    dense = keys.raw("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        told = "mlp_only_layers names other layers than the leading ones"
        keys.note("K02", "mlp_only_layers", told, "[0, 1, ..., n-1]")
        return 0
    return len(dense)


def deepseek_experts(keys: Keys, family: str) -> dict[str, Any]:
    """DeepSeek-V2, DeepSeek-V3 and Kimi-K2."""
    if keys.size("moe_layer_freq") != 1:
        keys.note(
            "K02", "moe_layer_freq", "moe_layer_freq is not 1: layers 0, n, 2n, ... route", "1"
        )
    size = keys.size("moe_intermediate_size")
    shared = 0 if keys.raw("n_shared_experts") is None else keys.size("n_shared_experts", least=0)
    found: dict[str, Any] = {
        "count": keys.size("n_routed_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": size,
        "shared_size": shared * size,
        "first_dense_layers": _dense_first(keys),
        "scaling_factor": keys.number("routed_scaling_factor"),
        "aux_loss_coefficient": share(keys, "aux_loss_alpha"),
        "score_function": keys.word("scoring_func", _SCORES),
    }
    return found | (_v2_router(keys) if family == "deepseek_v2" else _v3_router(keys))


def _v2_router(keys: Keys) -> dict[str, Any]:
    """Softmax over all experts, then top-k, over groups or not."""
    router: dict[str, Any] = {"pre_softmax": not keys.flag("norm_topk_prob")}
    grouped = keys.word("topk_method", _V2_METHODS) == "groups"
    keys.read |= {"n_group", "topk_group"}
    return router | _groups(keys) if grouped else router


def _v3_router(keys: Keys) -> dict[str, Any]:
    """Sigmoid scores with the load-balancing bias, which is a buffer (arXiv:2412.19437)."""
    if not keys.flag("norm_topk_prob"):
        keys.note("K02", "norm_topk_prob", "sigmoid scores that are not normalised", "true")
    return {"router_bias": keys.word("topk_method", _V3_METHODS)} | _groups(keys)


def _groups(keys: Keys) -> dict[str, Any]:
    """Groups of experts; null is one group."""
    return {"groups": keys.size_or_none("n_group") or 1} | {
        "group_top_k": keys.size_or_none("topk_group") or 1
    }


def _dense_first(keys: Keys) -> int:
    """Leading dense layers: their number, or ``mlp_layer_types``."""
    types = keys.raw("mlp_layer_types")
    first = keys.size("first_k_dense_replace", least=0)
    if types is None:
        return first
    layers = keys.size("num_hidden_layers")
    if not isinstance(types, list) or len(types) != layers:
        told = f"mlp_layer_types has not one entry for each of {layers} layers"
        keys.note("K03", "mlp_layer_types", told)
        return 0
    dense = types.index("sparse") if "sparse" in types else layers
    if types != ["dense"] * dense + ["sparse"] * (layers - dense):
        told = "mlp_layer_types is not some dense layers and then sparse ones"
        keys.note("K02", "mlp_layer_types", told)
    return dense


def softmax_experts(keys: Keys, size: str) -> dict[str, Any]:
    """OLMoE: softmax over all experts, then top-k; ``size`` is the key of an expert's width."""
    return {
        "count": keys.size("num_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": keys.size(size),
        "pre_softmax": not keys.flag("norm_topk_prob"),
        "aux_loss_coefficient": share(keys, "router_aux_loss_coef"),
    }


def exaone_experts(keys: Keys, scaling: str = "routed_scaling_factor") -> dict[str, Any]:
    """K-EXAONE, Hunyuan 3: DeepSeek-V3's router under other names; ``scaling`` is one of them."""
    size = keys.size("moe_intermediate_size")
    return {
        "count": keys.size("num_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": size,
        "shared_size": size * keys.size("num_shared_experts", least=0),
        "first_dense_layers": _dense_first(keys),
        "scaling_factor": keys.number(scaling),
        "score_function": keys.word("scoring_func", _SCORES),
    } | _v3_router(keys)


def ernie_experts(keys: Keys) -> dict[str, Any]:
    """ERNIE 4.5: softmax scores and a load-balancing bias, which is not trained."""
    layers, last = keys.size("num_hidden_layers"), keys.raw("moe_layer_end_index")
    if last not in (None, -1) and keys.size("moe_layer_end_index", least=0) < layers - 1:
        told = f"layers behind {shown(last)} are dense again"
        keys.note("K02", "moe_layer_end_index", told, f"-1 or {layers - 1}")
    size = keys.size("moe_intermediate_size")
    return {
        "count": keys.size("moe_num_experts"),
        "top_k": keys.size("moe_k"),
        "size": size,
        "shared_size": size * keys.size("moe_num_shared_experts", least=0),
        "first_dense_layers": keys.size("moe_layer_start_index", least=0),
        "every": keys.size("moe_layer_interval"),
        "router_bias": "buffer",
        "aux_loss_coefficient": share(keys, "router_aux_loss_coef"),
    }


def bailing_experts(keys: Keys) -> dict[str, Any]:
    """Ling: softmax scores; from 2.0 on sigmoid scores with a load-balancing bias, in groups."""
    size = keys.size("moe_intermediate_size")
    wide = keys.size_or_none("moe_shared_expert_intermediate_size") or size
    score = keys.word("score_function", _SCORES)
    found: dict[str, Any] = {
        "count": keys.size("num_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": size,
        "shared_size": wide * keys.size("num_shared_experts", least=0),
        "first_dense_layers": keys.size("first_k_dense_replace", least=0),
        "score_function": score,
        "scaling_factor": keys.number("routed_scaling_factor"),
    }
    keys.wants("moe_router_enable_expert_bias", score == "sigmoid")
    keys.wants("moe_router_enable_shared_expert", True)
    if score == "softmax":
        return found | {"pre_softmax": not keys.flag("norm_topk_prob")}
    return found | _v3_router(keys)


def share(keys: Keys, key: str) -> float:
    """A loss weight, or another share; 0 and null switch it off."""
    return 0.0 if keys.raw(key) in (None, 0) else keys.number(key)
