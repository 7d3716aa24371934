"""Conversion of a Hugging Face config to the fields of ``ModelSpec``, as its family declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.catalog.huggingface.attention import (
    SPECIAL_READERS,
    WINDOW_FORMS,
    read_latent_attention,
)
from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    first_key_with_value,
    format_value,
)
from parc.compiler.catalog.huggingface.experts import read_experts
from parc.compiler.catalog.huggingface.family import Family
from parc.compiler.catalog.huggingface.layer_variants import read_extra_weights
from parc.compiler.catalog.huggingface.position import read_position
from parc.compiler.catalog.huggingface.token_mixers import (
    add_layer_mixers,
    read_convolution,
    read_layer_pattern,
    read_linear_attention,
    read_mamba,
)

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Name of an activation function in transformers -> name in the spec."""

FIELD_READERS: dict[str, Callable[[ConfigKeys, str], Any]] = {
    "layers": ConfigKeys.whole_number,
    "hidden": ConfigKeys.whole_number,
    "ffn": ConfigKeys.uniform_whole_number,
    "vocab": ConfigKeys.whole_number,
    "heads": ConfigKeys.whole_number,
    "kv_heads": ConfigKeys.optional_whole_number,
    "head_dim": ConfigKeys.optional_whole_number,
    "value_dim": ConfigKeys.optional_whole_number,
    "activation": lambda keys, key: keys.translated_choice(key, ACTIVATIONS),
    "norm_epsilon": ConfigKeys.positive_number,
    "tied_embeddings": ConfigKeys.boolean,
    "qkv_bias": ConfigKeys.boolean,
    "attention_output_bias": ConfigKeys.boolean,
    "mlp_bias": ConfigKeys.boolean,
}
"""Field of ``ModelSpec`` that section ``keys`` can declare -> function that reads its config
key."""


def read_model(keys: ConfigKeys, family: Family) -> dict[str, Any]:
    """Return the ``ModelSpec`` fields of the config in ``keys``. Problems are added as notes."""
    keys.mark_as_read(family.ignored_keys)
    _check_required_and_assumed_values(keys, family)
    found = _fields_of_section_keys(keys, family)
    found = _add_token_mixers(keys, family, found)
    if family.window:
        found |= WINDOW_FORMS[family.window](keys, found["layers"])
    if found.get("value_dim") == found.get("head_dim"):
        found.pop("value_dim", None)
    found["position"] = read_position(keys, family.position, found)
    if family.experts:
        found |= _expert_fields(keys, family, found)
    for name in family.readers:
        found |= SPECIAL_READERS[name](keys, found)
    found = _add_constants(keys, family, found)
    extra = read_extra_weights(keys, family.extra_weights, found)
    return found | ({"extra_weights": extra} if extra else {})


def _add_token_mixers(
    keys: ConfigKeys, family: Family, model_fields: dict[str, Any]
) -> dict[str, Any]:
    """Return ``model_fields`` and those of the token mixers other than grouped-query attention.

    These are latent attention, indexers, linear attention, Mamba, convolutions and the lists of
    layers that have them.
    """
    if family.layer_pattern:
        model_fields |= _layer_pattern_fields(keys, family)
    if family.latent:
        model_fields["latent"] = read_latent_attention(keys, family.latent, model_fields)
    if family.indexer:
        model_fields["indexer"] = {
            field: keys.whole_number(key) for field, key in family.indexer.items()
        }
    if family.linear_attention:
        model_fields |= read_linear_attention(keys, family.linear_attention, model_fields)
    if family.mamba and not family.layer_pattern:
        model_fields["mamba"] = read_mamba(keys, family.mamba, model_fields)
    if family.convolution:
        model_fields["convolution"] = read_convolution(keys, family.convolution)
    return (
        add_layer_mixers(keys, family.layer_mixers, model_fields)
        if family.layer_mixers
        else model_fields
    )


def _check_required_and_assumed_values(keys: ConfigKeys, family: Family) -> None:
    """Add a note for each config key whose value is not the one that the family file requires.

    A value that differs from the one that training frameworks assume also gives a note.
    """
    _check_required_values(keys, family.requires)
    for key, value in family.assumed.items():
        if keys.value(key) != value:
            message = (
                f"{key} is {format_value(keys.value(key))}, but the spec has no field for {key}"
            )
            keys.add_note(
                "K06", key, message, f"the training framework assumes {format_value(value)}"
            )


def _check_required_values(keys: ConfigKeys, requires: Mapping[str, Any]) -> None:
    for key, rule in requires.items():
        if not isinstance(rule, dict):
            keys.require_value(key, rule)
        elif "same_as" not in rule:
            keys.require_value(key, rule.get("value"), rule.get("reason", ""))
        elif keys.value(key) is not None:
            keys.require_value(key, keys.value(rule["same_as"]), rule.get("reason", ""))


def _fields_of_section_keys(keys: ConfigKeys, family: Family) -> dict[str, Any]:
    """Return the fields of ``ModelSpec`` that section ``keys`` of the family file declares.

    Optional fields for which the config has no value are omitted.
    """
    found: dict[str, Any] = {}
    fields = family.keys.items()
    if family.layer_pattern:  # only some patterns have an MLP, others may lack its width
        fields = {field: key for field, key in fields if field != "ffn"}.items()
    for field, names in fields:
        key = first_key_with_value(keys, names)
        if field == "ffn" and family.ffn_to_hidden and keys.value(key) is None:
            found[field] = family.ffn_to_hidden * found["hidden"]
        elif (value := FIELD_READERS[field](keys, key)) is not None:
            found[field] = value
    return found


def _layer_pattern_fields(keys: ConfigKeys, family: Family) -> dict[str, Any]:
    """Return the fields of ``ModelSpec`` that depend on the layer pattern.

    These are the number of layers, the pattern, and the MLP width (0 without MLP layers). The Mamba
    dimensions are included if the pattern contains Mamba layers.
    """
    pattern = read_layer_pattern(keys, family.layer_pattern)
    # Read even without Mamba layers: the class writes its defaults into every config.
    mamba = {field: keys.whole_number(key) for field, key in family.mamba.items()}
    width = str(family.keys["ffn"])
    keys.mark_as_read((width,))
    ffn = keys.whole_number(width) if "-" in pattern else 0
    fields = {"layers": len(pattern), "pattern": pattern, "ffn": ffn}
    return fields | ({"mamba": mamba} if "M" in pattern else {})


def _expert_fields(
    keys: ConfigKeys, family: Family, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the field ``experts``, and the MLP width ``ffn`` if the experts determine it.

    ``ffn`` is 0 if all layers have experts. If the config has no experts, ``experts`` is omitted,
    and ``ffn`` is the width of the shared expert if the family declares this width.
    """
    names = family.experts
    requires = names.get("requires", {})
    if family.layer_pattern and "E" not in model_fields["pattern"]:
        # The transformers class writes these keys into every config, also without experts.
        keys.mark_as_read([key for key in names.values() if isinstance(key, str)])
        keys.mark_as_read(requires)
        return {}
    _check_required_values(keys, requires)
    experts = read_experts(keys, names, model_fields["layers"])
    if experts is None:
        shared = names.get("shared_size")
        return {"ffn": keys.whole_number(shared, least=0)} if shared else {}
    if family.layer_pattern:
        return {"experts": experts}
    # Such configs often contain an MLP width that no layer uses.
    no_dense_layer = experts.get("first_dense_layers", 0) == 0 and experts.get("every", 1) == 1
    return {"experts": experts} | ({"ffn": 0} if no_dense_layer else {})


def _add_constants(
    keys: ConfigKeys, family: Family, model_fields: dict[str, Any]
) -> dict[str, Any]:
    """Return ``model_fields`` and the constants of the family.

    In section ``switches``, a config key selects the constants to add. Constants of a nested
    section, such as experts, are added only if ``model_fields`` contains this section.
    """
    chosen = [family.constants]
    for key, branches in family.switches.items():
        chosen.append(branches.get("set" if keys.boolean(key) else "unset", {}))
    for constants in chosen:
        for field, value in constants.items():
            # A mapping is merged into a section, and only if the config has that section.
            if not isinstance(value, dict):
                model_fields[field] = value
            elif field in model_fields:
                model_fields[field] = model_fields[field] | value
    return model_fields
