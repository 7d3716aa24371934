"""Position encoding of a Hugging Face config, as fields of ``PositionSpec``.

Configs contain rotary settings in two layouts. Old: ``rope_theta`` next to ``rope_scaling: {type |
rope_type, factor, ...}``. New (transformers 5): ``rope_parameters: {rope_theta, rope_type, factor,
...}``, which may contain one such mapping per layer type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    check_positive_number,
    format_value,
    valid_values_help,
)

# All three parts of "mrope" have the same position for text tokens, so it does not scale positions.
_SCALINGS = {
    "default": "none",
    "llama3": "llama3",
    "linear": "linear",
    "yarn": "yarn",
    "dynamic": "dynamic",
    "longrope": "longrope",
    "su": "longrope",  # the name in the first configs of Phi-3
    "mrope": "none",
    # A fraction of each head is rotated, with the frequencies of the whole head (Gemma 4).
    "proportional": "none",
}

# Values that PARC emits and Megatron assumes; other values are noted (transformers,
# modeling_rope_utils.py).
_ASSUMED: dict[str, dict[str, float]] = {
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"beta_fast": 32.0, "beta_slow": 1.0},
}

_FRACTION = "partial_rotary_factor"
"""Config key of the fraction of dimensions per head that are rotated."""
Names = Mapping[str, str]
"""Section ``position`` of a family file: field of ``PositionSpec`` -> config key."""


def read_position(keys: ConfigKeys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of section ``position`` of ``ModelSpec``.

    ``found`` contains the other fields of ``ModelSpec`` that were read so far.
    """
    return POSITION_FORMS[names["form"]](keys, names, found)


def _rotary_positions(keys: ConfigKeys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields of a rotary encoding.

    ``names["dims"]`` is optional: the config key of the number of rotated dimensions per head.
    """
    rope = _rotary_settings(keys)
    position: dict[str, Any] = {
        "kind": "rope",
        "base": _rotary_base(keys, names, rope),
        "max_positions": keys.whole_number(names["max_positions"]),
    }
    share = rope.get(_FRACTION)
    if share is not None:
        position["percent"] = check_positive_number(keys, "rope_parameters", share)
    elif "percent" in names:
        position["percent"] = keys.positive_number(names["percent"])
    if "dims" in names:
        position = _rotated_fraction(keys, names["dims"], found) | position
    if keys.config.get(_FRACTION) == position.get("percent"):  # the same fraction a second time
        keys.mark_as_read((_FRACTION,))
    return position | _rotary_scaling_fields(keys, rope)


def _rotary_base(keys: ConfigKeys, names: Names, rope: Mapping[str, Any]) -> float:
    theta = rope.get("rope_theta")
    return (
        keys.positive_number(names["base"])
        if theta is None
        else check_positive_number(keys, _rotary_settings_key(keys), theta)
    )


def _rotated_fraction(keys: ConfigKeys, key: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field ``percent``, the fraction of dimensions per head that are rotated.

    The config contains the number of rotated dimensions at ``key``. The result is empty if this
    number is missing.
    """
    dims, width = keys.optional_whole_number(key), _head_dim(found)
    if dims is None:
        return {}
    if dims > width:
        keys.add_note("K03", key, f"{key} is {dims}, which exceeds the head dimension {width}")
    return {"percent": min(dims / max(width, 1), 1.0)}


def _head_dim(found: Mapping[str, Any]) -> int:
    width: int = found.get("head_dim") or found["hidden"] // found["heads"]
    return width


def _rotary_positions_with_alpha(
    keys: ConfigKeys, names: Names, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields of Hunyuan's rotary encoding.

    The "dynamic" scaling with ``alpha`` only increases the rotary base (transformers,
    modeling_hunyuan_v1_dense.py, compute_ntk_alpha_rope_parameters).
    """
    rope = _rotary_settings(keys)
    if rope.get("rope_type", rope.get("type")) != "dynamic" or rope.get("alpha") is None:
        return _rotary_positions(keys, names, found)
    base, head_dim = _rotary_base(keys, names, rope), _head_dim(found)
    if head_dim <= 2:
        keys.add_note("K03", "head_dim", f"head_dim is {head_dim}; alpha scaling needs more than 2")
        head_dim = 4
    # NTK-aware scaling of the base: alpha ** (d / (d - 2)) with head dim d.
    base *= check_positive_number(keys, _rotary_settings_key(keys), rope["alpha"]) ** (
        head_dim / (head_dim - 2)
    )
    return {
        "kind": "rope",
        "base": base,
        "max_positions": keys.whole_number(names["max_positions"]),
    }


def _rotary_positions_with_ratio(
    keys: ConfigKeys, names: Names, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields of ChatGLM's rotary encoding.

    Half of each head is rotated, with the base 10,000 times the ratio (modeling_chatglm.py,
    RotaryEmbedding).
    """
    return {
        "kind": "rope",
        "base": 10_000 * keys.positive_number(names["ratio"]),
        "percent": 0.5,
        "max_positions": keys.whole_number(names["max_positions"]),
    }


def _rotary_or_no_positions(
    keys: ConfigKeys, names: Names, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields of Granite 4: a rotary encoding or no encoding.

    The encoding is rotary if the config key ``names["type"]`` is ``rope``. There is no encoding if
    it is ``nope`` or null.
    """
    if keys.value(names["type"]) == "rope":
        return _rotary_positions(keys, names, found)
    keys.require_value(names["type"], "nope")
    _rotary_positions(keys, names, found)  # reads and checks the rotary keys, which have no effect
    return _no_positions(keys, names, found)


def _learned_positions(keys: ConfigKeys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "learned", "max_positions": keys.whole_number(names["max_positions"])}


def _no_positions(keys: ConfigKeys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "none", "max_positions": keys.whole_number(names["max_positions"])}


POSITION_FORMS: dict[str, Callable[[ConfigKeys, Names, Mapping[str, Any]], dict[str, Any]]] = {
    "alpha_rope": _rotary_positions_with_alpha,
    "learned": _learned_positions,
    "none": _no_positions,
    "ratio_rope": _rotary_positions_with_ratio,
    "rope": _rotary_positions,
    "rope_or_none": _rotary_or_no_positions,
}
"""Name of a position encoding (``position.form`` in a family file) -> function that reads it."""


def _rotary_settings_key(keys: ConfigKeys) -> str:
    """Return the config key of the rotary settings: ``rope_parameters`` or ``rope_scaling``."""
    new = keys.config.get("rope_parameters") is not None
    return "rope_parameters" if new else "rope_scaling"


def _rotary_settings(keys: ConfigKeys) -> Mapping[str, Any]:
    """Return the rotary settings of a config, from ``rope_parameters`` or else ``rope_scaling``.

    If the settings differ between layer types, those for layers with full attention are returned.
    """
    new, old = keys.value("rope_parameters"), keys.value("rope_scaling")
    table, key = (old, "rope_scaling") if new is None else (new, "rope_parameters")
    if table is None:
        return {}
    # Sliding layers may have another base; the spec has one position encoding for all layers.
    if isinstance(table, Mapping) and "full_attention" in table:
        table = table["full_attention"]
    if isinstance(table, Mapping):
        return table
    keys.add_note("K03", key, f"{key} must be a mapping")
    return {}


def _rotary_scaling_fields(keys: ConfigKeys, rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields for the scaling in ``rope``, the rotary settings."""
    key = _rotary_settings_key(keys)
    named = rope.get("rope_type", rope.get("type"))
    scaling = "none" if named is None else _SCALINGS.get(named) if isinstance(named, str) else None
    if scaling is None:
        message = f"{key} has rope type {format_value(named)}, which PARC does not support"
        keys.add_note("K02", key, message, valid_values_help(_SCALINGS))
    if scaling is None or scaling == "none":
        return {}
    if scaling == "longrope":
        return _longrope_fields(keys, rope)
    found: dict[str, Any] = {
        "scaling": scaling,
        "scaling_factor": check_positive_number(
            keys, key, rope.get("factor"), label=f"{key}.factor"
        ),
    }
    if scaling == "yarn":
        found["kind"] = "yarn"
        found |= {
            name: check_positive_number(keys, key, rope[name], label=f"{key}.{name}")
            for name in ("mscale", "mscale_all_dim")
            if rope.get(name) not in (None, 0)
        }
    _add_notes_on_assumed_values(keys, rope, _ASSUMED.get(scaling, {}))
    original = rope.get("original_max_position_embeddings")
    if original is not None:
        found["original_max_positions"] = int(check_positive_number(keys, key, original))
    return found


def _longrope_fields(keys: ConfigKeys, rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``PositionSpec`` fields of LongRoPE, without its factors per frequency.

    The length before scaling is in the settings or next to them, and the factor of the length
    follows from it (transformers, modeling_rope_utils.py, _compute_longrope_parameters).
    """
    name, key = "original_max_position_embeddings", _rotary_settings_key(keys)
    longest = keys.whole_number("max_position_embeddings")
    written = rope.get(name, keys.config.get(name, longest))
    original = int(check_positive_number(keys, key, written, label=name))
    factor = rope.get("factor")
    return {
        "scaling": "longrope",
        "scaling_factor": max(longest / max(original, 1), 1.0)
        if factor is None
        else check_positive_number(keys, key, factor, label=f"{key}.factor"),
        "original_max_positions": original,
    }


def _add_notes_on_assumed_values(
    keys: ConfigKeys, rope: Mapping[str, Any], assumed: Mapping[str, float]
) -> None:
    """Add a note (K06) for each setting in ``rope`` that differs from ``assumed``.

    ``assumed`` contains the values that training frameworks assume.
    """
    key = _rotary_settings_key(keys)
    for name, value in assumed.items():
        if rope.get(name, value) != value:
            message = (
                f"{key}.{name} is {format_value(rope[name])}, but the spec has no field for {name}"
            )
            keys.add_note("K06", key, message, f"the training framework assumes {value:g}")
