"""Mixture-of-experts part of a Hugging Face config, by family."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.hf_keys import Keys

_SCORES = {"softmax": "softmax", "sigmoid": "sigmoid"}
_V2_METHODS = {"greedy": "1", "group_limited_greedy": "groups"}
_V3_METHODS = {"noaux_tc": "buffer"}


def mixtral_experts(keys: Keys, **more: Any) -> dict[str, Any]:
    """Mixtral and gpt-oss: every layer routes, the dense width is that of an expert."""
    return {
        "count": keys.size("num_local_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": keys.size("intermediate_size"),
        "aux_loss_coefficient": _share(keys, "router_aux_loss_coef"),
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
        "aux_loss_coefficient": _share(keys, "router_aux_loss_coef"),
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
        "first_dense_layers": keys.size("first_k_dense_replace", least=0),
        "scaling_factor": keys.number("routed_scaling_factor"),
        "aux_loss_coefficient": _share(keys, "aux_loss_alpha"),
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
    return {"groups": keys.size("n_group"), "group_top_k": keys.size("topk_group")}


def _share(keys: Keys, key: str) -> float:
    """A loss weight; 0 and null switch it off."""
    return 0.0 if keys.raw(key) in (None, 0) else keys.number(key)
