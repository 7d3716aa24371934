"""Linear attention, Mamba and convolutions in a Hugging Face config, for ``ModelSpec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.catalog.huggingface.attention import (
    full_attention_every,
    unevenly_spaced_full_layers,
)
from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    first_key_with_value,
    valid_values_help,
)
from parc.compiler.catalog.huggingface.layer_variants import layer_indexes, read_factor

_LETTERS = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""Layer type in the config key ``layers_block_type`` -> letter of the pattern. Some types have two
names, from before and since transformers 5."""


def read_linear_attention(
    keys: ConfigKeys, names: Mapping[str, str | list[str]], model: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields ``linear_attention`` and, for uneven layers, ``layer_variants``.

    The interval of layers with full attention is read from ``layer_types``. If the config lacks
    this key, the interval is read from the config key that the family declares. A family that
    declares none lists its layers in section ``layer_mixers``. ``model`` contains the other fields
    of ``ModelSpec`` that were read so far.
    """
    layers = model["layers"]
    found = {
        field: read_factor(keys, first_key_with_value(keys, key), model)
        for field, key in names.items()
    }
    if "full_attention_every" not in names:
        return {"linear_attention": found | {"full_attention_every": 1}}
    uneven = unevenly_spaced_full_layers(keys, "linear_attention", layers)
    if uneven:
        linear = [layer + 1 for layer in layer_indexes(layers) if layer not in uneven]
        return {
            "linear_attention": found | {"full_attention_every": 1},
            "layer_variants": [{"layers": linear, "mixer": "linear"}],
        }
    every = full_attention_every(keys, "linear_attention", layers)
    if every == 0:
        keys.add_note("K02", "layer_types", "layer_types lists no layer with full attention")
    return {
        "linear_attention": found | {"full_attention_every": every or found["full_attention_every"]}
    }


def read_layer_pattern(keys: ConfigKeys, names: Mapping[str, str]) -> str:
    """Return the layer pattern in Megatron's letters, one letter per layer.

    Return an empty pattern after adding a note if the pattern is missing or invalid.
    """
    letters, types = keys.value(names["letters"]), keys.value(names["types"])
    layers = keys.optional_whole_number(names["layers"])
    key = names["letters"] if types is None else names["types"]
    if isinstance(types, list):
        letters = "".join(_LETTERS.get(name, "?") for name in types if isinstance(name, str))
    elif types is not None:
        letters = None
    if letters is None or letters in ("", [], {}):
        keys.add_note("K03", key, f"{key} is missing; it defines the type of each layer")
        return ""
    if not isinstance(letters, str) or set(letters) - {*_LETTERS.values()}:
        valid = _LETTERS if types is not None else dict.fromkeys(_LETTERS.values())
        keys.add_note("K02", key, f"{key} has unsupported layer types", valid_values_help(valid))
        return ""
    if layers not in (None, len(letters)):
        message = f"{key} lists {len(letters)} layers, but {names['layers']} is {layers}"
        keys.add_note("K03", names["layers"], message)
    return letters


def add_layer_mixers(
    keys: ConfigKeys, names: Mapping[str, Any], model_fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields ``model_fields`` and the layers with another token mixer than attention.

    ``names`` is the section ``layer_mixers`` of the family. If no layer has the other token mixer,
    the section of ``ModelSpec`` that describes it is removed.
    """
    layers, mixer = model_fields["layers"], names["mixer"]
    attention = _attention_flags(keys, names, layers)
    others = [layer for layer, one in enumerate(attention, start=1) if not one]
    if not others:
        section = {"linear": "linear_attention", "parallel": "mamba"}.get(mixer, mixer)
        return {key: value for key, value in model_fields.items() if key != section}
    return model_fields | {"layer_variants": [{"layers": others, "mixer": mixer}]}


_ATTENTION_NAMES = ("attention", "full_attention")


def _attention_flags(keys: ConfigKeys, names: Mapping[str, Any], layers: int) -> list[bool]:
    """Return one boolean per layer: True if its token mixer is attention."""
    types, key = keys.value(names["types"]), names["types"]
    if "flags" in names and isinstance(keys.value(names["flags"]), list) and types is None:
        types = ["attention" if one else "other" for one in keys.value(names["flags"])]
    listed = keys.value(names["attention_layers"]) if "attention_layers" in names else None
    if types is not None:
        if not isinstance(types, list) or len(types) != layers:
            message = f"{key} must list one type for each of the {layers} layers"
            keys.add_note("K03", key, message)
            return [True] * len(layer_indexes(layers))
        return [name in _ATTENTION_NAMES for name in types]
    if isinstance(listed, list):
        first = names.get("first_layer", 0)
        return [first + layer in listed for layer in layer_indexes(layers)]
    every, first = names["default_every"], 0
    if "period" in names:
        every = keys.whole_number(names["period"])
        first = keys.whole_number(names["offset"], least=0)
    return [every > 0 and layer % every == first for layer in layer_indexes(layers)]


def read_convolution(keys: ConfigKeys, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of section ``convolution`` of ``ModelSpec``."""
    return {
        "conv_size": keys.whole_number(names["conv_size"]),
        "bias": keys.boolean(names["bias"]),
    }


def read_mamba(
    keys: ConfigKeys, names: Mapping[str, str], model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of section ``mamba`` of ``ModelSpec``.

    The head dim ``auto`` means that all heads together have the inner width, which is the value of
    config key ``inner`` or ``expand`` times the hidden size. Mamba-1, which has a ``step_rank``,
    has one head per channel of this width; its rank ``auto`` is a sixteenth of the hidden size.
    """
    inner = (
        keys.whole_number(names["expand"]) * model_fields["hidden"] if "expand" in names else None
    )
    if "inner" in names:
        inner = keys.optional_whole_number(names["inner"]) or inner
    fields: dict[str, Any] = {
        field: keys.whole_number(names[field])
        for field in ("heads", "state_size", "groups", "conv_size")
        if field in names
    }
    if "step_rank" in names:
        rank = names["step_rank"]
        auto = keys.value(rank) == "auto"
        fields |= {"heads": inner, "head_dim": 1}
        fields["step_rank"] = -(-model_fields["hidden"] // 16) if auto else keys.whole_number(rank)
    elif inner is not None and keys.value(names["head_dim"]) == "auto":
        fields["head_dim"] = inner // fields["heads"]
    else:
        fields["head_dim"] = keys.whole_number(names["head_dim"])
    if "norm" in names:
        fields["norm"] = keys.boolean(names["norm"])
    return fields
