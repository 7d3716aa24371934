"""A Hugging Face ``config.json`` read into the shape of ``ModelSpec``.

What is not understood is said, never passed over: an unknown family or structure is K02, a missing
or senseless number K03, a key that plays no part K04, an unknown key K05.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parc.compiler.catalog.huggingface.attention import grouped_heads, latent, window
from parc.compiler.catalog.huggingface.defaults import DEFAULTS
from parc.compiler.catalog.huggingface.dense import DENSE
from parc.compiler.catalog.huggingface.experts import (
    deepseek_experts,
    mixtral_experts,
    qwen_experts,
)
from parc.compiler.catalog.huggingface.hybrid import delta_net, delta_net_experts, nemotron_h
from parc.compiler.catalog.huggingface.keys import ConfigNote, Keys, shown
from parc.compiler.catalog.huggingface.known_keys import HARMLESS, STRUCTURAL, UNUSED
from parc.compiler.catalog.huggingface.layer_norm import LAYER_NORM
from parc.compiler.catalog.huggingface.parts import ACTIVATIONS, biased, gated, layer_norm, routed
from parc.compiler.catalog.huggingface.rope import rope_position
from parc.compiler.catalog.huggingface.routed import ROUTED
from parc.compiler.catalog.huggingface.text_part import text_part
from parc.compiler.catalog.huggingface.unread import no_part, unknown_family


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """What a config says, and what is to be said about it."""

    mapping: dict[str, Any]
    """Keys of ``ModelSpec``; of no use where a note is an error (K02, K03)."""
    notes: tuple[ConfigNote, ...]

    @property
    def failed(self) -> bool:
        """Whether the config was not understood."""
        return any(note.code in ("K02", "K03") for note in self.notes)


def model_spec_from_config(config: Mapping[str, Any], name: str, part: str = "") -> ConfigReading:
    """The facts in ``config``; absent keys have the defaults of the transformers class.

    ``part``: keys, joined by dots, of the mapping in it that describes the decoder.
    """
    try:
        config = text_part(config, part)
    except KeyError:
        return ConfigReading({}, (no_part(config, part),))
    family = config.get("model_type")
    reader = _READERS.get(family) if isinstance(family, str) else None
    if reader is None or not isinstance(family, str):
        return ConfigReading({}, (unknown_family(config, _READERS),))
    keys = Keys(config, DEFAULTS[family])
    keys.read.add("model_type")
    mapping = reader(keys, family)
    layers = {} if "layers" in mapping else {"layers": _layers(keys)}
    mapping = {"name": name, "family": family} | layers | mapping
    for each in (keys, *keys.parts):
        _note_unread(each)
    return ConfigReading(mapping, tuple(dict.fromkeys(keys.notes)))


def _layers(keys: Keys) -> int:
    named = (key for key in ("n_layer", "n_layers") if key in keys.defaults)
    return keys.size(next(named, "num_hidden_layers"))


def _note_unread(keys: Keys) -> None:
    """One note for each key that is set and that nobody asked for."""
    types = keys.config.get("layer_types")
    if isinstance(types, list) and all(name == "full_attention" for name in types):
        keys.read.add("layer_types")  # says what is so without it
    for key in keys.unread():
        if key in UNUSED:
            keys.note("K04", key, UNUSED[key])
        elif key in STRUCTURAL:
            told = f"{key} changes the structure, and PARC does not know how in this family"
            keys.note("K02", key, told)
        elif key not in HARMLESS and not key.endswith(("_token_id", "dropout", "_pdrop")):
            keys.note("K05", key, f"{shown(key)} is not a key that PARC knows")


def _llama(keys: Keys, family: str) -> dict[str, Any]:
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    return base | {"mlp_bias": keys.flag("mlp_bias"), "position": rope_position(keys)}


def _mistral(keys: Keys, family: str) -> dict[str, Any]:
    return gated(keys) | grouped_heads(keys) | window(keys) | {"position": rope_position(keys)}


def _mixtral(keys: Keys, family: str) -> dict[str, Any]:
    return _mistral(keys, family) | {"ffn": 0, "experts": mixtral_experts(keys)}


def _qwen2(keys: Keys, family: str) -> dict[str, Any]:
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=True, output=False)
    return base | window(keys, switched=True) | {"position": rope_position(keys)}


def _mimo(keys: Keys, family: str) -> dict[str, Any]:
    """Qwen2; its layer that predicts tokens has the shapes of DeepSeek-V3's."""
    keys.wants("attention_bias", True)
    return _qwen2(keys, family)


def _qwen3(keys: Keys, family: str) -> dict[str, Any]:
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    base |= window(keys, switched=True)
    return base | {"qk_norm": "head", "position": rope_position(keys)}


def _qwen2_moe(keys: Keys, family: str) -> dict[str, Any]:
    _refuse_window(keys)
    base = _qwen2(keys, family) | {"qkv_bias": keys.flag("qkv_bias")}
    return routed(base, qwen_experts(keys, shared=True))


def _qwen3_moe(keys: Keys, family: str) -> dict[str, Any]:
    _refuse_window(keys)
    return routed(_qwen3(keys, family), qwen_experts(keys, shared=False))


def _refuse_window(keys: Keys) -> None:
    """Versions of transformers disagree about which layers slide in Qwen's routed models."""
    if keys.flag("use_sliding_window"):
        keys.note("K02", "use_sliding_window", "use_sliding_window: which layers slide is unclear")


def _deepseek(keys: Keys, family: str) -> dict[str, Any]:
    base = gated(keys) | latent(keys)
    if keys.flag("mlp_bias"):
        keys.note("K02", "mlp_bias", "mlp_bias: which of the experts have biases is not known")
    base |= {"position": rope_position(keys)}
    if keys.raw("n_routed_experts") is None:
        return base
    return routed(base, deepseek_experts(keys, family))


def _gemma(keys: Keys, family: str) -> dict[str, Any]:
    keys.read |= {"hidden_act", "query_pre_attn_scalar", "rope_local_base_freq"}
    keys.read |= {"attn_logit_softcapping", "final_logit_softcapping"}  # all told by K06
    # Gemma's first configs write the activation as null and mean the default.
    activation = "hidden_act" if keys.config.get("hidden_activation", "") is None else None
    base = gated(keys, activation or "hidden_activation") | grouped_heads(keys)
    base |= biased(keys, queries=keys.flag("attention_bias")) | {"position": rope_position(keys)}
    if family == "gemma":
        return base
    base |= window(keys) | {"norms_per_layer": 2 if family == "vaultgemma" else 4}
    return base | {"qk_norm": "head" if family == "gemma3_text" else "none"}


def _gpt_oss(keys: Keys, family: str) -> dict[str, Any]:
    keys.read |= {"experts_per_token", "initial_context_length", "swiglu_limit"}
    experts = mixtral_experts(keys, bias=True, router_bias="parameter")
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    base |= window(keys) | {"position": rope_position(keys), "experts": experts}
    return base | {"ffn": 0, "activation": "clamped_silu", "sinks": True}


def _gpt_neox(keys: Keys, family: str) -> dict[str, Any]:
    position = rope_position(keys, percent="rotary_pct", base="rotary_emb_base")
    serial = {} if keys.flag("use_parallel_residual") else {"family": "gpt_neox-serial"}
    biases = biased(keys, queries=keys.flag("attention_bias"))
    return (
        layer_norm(keys, "layer_norm_eps")
        | biases
        | serial
        | {
            "hidden": keys.size("hidden_size"),
            "ffn": keys.size("intermediate_size"),
            "heads": keys.size("num_attention_heads"),
            "activation": keys.word("hidden_act", ACTIVATIONS),
            "position": position,
        }
    )


def _phi(keys: Keys, family: str) -> dict[str, Any]:
    position = rope_position(keys, percent="partial_rotary_factor")
    return (
        layer_norm(keys, "layer_norm_eps")
        | biased(keys, queries=True)
        | grouped_heads(keys)
        | {
            "hidden": keys.size("hidden_size"),
            "ffn": keys.size("intermediate_size"),
            "activation": keys.word("hidden_act", ACTIVATIONS),
            "qk_norm": "head" if keys.flag("qk_layernorm") else "none",
            "norms_per_layer": 1,
            "position": position,
        }
    )


def _phi3(keys: Keys, family: str) -> dict[str, Any]:
    position = rope_position(keys, percent="partial_rotary_factor")
    keys.read.add("original_max_position_embeddings")
    return gated(keys) | grouped_heads(keys) | window(keys) | {"position": position}


def _qwen3_next(keys: Keys, family: str) -> dict[str, Any]:
    position = rope_position(keys, percent="partial_rotary_factor")
    base = gated(keys) | grouped_heads(keys) | biased(keys, queries=keys.flag("attention_bias"))
    base |= delta_net(keys) | {"position": position}
    return base if family == "qwen3_5_text" else routed(base, delta_net_experts(keys, family))


def _nemotron_h(keys: Keys, family: str) -> dict[str, Any]:
    return nemotron_h(keys) | {"activation": keys.word("mlp_hidden_act", ACTIVATIONS)}


_READERS: dict[str, Callable[[Keys, str], dict[str, Any]]] = {
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "nemotron_h": _nemotron_h,
    "phi": _phi,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_5_moe_text": _qwen3_next,
    "qwen3_5_text": _qwen3_next,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_next,
    # the same decoders under other names
    "glm4_moe_lite": _deepseek,
    "mimo": _mimo,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3_vl_moe_text": _qwen3_moe,
    "qwen3_vl_text": _qwen3,
    "vaultgemma": _gemma,
    **DENSE,
    **LAYER_NORM,
    **ROUTED,
}
