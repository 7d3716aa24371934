"""Attention of a Hugging Face config: heads, sliding windows, latent projections."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.huggingface.keys import Keys, shown

_FULL, _SLIDING = "full_attention", "sliding_attention"


def grouped_heads(keys: Keys) -> dict[str, Any]:
    """Query heads, key-value heads and head dim, the last two only where they are given."""
    found = {
        "heads": keys.size("num_attention_heads"),
        "kv_heads": keys.size_or_none("num_key_value_heads"),
        "head_dim": keys.size_or_none("head_dim"),
    }
    return {key: value for key, value in found.items() if value is not None}


def latent(keys: Keys) -> dict[str, Any]:
    """Latent attention of DeepSeek; its key-value heads are as many as its heads by nature."""
    keys.read |= {"num_key_value_heads", "head_dim", "qk_head_dim"}
    if keys.flag("attention_bias"):
        keys.note("K02", "attention_bias", "biases on latent projections have no field in the spec")
    ranks = {
        "q_lora_rank": keys.size_or_none("q_lora_rank"),
        "kv_lora_rank": keys.size("kv_lora_rank"),
        "qk_nope_dim": keys.size("qk_nope_head_dim"),
        "qk_rope_dim": keys.size("qk_rope_head_dim"),
        "v_dim": keys.size("v_head_dim"),
    }
    if ranks["q_lora_rank"] is None:
        del ranks["q_lora_rank"]
    return {"heads": keys.size("num_attention_heads"), "latent": ranks}


def window(keys: Keys, *, switched: bool = False) -> dict[str, Any]:
    """``window`` and ``full_attention_every``; nothing for full attention in all layers.

    Where ``switched``, ``use_sliding_window`` must be true and ``max_window_layers`` counts the
    leading layers that attend fully (Qwen2, Qwen3).
    """
    keys.read |= {"sliding_window_pattern", "_sliding_window_pattern"}  # layer_types may say it
    on = keys.flag("use_sliding_window") if switched else True
    leading = keys.size("max_window_layers", least=0) if switched and on else 0
    tokens = keys.raw("sliding_window")
    every = full_every(keys, _SLIDING)
    if not on or tokens is None or every == 1:
        return {}
    if every is None:
        every = _from_pattern(keys, leading)
    if every == 1:
        return {}
    span: dict[str, Any] = {"window": keys.size("sliding_window")}
    return span | {"full_attention_every": every} if every else span


def _from_pattern(keys: Keys, leading: int) -> int:
    """Every n-th layer attends fully; 0: none, 1: all."""
    layers = keys.size("num_hidden_layers")
    if leading >= layers:
        return 1
    if leading:
        told = f"{leading} of {layers} layers attend fully and then the others slide"
        keys.note("K02", "max_window_layers", told, "0, or as many as there are layers")
    # gemma3_text writes the key with an underscore, or leaves it to its class.
    for key in ("_sliding_window_pattern", "sliding_window_pattern"):
        pattern = keys.raw(key)
        if isinstance(pattern, str):
            return _from_letters(keys, key, pattern)
        if pattern is not None:
            return keys.size(key, least=0)
    return 0


def _from_letters(keys: Keys, key: str, pattern: str) -> int:
    """EXAONE writes ``LLLG``: three local layers, then a global one."""
    if pattern != "L" * (len(pattern) - 1) + "G":
        keys.note("K02", key, f"{key} is {shown(pattern)}, not some L and then a G", "LLLG")
    return len(pattern)


def full_every(keys: Keys, other: str) -> int | None:
    """What ``layer_types`` says about full attention: every n-th, 0: none, 1: all; None: absent.

    ``other`` is the only type that the layers between may have.
    """
    types = keys.raw("layer_types")
    if types is None:
        return None
    layers = keys.size("num_hidden_layers")
    if not isinstance(types, list) or len(types) != layers:
        keys.note(
            "K03", "layer_types", f"layer_types has not one entry for each of {layers} layers"
        )
        return 0
    strange = sorted({shown(name) for name in types if name not in (_FULL, other)})
    if strange:
        keys.note("K02", "layer_types", f"layers of type {', '.join(strange[:3])} are not known")
        return 0
    return _period(keys, types)


def _period(keys: Keys, types: list[str]) -> int:
    """The n where exactly the layers n-1, 2n-1, ... are full."""
    if _FULL not in types:
        return 0
    every = types.index(_FULL) + 1
    if [name == _FULL for name in types] != [(i + 1) % every == 0 for i in range(len(types))]:
        keys.note("K02", "layer_types", "full attention does not come back at even distances")
    return every
