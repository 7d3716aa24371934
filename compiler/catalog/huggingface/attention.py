"""Attention and layer pattern of a Hugging Face config, as fields of ``ModelSpec``.

Covers sliding windows, latent attention, and numbers of heads that need a special rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    format_value,
)
from parc.compiler.catalog.huggingface.layer_variants import (
    layer_indexes,
    read_block_configs,
    read_global_layer_shapes,
    read_heads_per_layer,
    read_other_setting_of_windows,
    read_shared_key_values,
    read_sliding_layer_shapes,
)
from parc.compiler.catalog.huggingface.selected_keys import (
    read_block_sparse_layers,
    read_compressed_layers,
    read_shared_indexers,
)

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_latent_attention(
    keys: ConfigKeys, names: Mapping[str, str], model: Mapping[str, Any]
) -> dict[str, int]:
    """Return the fields of section ``latent`` of ``ModelSpec``: dimensions of latent attention.

    The field ``q_lora_rank`` is omitted if it is null in the config, because queries then have full
    rank. If the default of the family for ``v_dim`` is null, a config without it means hidden size
    / heads (MiniCPM3). ``model`` contains the fields of ``ModelSpec`` that were read so far.
    """
    optional = {"q_lora_rank", *(one for one in names if keys.is_null_by_default(names[one]))}
    found = {
        field: keys.optional_whole_number(key) if field in optional else keys.whole_number(key)
        for field, key in names.items()
    }
    if found.get("v_dim", 0) is None:
        found["v_dim"] = model["hidden"] // model["heads"]
    return {field: value for field, value in found.items() if value is not None}


def _sliding_window_by_layer_types(keys: ConfigKeys, layers: int) -> dict[str, Any]:
    """Return the window fields for a family with ``sliding_window`` but no switch to disable it.

    Examples are Mistral and Gemma.
    """
    return _sliding_window_fields(keys, layers, leading=0, enabled=True)


def _sliding_window_if_enabled(keys: ConfigKeys, layers: int) -> dict[str, Any]:
    """Return the window fields for a family whose configs have the key ``use_sliding_window``.

    Examples are Qwen2 and Qwen3. In their configs, ``max_window_layers`` is the number of leading
    layers with full attention.
    """
    enabled = keys.boolean("use_sliding_window")
    leading = keys.whole_number("max_window_layers", least=0) if enabled else 0
    return _sliding_window_fields(keys, layers, leading, enabled)


def _sliding_window_after_full_attention(keys: ConfigKeys, layers: int) -> dict[str, Any]:
    """Return the window fields for a family in which the first of n layers has full attention."""
    return _sliding_window_with_phase(keys, layers, 0)


def _sliding_window_before_full_attention(keys: ConfigKeys, layers: int) -> dict[str, Any]:
    """Return the window fields for a family in which the last layer has full attention.

    Every n-th layer before it has full attention too.
    """
    return _sliding_window_with_phase(keys, layers, layers - 1)


def _sliding_window_with_phase(keys: ConfigKeys, layers: int, full_layer: int) -> dict[str, Any]:
    """Return the window fields if every n-th layer before and after one layer has full attention.

    n is the default ``sliding_window_pattern`` of the family; ``layer_types`` takes precedence.
    """
    if keys.value("layer_types") is not None or keys.value("sliding_window") is None:
        return _sliding_window_by_layer_types(keys, layers)
    every = keys.whole_number("sliding_window_pattern")
    listed = layer_indexes(layers)
    full = [layer + 1 for layer in listed if (layer - full_layer) % every == 0]
    variant = {"layers": full, "full_attention": True}
    return {"window": keys.whole_number("sliding_window"), "layer_variants": [variant]}


def _attention_chunks(keys: ConfigKeys, layers: int) -> dict[str, Any]:
    """Return the window fields of Llama 4: chunks in the layers that have rotary positions.

    The other layers have full attention and no positions. ``layer_types`` takes precedence over the
    list ``no_rope_layers``, in which 1 means rotary positions, and over the distance
    ``no_rope_layer_interval`` between layers without positions (transformers 5.23).
    """
    if keys.value("attention_chunk_size") is None:
        keys.mark_as_read(("layer_types", "no_rope_layers", "no_rope_layer_interval"))
        return {}
    every = keys.whole_number("no_rope_layer_interval")
    listed = keys.value("no_rope_layers")
    types = keys.value("layer_types")
    if types is None and isinstance(listed, list) and listed:
        types = ["chunked_attention" if one else _FULL for one in listed]
    plain = [_FULL if (n + 1) % every == 0 else "chunked_attention" for n in layer_indexes(layers)]
    types = plain if types is None else types
    if not isinstance(types, list) or len(types) != layers:
        message = f"layer_types must list one type for each of the {layers} layers"
        keys.add_note("K03", "layer_types", message)
        return {}
    if {*types} == {_FULL}:
        return {}
    found = {"window": keys.whole_number("attention_chunk_size"), "window_chunks": True}
    full = [n + 1 for n, name in enumerate(types) if name == _FULL]
    if types == plain:
        return found | ({"full_attention_every": every} if full else {})
    return found | ({"layer_variants": [{"layers": full, "full_attention": True}]} if full else {})


WINDOW_FORMS: dict[str, Callable[[ConfigKeys, int], dict[str, Any]]] = {
    "chunks": _attention_chunks,
    "by_layer_types": _sliding_window_by_layer_types,
    "after_full_attention": _sliding_window_after_full_attention,
    "before_full_attention": _sliding_window_before_full_attention,
    "by_switch": _sliding_window_if_enabled,
}
"""Name of a reader of sliding windows (``window`` in a family file) -> function."""

# gemma3_text writes the key with an underscore, or leaves it to its class.
_PATTERN_KEYS = ("_sliding_window_pattern", "sliding_window_pattern")


def _sliding_window_fields(
    keys: ConfigKeys, layers: int, leading: int, enabled: bool
) -> dict[str, Any]:
    """Return the fields ``window`` and ``full_attention_every`` of ``ModelSpec``.

    The result is empty if all layers have full attention.

    Args:
        keys: values of the config.
        layers: number of layers.
        leading: number of leading layers with full attention.
        enabled: False if the config disables windows.
    """
    keys.mark_as_read(_PATTERN_KEYS)  # layer_types takes precedence
    if enabled and keys.value("sliding_window") is not None:
        uneven = unevenly_spaced_full_layers(keys, _SLIDING, layers, leading)
        if uneven:
            variant = {"layers": [layer + 1 for layer in uneven], "full_attention": True}
            return {"window": keys.whole_number("sliding_window"), "layer_variants": [variant]}
    every = full_attention_every(keys, _SLIDING, layers)
    # A null window, full attention in all layers, or use_sliding_window: false.
    if keys.value("sliding_window") is None or every == 1 or not enabled:
        return {}
    if every is None:
        every = _full_attention_period_of_pattern(keys, layers, leading)
    if every == 1:
        return {}
    found: dict[str, Any] = {"window": keys.whole_number("sliding_window")}
    return found | {"full_attention_every": every} if every else found


def _full_attention_period_of_pattern(keys: ConfigKeys, layers: int, leading: int) -> int:
    """Return n if every n-th layer has full attention; 0 if no layer has full attention.

    n is read from the config key ``sliding_window_pattern``, which is a number or a text of letters
    such as ``LLLG``. ``leading`` is the number of leading layers with full attention.
    """
    if leading >= layers:
        return 1
    for key in _PATTERN_KEYS:
        pattern = keys.value(key)
        if isinstance(pattern, str):
            return _full_attention_period_of_letters(keys, key, pattern)
        if pattern is not None:
            return keys.whole_number(key, least=0)
    return 0


def _full_attention_period_of_letters(keys: ConfigKeys, key: str, pattern: str) -> int:
    """Return the length of a pattern such as ``LLLG``. Any other pattern gives a note (K02).

    In EXAONE, ``LLLG`` means three layers with a local window, then one with full attention.
    """
    if pattern != "L" * (len(pattern) - 1) + "G":
        keys.add_note(
            "K02", key, f"{key} is {format_value(pattern)}, must be L...LG", "for example: LLLG"
        )
    return len(pattern)


def unevenly_spaced_full_layers(
    keys: ConfigKeys, other: str, layers: int, leading: int = 0
) -> list[int]:
    """Return the indexes of the layers with full attention if no period describes them.

    Empty if the layers are evenly spaced, or if ``layer_types`` has a type that is neither full
    attention nor ``other``. Without ``layer_types``, the first ``leading`` layers have full
    attention.
    """
    types = keys.value("layer_types")
    if types is None:
        return list(layer_indexes(leading)) if leading < layers else []
    if not isinstance(types, list) or len(types) != layers or {*types} != {_FULL, other}:
        return []
    full = [layer for layer, name in enumerate(types) if name == _FULL]
    every = full[0] + 1
    return full if full != list(range(full[0], layers, every)) else []


def full_attention_every(keys: ConfigKeys, other: str, layers: int) -> int | None:
    """Return n if every n-th layer in the config key ``layer_types`` has full attention.

    Return 0 if no layer has full attention, and None if the config lacks the key. The other layers
    must have the type ``other``. Any other list gives a note.
    """
    types = keys.value("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        keys.add_note(
            "K03", "layer_types", f"layer_types must list one type for each of the {layers} layers"
        )
        return 0
    strange = sorted({format_value(name) for name in types if name not in (_FULL, other)})
    if strange:
        message = f"layer_types has unsupported types: {', '.join(strange[:3])}"
        keys.add_note("K02", "layer_types", message, f"valid values: {_FULL}, {other}")
        return 0
    if _FULL not in types:
        return 0
    # The first full-attention layer determines the period; the comparison below checks the others.
    every = types.index(_FULL) + 1
    if [name == _FULL for name in types] != [(i + 1) % every == 0 for i in range(len(types))]:
        keys.add_note(
            "K02",
            "layer_types",
            "the layers with full attention are not evenly spaced in layer_types",
        )
    return every


def _falcon_head_counts(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``kv_heads`` and ``norms_per_layer`` of a Falcon model.

    Both fields depend on the type of its blocks: new (Falcon 40B), parallel (7B) or serial.
    """
    heads = model_fields["heads"]
    grouped = keys.optional_whole_number("num_kv_heads") or heads
    norms = keys.optional_whole_number("num_ln_in_parallel_attn")
    multi, parallel = keys.boolean("multi_query"), keys.boolean("parallel_attn")
    if keys.boolean("new_decoder_architecture"):
        # transformers, FalconDecoderLayer: the new block has two norms unless the config
        # sets one.
        two = not parallel or norms in (None, 2)
        return {"kv_heads": grouped, "norms_per_layer": 2 if two else 1}
    # Without the new block, Falcon has multi-query or multi-head attention.
    kv_heads = 1 if multi else heads
    if parallel:
        return {"kv_heads": kv_heads, "norms_per_layer": 2 if norms == 2 else 1}
    return {"kv_heads": kv_heads, "norms_per_layer": 2, "family": "falcon-serial"}


def _check_attention_width(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Add a note (K03) if heads x head_dim differs from the hidden size.

    The output projection of Helium works only if heads x head_dim equals the hidden size.
    """
    width = model_fields["heads"] * model_fields.get("head_dim", 0)
    if width and width != model_fields["hidden"]:
        message = f"heads x head_dim is {width}, must be hidden_size {model_fields['hidden']}"
        keys.add_note("K03", "head_dim", message)
    return {}


def _rounded_mlp_width(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the field ``ffn`` of LFM2, whose MLP width can be adjusted and rounded up.

    The config key is reduced by a third, multiplied, and rounded up to whole multiples
    (transformers 5.20, modeling_lfm2.py, Lfm2MLP).
    """
    if not keys.boolean("block_auto_adjust_ff_dim"):
        keys.mark_as_read(("block_ffn_dim_multiplier", "block_multiple_of"))
        return {}
    width, factor = int(2 * model_fields["ffn"] / 3), keys.value("block_ffn_dim_multiplier")
    multiple = keys.whole_number("block_multiple_of")
    if factor is None:
        return {"ffn": width}
    width = int(keys.positive_number("block_ffn_dim_multiplier") * width)
    return {"ffn": -(-width // multiple) * multiple}


def read_residual_streams(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the number of residual streams that hyper-connections mix."""
    return {"residual_streams": keys.whole_number("hc_mult")}


def read_convolutions_and_windows(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``window`` and ``layer_variants`` of LFM3, which has three types of layers.

    By default, layers 3, 7, 11, ... (counted from 1) have full attention, layers 5, 9, ... have a
    sliding window, and the others have a convolution (configuration_lfm3.py).
    """
    layers, key = model_fields["layers"], "layer_types"
    types = keys.value(key)
    if types is None:
        names = {0: _SLIDING, 2: _FULL}
        types = [names.get(n % 4, "conv") if n else "conv" for n in layer_indexes(layers)]
    elif not isinstance(types, list) or len(types) != layers:
        keys.add_note("K03", key, f"{key} must list one type for each of the {layers} layers")
        return {}
    found_in = {
        name: [n for n, one in enumerate(types, 1) if one == name]
        for name in ("conv", _FULL, _SLIDING)
    }
    window = keys.optional_whole_number("sliding_window")
    windowed = bool(found_in[_SLIDING]) and window is not None
    variants: list[dict[str, Any]] = [{"layers": found_in["conv"], "mixer": "convolution"}]
    if windowed:
        variants.append({"layers": found_in[_FULL], "full_attention": True})
    fields: dict[str, Any] = {"window": window} if windowed else {}
    fields["layer_variants"] = [one for one in variants if one["layers"]]
    return fields if found_in["conv"] else {**fields, "convolution": None}


def read_only_mamba(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the pattern of a model whose layers are single Mamba mixers, without attention.

    The number of attention heads is that of Mamba, so that tensor-parallel sizes are valid for it.
    """
    mamba, layers = model_fields["mamba"], len(layer_indexes(model_fields["layers"]))
    return {"pattern": "M" * layers, "heads": mamba["heads"], "head_dim": mamba["head_dim"]}


SPECIAL_READERS: dict[str, Callable[[ConfigKeys, dict[str, Any]], dict[str, Any]]] = {
    "block_configs": read_block_configs,
    "block_sparse_layers": read_block_sparse_layers,
    "compressed_layers": read_compressed_layers,
    "convolutions_and_windows": read_convolutions_and_windows,
    "only_mamba": read_only_mamba,
    "residual_streams": read_residual_streams,
    "heads_per_layer": read_heads_per_layer,
    "shared_indexers": read_shared_indexers,
    "other_setting_of_windows": read_other_setting_of_windows,
    "sliding_layer_shapes": read_sliding_layer_shapes,
    "global_layer_shapes": read_global_layer_shapes,
    "shared_key_values": read_shared_key_values,
    "rounded_mlp_width": _rounded_mlp_width,
    "attention_as_wide_as_hidden": _check_attention_width,
    "falcon_heads": _falcon_head_counts,
}
"""Name of a special reader (``readers`` in a family file) -> function.

The functions implement rules that the other sections cannot express. Each gets the fields that were
read before, and returns the fields to add or replace.
"""
