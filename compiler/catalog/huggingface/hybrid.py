"""Hybrids of a Hugging Face config: gated DeltaNet of Qwen, Mamba-2 layers of Nemotron-H."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.huggingface.attention import full_every
from parc.compiler.catalog.huggingface.experts import qwen_experts
from parc.compiler.catalog.huggingface.keys import Keys, shown

_LETTERS = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""Block types of ``layers_block_type``, names of before and after transformers 5."""

_DISAGREE = "its implementations do not agree about what that does"
_BIASED = "biases on the projections of Mamba layers have no field in the spec"
_MAMBA = {
    "attention_bias": (False, _DISAGREE),
    "mamba_hidden_act": ("silu", "the convolution of Mamba-2 is known with silu alone"),
    "mamba_proj_bias": (False, _BIASED),
    "residual_in_fp32": (False, "the width of the residual stream has no field in the spec"),
    "sliding_window": (None, _DISAGREE),
    "tie_word_embeddings": (False, _DISAGREE),
    "use_bias": (False, _BIASED),
    "use_conv_bias": (True, "the convolution of Mamba-2 is known with a bias alone"),
}
_ROUTED = {
    "moe_latent_size": (None, "experts on a latent projection have no field in the spec"),
    "n_shared_experts": (1, _DISAGREE),
    "norm_topk_prob": (True, "sigmoid scores that are not normalised"),
}
"""Key -> the only value that the spec can say, and why another is refused."""
_GATED = {"attn_output_gate": (True, "transformers gates attention whatever the config says")}
_ALL_ROUTE = {
    "decoder_sparse_step": (1, "every layer of this family routes"),
    "mlp_only_layers": ([], "every layer of this family routes"),
    "norm_topk_prob": (True, "transformers normalises the scores whatever the config says"),
}

_UNSHAPED = frozenset(
    {"expand", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "norm_eps", "rms_norm_eps"}
    | {"mtp_hybrid_override_pattern", "mtp_layers_block_type", "num_logits_to_keep", "rope_theta"}
    | {"partial_rotary_factor", "rescale_prenorm_residual", "use_mamba_kernels"}
    | {"time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "time_step_rank"}
)
"""Keys of Nemotron-H that change no shape: initialisation, caches, and what it does not use."""
_EXPERTS = frozenset(
    {"moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_group", "topk_group"}
    | {"n_routed_experts", "num_experts_per_tok", "routed_scaling_factor", *_ROUTED}
)


def delta_net(keys: Keys) -> dict[str, Any]:
    """Gated DeltaNet in all but every n-th layer, gated attention in those."""
    _only(keys, _GATED)
    interval = keys.size("full_attention_interval")
    every = full_every(keys, "linear_attention")
    if every == 0:
        keys.note("K02", "layer_types", "no layer attends fully")
    linear = {
        "key_heads": keys.size("linear_num_key_heads"),
        "value_heads": keys.size("linear_num_value_heads"),
        "key_dim": keys.size("linear_key_head_dim"),
        "value_dim": keys.size("linear_value_head_dim"),
        "conv_size": keys.size("linear_conv_kernel_dim"),
        "full_attention_every": every or interval,
    }
    return {"attention_gate": True, "qk_norm": "head", "linear_attention": linear}


def delta_net_experts(keys: Keys, family: str) -> dict[str, Any]:
    """Experts beside one gated shared expert; in Qwen3.5 in every layer."""
    if family != "qwen3_next":
        _only(keys, _ALL_ROUTE)
    return qwen_experts(keys, shared=True)


def nemotron_h(keys: Keys) -> dict[str, Any]:
    """Nemotron-H and Nemotron 3: layers of one part each; the activation is not read here."""
    keys.read |= _UNSHAPED
    _only(keys, _MAMBA)
    pattern = _pattern(keys)
    head = "attention_head_dim" if keys.raw("head_dim") is None else "head_dim"
    found: dict[str, Any] = {
        "layers": len(pattern),
        "pattern": pattern,
        "hidden": keys.size("hidden_size"),
        "ffn": keys.size("intermediate_size") if "-" in pattern else 0,
        "heads": keys.size("num_attention_heads"),
        "kv_heads": keys.size_or_none("num_key_value_heads"),
        "head_dim": keys.size_or_none(head) or 128,
        "vocab": keys.size("vocab_size"),
        "gated": False,
        "mlp_bias": keys.flag("mlp_bias"),
        "norm_epsilon": keys.number("layer_norm_epsilon"),
        "position": {"kind": "none", "max_positions": keys.size("max_position_embeddings")},
    }
    keys.read |= {"intermediate_size", "attention_head_dim"}
    mamba = _mamba(keys)  # read in any case: the class writes its defaults into every config
    return found | ({"mamba": mamba} if "M" in pattern else {}) | _experts(keys, pattern)


def _mamba(keys: Keys) -> dict[str, Any]:
    if keys.raw("chunk_size") != 128:
        told = f"chunk_size is {shown(keys.raw('chunk_size'))}; the spec has no such field"
        keys.note("K06", "chunk_size", told, "128 is what the target assumes")
    return {
        "heads": keys.size("mamba_num_heads"),
        "head_dim": keys.size("mamba_head_dim"),
        "state_size": keys.size("ssm_state_size"),
        "groups": keys.size("n_groups"),
        "conv_size": keys.size("conv_kernel"),
    }


def _experts(keys: Keys, pattern: str) -> dict[str, Any]:
    """Sigmoid scores with a load-balancing buffer, as DeepSeek-V3 has them; plain MLPs."""
    if "E" not in pattern:
        keys.read |= _EXPERTS
        return {}
    _only(keys, _ROUTED)
    if keys.flag("mlp_bias"):
        told = "mlp_bias: the shared expert would have biases, and the routed ones none"
        keys.note("K02", "mlp_bias", told)
    experts = {
        "count": keys.size("n_routed_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "size": keys.size("moe_intermediate_size"),
        "shared_size": keys.size("moe_shared_expert_intermediate_size"),
        "score_function": "sigmoid",
        "router_bias": "buffer",
        "groups": keys.size("n_group"),
        "group_top_k": keys.size("topk_group"),
        "scaling_factor": keys.number("routed_scaling_factor"),
    }
    return {"experts": experts}


def _pattern(keys: Keys) -> str:
    """A letter a layer, as Megatron has them; empty where a note says why not."""
    letters, types = keys.raw("hybrid_override_pattern"), keys.raw("layers_block_type")
    layers = keys.size_or_none("num_hidden_layers")
    key = "hybrid_override_pattern" if types is None else "layers_block_type"
    if isinstance(types, list):
        letters = "".join(_LETTERS.get(name, "?") for name in types if isinstance(name, str))
    elif types is not None:
        letters = None
    if letters is None or letters in ("", [], {}):
        keys.note("K03", key, f"{key} is missing: it says what each layer is")
        return ""
    if not isinstance(letters, str) or set(letters) - {*_LETTERS.values()}:
        named = types is not None
        known = ", ".join(_LETTERS if named else dict.fromkeys(_LETTERS.values()))
        keys.note("K02", key, f"{key} has layers that PARC does not know", f"known: {known}")
        return ""
    if layers not in (None, len(letters)):
        told = f"{key} has {len(letters)} layers, and num_hidden_layers is {layers}"
        keys.note("K03", "num_hidden_layers", told)
    return letters


def _only(keys: Keys, known: dict[str, tuple[Any, str]]) -> None:
    """Notes K02 where a key is set to another value than the one that PARC knows."""
    for key, (value, why) in known.items():
        given = keys.raw(key)
        if given is not None and (
            given != value or isinstance(given, bool) != isinstance(value, bool)
        ):
            keys.note("K02", key, f"{key} is {shown(given)}: {why}")
