"""Rotary positions of a Hugging Face config, in the old form and in the new one.

Old: ``rope_theta`` beside ``rope_scaling: {type | rope_type, factor, ...}``. New (transformers 5):
``rope_parameters: {rope_theta, rope_type, factor, ...}``, where layer types may have one each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.catalog.huggingface.keys import Keys, positive, shown

# Tokens of text have one position in all three parts of "mrope", which is then no scaling.
_TYPES = {
    "default": "none",
    "llama3": "llama3",
    "linear": "linear",
    "yarn": "yarn",
    "mrope": "none",
}

# What PARC emits and Megatron assumes; another value is noted (transformers, modeling_rope_utils).
_FIXED: dict[str, dict[str, float]] = {
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"beta_fast": 32.0, "beta_slow": 1.0},
}


def rope_position(keys: Keys, *, percent: str = "", base: str = "rope_theta") -> dict[str, Any]:
    """``position`` of a rotary model.

    ``percent`` and ``base`` are the keys for the rotated share and the base in the old form.
    """
    rope = _rope_table(keys)
    theta = rope.get("rope_theta")
    share = rope.get("partial_rotary_factor")
    position: dict[str, Any] = {
        "kind": "rope",
        "base": keys.number(base) if theta is None else positive(keys, "rope_parameters", theta),
        "max_positions": keys.size("max_position_embeddings"),
    }
    if share is not None:
        position["percent"] = positive(keys, "rope_parameters", share)
    elif percent:
        position["percent"] = keys.number(percent)
    return position | _scaling(keys, rope)


def alpha_position(keys: Keys, head_dim: int) -> dict[str, Any]:
    """``position`` of Hunyuan: its "dynamic" scaling by ``alpha`` only makes the base larger.

    Source: transformers, modeling_hunyuan_v1_dense.py, compute_ntk_alpha_rope_parameters.
    """
    rope = _rope_table(keys)
    if rope.get("rope_type", rope.get("type")) != "dynamic" or rope.get("alpha") is None:
        return rope_position(keys)
    named = _named(keys)
    theta = rope.get("rope_theta")
    base = keys.number("rope_theta") if theta is None else positive(keys, named, theta)
    if head_dim <= 2:
        keys.note("K03", "head_dim", f"head_dim is {head_dim}: alpha needs more than 2 dims")
        head_dim = 4
    base *= positive(keys, named, rope["alpha"]) ** (head_dim / (head_dim - 2))
    return {"kind": "rope", "base": base, "max_positions": keys.size("max_position_embeddings")}


def _named(keys: Keys) -> str:
    """The key that holds the rope mapping."""
    new = keys.config.get("rope_parameters") is not None
    return "rope_parameters" if new else "rope_scaling"


def _rope_table(keys: Keys) -> Mapping[str, Any]:
    """The rope mapping of either form; the one of full attention where layer types differ."""
    new, old = keys.raw("rope_parameters"), keys.raw("rope_scaling")
    table, key = (old, "rope_scaling") if new is None else (new, "rope_parameters")
    if table is None:
        return {}
    if isinstance(table, Mapping) and "full_attention" in table:
        table = table["full_attention"]
    if isinstance(table, Mapping):
        return table
    keys.note("K03", key, f"{key} is not a mapping")
    return {}


def _scaling(keys: Keys, rope: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling part of ``position``."""
    named = _named(keys)
    kind = rope.get("rope_type", rope.get("type"))
    scaling = "none" if kind is None else _TYPES.get(kind) if isinstance(kind, str) else None
    if scaling is None:
        known = ", ".join(_TYPES)
        keys.note("K02", named, f"rope type {shown(kind)} is not one that PARC knows", known)
    if scaling is None or scaling == "none":
        return {}
    found: dict[str, Any] = {
        "scaling": scaling,
        "scaling_factor": positive(keys, named, rope.get("factor"), what=f"{named}.factor"),
    }
    if scaling == "yarn":
        found["kind"] = "yarn"
        found |= {
            key: positive(keys, named, rope[key], what=f"{named}.{key}")
            for key in ("mscale", "mscale_all_dim")
            if rope.get(key) not in (None, 0)
        }
    _note_fixed(keys, named, rope, _FIXED.get(scaling, {}))
    original = rope.get("original_max_position_embeddings")
    if original is not None:
        found["original_max_positions"] = int(positive(keys, named, original))
    return found


def _note_fixed(
    keys: Keys, named: str, rope: Mapping[str, Any], fixed: Mapping[str, float]
) -> None:
    """A warning for each rope setting that differs from the only value that can be said."""
    for key, value in fixed.items():
        if rope.get(key, value) != value:
            told = f"{named}.{key} is {shown(rope[key])}; the spec has no such field"
            keys.note("K06", named, told, f"{value:g} is what the target assumes")
