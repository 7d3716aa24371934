"""Extra weights and layers of different shapes in a Hugging Face config, for ``ModelSpec``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import ConfigKeys

_FIELD = "model."
"""Prefix of factors that are fields of ``ModelSpec``."""


MOST_LAYERS = 4096
"""Largest number of layers of which single layers are listed. A larger number must be a typo, and
its list would fill the memory; the spec rejects it later."""


def layer_indexes(layers: int) -> range:
    """Return the indexes of ``layers`` layers, at most ``MOST_LAYERS`` of them."""
    return range(min(layers, MOST_LAYERS))


def read_extra_weights(
    keys: ConfigKeys, entries: Iterable[Mapping[str, Any]], model_fields: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the entries of ``ModelSpec.extra_weights`` that a family declares.

    ``model_fields`` contains the other fields of ``ModelSpec``. Entries whose condition is false
    are omitted.
    """
    weights = []
    for entry in entries:
        condition = entry.get("if")
        if condition is not None and not keys.value(condition):
            continue
        parts = (
            prod(read_factor(keys, one, model_fields) for one in part)
            for part in entry["parameters"]
        )
        kept = {key: entry[key] for key in ("name", "at", "multiplied") if key in entry}
        weights.append({**kept, "parameters": sum(parts)})
    return weights


def read_factor(keys: ConfigKeys, factor: int | str, model_fields: Mapping[str, Any]) -> int:
    """Return the value of a number, a config key, or a field such as ``model.hidden``.

    A field of a section is ``model.mamba.step_rank``, for example.
    """
    if isinstance(factor, int):
        return factor
    if not factor.startswith(_FIELD):
        return keys.whole_number(factor)
    section, _, field = factor.removeprefix(_FIELD).rpartition(".")
    if section:
        return int(model_fields.get(section, {}).get(field, 0))
    heads = model_fields["heads"]
    defaults = {"kv_heads": heads, "head_dim": model_fields["hidden"] // heads}
    return int(model_fields.get(field) or defaults.get(field, 0))


def read_block_configs(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``ffn``, ``kv_heads`` and ``layer_variants`` of a Nemotron NAS model.

    The config key ``block_configs`` has one entry per layer, with the number of queries per
    key-value head and the MLP width relative to the hidden size; either part may be absent
    (modeling_decilm.py in nvidia/Llama-3_3-Nemotron-Super-49B-v1).
    """
    blocks = keys.value("block_configs")
    heads, layers, hidden = model_fields["heads"], model_fields["layers"], model_fields["hidden"]
    if not isinstance(blocks, list) or len(blocks) != layers:
        message = f"block_configs must list one block for each of the {layers} layers"
        keys.add_note("K03", "block_configs", message)
        return {}
    shapes = [_block_shape(keys, block, heads, hidden) for block in blocks]
    kv_heads = next((groups for groups, _ in shapes if groups), heads)
    ffn = max((width for _, width in shapes), default=0)
    by_shape: dict[tuple[int, int], list[int]] = {}
    for layer, shape in enumerate(shapes, start=1):
        if shape != (kv_heads, ffn):
            by_shape.setdefault(shape, []).append(layer)
    variants = []
    for (groups, width), numbers in by_shape.items():
        variant: dict[str, Any] = {"layers": numbers}
        variant |= {"attention": False} if not groups else {}
        variant |= {"kv_heads": groups} if groups not in (0, kv_heads) else {}
        variant |= {"mlp": False} if not width else {}
        variant |= {"ffn": width} if width not in (0, ffn) else {}
        variants.append(variant)
    fields = {"kv_heads": kv_heads, "ffn": ffn}
    return fields | ({"layer_variants": variants} if variants else {})


_UNSUPPORTED_BLOCK_KEYS = ("replace_with_linear", "sparsify", "window_length", "num_sink_tokens")


def _block_shape(keys: ConfigKeys, block: Any, heads: int, hidden: int) -> tuple[int, int]:
    """Return (key-value heads, MLP width) of one block; 0 for a part that the block lacks."""
    attention, ffn = (block.get(part) if isinstance(block, dict) else None for part in _PARTS)
    if not isinstance(attention, dict) or not isinstance(ffn, dict):
        keys.add_note("K03", "block_configs", "each block must have the mappings attention and ffn")
        return heads, hidden
    for key in _UNSUPPORTED_BLOCK_KEYS:
        if attention.get(key) or ffn.get(key):
            message = f"a block sets {key}, which PARC does not support"
            keys.add_note("K02", "block_configs", message, "valid value: null or false")
    group, ratio = attention.get("n_heads_in_group"), ffn.get("ffn_mult")
    kv_heads = width = 0
    if not attention.get("no_op"):
        if not isinstance(group, int) or group < 1 or heads % group:
            message = f"n_heads_in_group must be a divisor of {heads}, the number of heads"
            keys.add_note("K03", "block_configs", message)
            return heads, hidden
        kv_heads = heads // group
    if not ffn.get("no_op"):
        if not isinstance(ratio, int | float) or not 0 < ratio < 1000:
            keys.add_note("K03", "block_configs", "ffn_mult must be a positive number")
            return heads, hidden
        # _ffn_mult_to_intermediate_size of DeciLM rounds up to whole multiples of 256.
        width = -(-int(2 * ratio * hidden / 3) // 256) * 256
    return kv_heads, width


_PARTS = ("attention", "ffn")


def read_sliding_layer_shapes(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``layer_variants`` and ``experts`` of MiMo-V2-Flash.

    Layers with a sliding window have attention sinks and other key-value heads: by default, twice
    as many (transformers 5.23, modeling_mimo_v2_flash.py). Hub configs list the layers with a
    window in ``hybrid_layer_pattern``, and those with experts in ``moe_layer_freq``.
    """
    layers = model_fields["layers"]
    sliding = flags_per_layer(
        keys, ("layer_types", "sliding_attention"), "hybrid_layer_pattern", layers
    )
    if sliding is None:
        # The first layer and every sixth layer have full attention.
        sliding = [layer > 0 and (layer + 1) % 6 > 0 for layer in layer_indexes(layers)]
    routed = flags_per_layer(keys, ("mlp_layer_types", "sparse"), "moe_layer_freq", layers)
    fields = {} if routed is None else leading_dense_layers(keys, model_fields, routed)
    numbers = [layer for layer, one in enumerate(sliding, start=1) if one]
    variant: dict[str, Any] = {
        "layers": numbers,
        "window": keys.whole_number("sliding_window"),
        "sinks": True,
        "kv_heads": keys.optional_whole_number("swa_num_key_value_heads")
        or 2 * (model_fields.get("kv_heads") or model_fields["heads"]),
    }
    for field, key in _SLIDING_KEYS.items():
        value = keys.optional_whole_number(key)
        if value not in (None, model_fields.get(field)):
            variant[field] = value
    return fields | ({"layer_variants": [variant]} if numbers else {})


_SLIDING_KEYS = {
    "heads": "swa_num_attention_heads",
    "head_dim": "swa_head_dim",
    "value_dim": "swa_v_head_dim",
}
"""Field of ``LayerVariantSpec`` -> config key of its value in layers with a sliding window."""


def leading_dense_layers(
    keys: ConfigKeys, model_fields: dict[str, Any], routed: list[bool]
) -> dict[str, Any]:
    """Return the field ``experts`` with the number of dense layers, which must come first."""
    dense = routed.index(True) if True in routed else len(routed)
    if not all(routed[dense:]):
        keys.add_note("K02", "moe_layer_freq", "dense layers must precede layers with experts")
    return {"experts": model_fields["experts"] | {"first_dense_layers": dense}}


def read_other_setting_of_windows(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``layer_variants`` and ``experts`` of Step 3.5 and 3.7.

    Layers with a sliding window have another number of heads. The lists of hub configs are longer
    than the model, by its multi-token-prediction layers; ``moe_layers_enum`` lists the layers with
    experts (transformers 5.20, configuration_step3p7.py).
    """
    layers = model_fields["layers"]
    routed, fields = _routed_layers(keys, layers), {}
    if "experts" in model_fields:
        fields = leading_dense_layers(keys, model_fields, routed)
    if not all(routed):
        fields["ffn"] = keys.whole_number("intermediate_size")
    types = keys.value("layer_types")
    listed = types[:layers] if isinstance(types, list) else []
    if types is not None and len(listed) != layers:
        message = f"layer_types must list one type for each of the {layers} layers"
        keys.add_note("K03", "layer_types", message)
    numbers = [layer for layer, name in enumerate(listed, 1) if name == "sliding_attention"]
    if not numbers:
        keys.mark_as_read(("sliding_window",))
        return fields
    variant: dict[str, Any] = {"layers": numbers, "window": keys.whole_number("sliding_window")}
    key = "num_sliding_attention_heads"
    other = "attention_other_setting.num_attention_heads"
    heads = keys.optional_whole_number(key) or keys.optional_whole_number(other)
    if heads not in (None, model_fields["heads"]):
        variant["heads"] = heads
    return fields | {"layer_variants": [variant]}


def _routed_layers(keys: ConfigKeys, layers: int) -> list[bool]:
    """Return one boolean per layer: True if it has experts; by default from the fourth layer on."""
    types, listed = keys.value("mlp_layer_types"), keys.value("moe_layers_enum")
    if isinstance(types, list):
        return [name == "sparse" for name in types[:layers]]
    if isinstance(listed, str):
        listed = [part.strip() for part in listed.split(",")]
    if isinstance(listed, list):
        names = {str(one) for one in listed}
        return [str(layer) in names for layer in layer_indexes(layers)]
    return [layer >= 3 for layer in layer_indexes(layers)]


def read_global_layer_shapes(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``window`` and ``layer_variants`` of Gemma 4.

    In addition to ``read_shared_key_values``, the last layer always has full attention.
    """
    return read_shared_key_values(keys, model_fields, last_is_full=True)


def read_shared_key_values(
    keys: ConfigKeys, model_fields: dict[str, Any], *, last_is_full: bool = False
) -> dict[str, Any]:
    """Return the fields ``window`` and ``layer_variants`` of Gemma 3n.

    The last layers share the keys and values of earlier layers. In Gemma 4, layers with full
    attention have other heads, and can use keys as values; the MLP of layers with shared keys can
    have twice the width (transformers 5.20, modeling_gemma4.py, Gemma4TextAttention).
    """
    layers = model_fields["layers"]
    indexes = layer_indexes(layers)
    full = _full_layers(keys, layers) | ({layers - 1} if last_is_full else set())
    first_shared = layers - keys.whole_number("num_kv_shared_layers", least=0)
    wide = keys.boolean("use_double_wide_mlp")
    shapes: list[dict[str, Any]] = []
    for layer in indexes:
        shape: dict[str, Any] = {}
        if layer in full:
            shape = {"full_attention": True, **_global_heads(keys, layer, model_fields)}
        if layer >= first_shared:
            shape = {**shape, "shared_kv": True}
            shape.pop("keys_as_values", None)
            shape |= {"ffn": 2 * model_fields["ffn"]} if wide else {}
        shapes.append(shape)
    fields = {"window": keys.whole_number("sliding_window")}
    variants = group_by_shape(shapes)
    return fields | ({"layer_variants": variants} if variants else {})


def _full_layers(keys: ConfigKeys, layers: int) -> set[int]:
    """Return the indexes of layers with full attention: those of ``layer_types``, or every n-th."""
    types, every = keys.value("layer_types"), keys.whole_number("sliding_window_pattern")
    if types is None:
        types = [_FULL if (n + 1) % every == 0 else "" for n in layer_indexes(layers)]
    elif not isinstance(types, list) or len(types) != layers:
        message = f"layer_types must list one type for each of the {layers} layers"
        keys.add_note("K03", "layer_types", message)
        return set()
    return {layer for layer, name in enumerate(types) if name == _FULL}


def _global_heads(keys: ConfigKeys, layer: int, model_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the heads of a layer with full attention, as far as they differ from the others.

    Configs that transformers wrote list them in ``per_layer_config``, by index of the layer.
    """
    listed = keys.value("per_layer_config")
    own = listed.get(str(layer)) if isinstance(listed, dict) else None
    shape: dict[str, Any] = {}
    as_values = keys.boolean("attention_k_eq_v")
    head_dim, kv_heads = (keys.optional_whole_number(key) for key in _GLOBAL_KEYS)
    if isinstance(own, dict):
        head_dim, kv_heads = own.get("head_dim"), own.get("num_key_value_heads")
    elif not as_values:
        kv_heads = None
    for field, value in (("head_dim", head_dim), ("kv_heads", kv_heads)):
        if value not in (None, model_fields.get(field)):
            shape[field] = value
    return shape | ({"keys_as_values": True} if as_values else {})


_GLOBAL_KEYS = ("global_head_dim", "num_global_key_value_heads")
_FULL = "full_attention"


def group_by_shape(shapes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one variant per distinct non-empty shape; ``shapes`` has one entry per layer."""
    variants: dict[str, dict[str, Any]] = {}
    for layer, shape in enumerate(shapes, start=1):
        if shape:
            variant = variants.setdefault(repr(sorted(shape.items())), {"layers": [], **shape})
            variant["layers"].append(layer)
    return list(variants.values())


def read_heads_per_layer(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the field ``layer_variants`` of a model with a number of heads for each layer.

    The config key is ``num_attention_heads_per_layer``; null if all layers have the same number.
    """
    key, layers = "num_attention_heads_per_layer", model_fields["layers"]
    listed = keys.value(key)
    if listed is None:
        return {}
    whole = isinstance(listed, list) and all(isinstance(one, int) and one > 0 for one in listed)
    if not whole or len(listed) != layers:
        keys.add_note("K03", key, f"{key} must list one number for each of the {layers} layers")
        return {}
    full = {layer for one in model_fields.get("layer_variants", ()) for layer in one["layers"]}
    shapes = (
        ({"full_attention": True} if layer in full else {})
        | ({"heads": heads} if heads != model_fields["heads"] else {})
        for layer, heads in enumerate(listed, start=1)
    )
    variants = group_by_shape(shapes)
    return {"layer_variants": variants} if variants else {}


def flags_per_layer(
    keys: ConfigKeys, named: tuple[str, str], numbers: str, layers: int
) -> list[bool] | None:
    """Return one boolean per layer; None if the config has neither list.

    ``named`` is a config key of a list of names, and the name that means True. ``numbers`` is a
    config key of a list of numbers, in which 0 means False.
    """
    names, listed = keys.value(named[0]), keys.value(numbers)
    found = [one == named[1] for one in names] if isinstance(names, list) else None
    if found is None and isinstance(listed, list):
        found = [bool(one) for one in listed]
    if found is not None and len(found) != layers:
        key = numbers if names is None else named[0]
        keys.add_note("K03", key, f"{key} must list one value for each of the {layers} layers")
        return None
    return found
