"""Read a Hugging Face config into the fields of ``ModelSpec``, as its family file declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.catalog.huggingface.attention import (
    SPECIAL_READERS,
    WINDOW_FORMS,
    read_latent,
    read_layer_pattern,
    read_linear_attention,
)
from parc.compiler.catalog.huggingface.experts import read_experts
from parc.compiler.catalog.huggingface.family import Family
from parc.compiler.catalog.huggingface.keys import Keys, shown
from parc.compiler.catalog.huggingface.position import read_position

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
"""Activation in transformers -> activation in the spec."""

FIELD_READERS: dict[str, Callable[[Keys, str], Any]] = {
    "layers": Keys.size,
    "hidden": Keys.size,
    "ffn": Keys.size,
    "vocab": Keys.size,
    "heads": Keys.size,
    "kv_heads": Keys.optional_size,
    "head_dim": Keys.optional_size,
    "activation": lambda keys, key: keys.word(key, ACTIVATIONS),
    "norm_epsilon": Keys.number,
    "tied_embeddings": Keys.flag,
    "qkv_bias": Keys.flag,
    "attention_output_bias": Keys.flag,
    "mlp_bias": Keys.flag,
}
"""Fields of ``ModelSpec`` that section ``keys`` may declare -> how the config key is read."""


def read_model(keys: Keys, family: Family) -> dict[str, Any]:
    """Return the fields of ``ModelSpec``; problems become notes of ``keys``."""
    keys.ignore(family.ignored_keys)
    _check_values(keys, family)
    found = _plain_fields(keys, family)
    if family.layer_pattern:
        found |= _pattern_fields(keys, family)
    if family.latent:
        found["latent"] = read_latent(keys, family.latent)
    if family.linear_attention:
        names = family.linear_attention
        found["linear_attention"] = read_linear_attention(keys, names, found["layers"])
    if family.window:
        found |= WINDOW_FORMS[family.window](keys, found["layers"])
    found["position"] = read_position(keys, family.position, found)
    if family.experts:
        found |= _expert_fields(keys, family, found)
    for name in family.readers:
        found |= SPECIAL_READERS[name](keys, found)
    return _with_constants(keys, family, found)


def _check_values(keys: Keys, family: Family) -> None:
    """Check the keys that have one supported or one assumed value."""
    _require(keys, family.requires)
    for key, value in family.assumed.items():
        if keys.raw(key) != value:
            message = f"{key} is {shown(keys.raw(key))}; the spec has no field for it"
            keys.note("K06", key, message, f"the target assumes {shown(value)}")


def _require(keys: Keys, requires: Mapping[str, Any]) -> None:
    for key, rule in requires.items():
        if not isinstance(rule, dict):
            keys.require(key, rule)
        elif "same_as" not in rule:
            keys.require(key, rule.get("value"), rule.get("reason", ""))
        elif keys.raw(key) is not None:
            keys.require(key, keys.raw(rule["same_as"]), rule.get("reason", ""))


def _plain_fields(keys: Keys, family: Family) -> dict[str, Any]:
    """Read section ``keys``; optional fields that a config does not set are left out."""
    found: dict[str, Any] = {}
    fields = family.keys.items()
    if family.layer_pattern:  # only some patterns have an MLP, others may lack its width
        fields = {field: key for field, key in fields if field != "ffn"}.items()
    for field, names in fields:
        key = names if isinstance(names, str) else _first_set(keys, names)
        if field == "ffn" and family.ffn_to_hidden and keys.raw(key) is None:
            found[field] = family.ffn_to_hidden * found["hidden"]
        elif (value := FIELD_READERS[field](keys, key)) is not None:
            found[field] = value
    return found


def _first_set(keys: Keys, names: list[str]) -> str:
    """Return the first of several keys that is not null; else the last one."""
    values = {name: keys.raw(name) for name in names}
    return next((name for name, value in values.items() if value is not None), names[-1])


def _pattern_fields(keys: Keys, family: Family) -> dict[str, Any]:
    """Return the fields that the layer pattern determines.

    They are the number of layers, the pattern, and the MLP width (0 without MLP layers). If the
    pattern has Mamba layers, their sizes are returned as well.
    """
    pattern = read_layer_pattern(keys, family.layer_pattern)
    # Read even without Mamba layers: the class writes its defaults into every config.
    mamba = {field: keys.size(key) for field, key in family.mamba.items()}
    width = str(family.keys["ffn"])
    keys.ignore((width,))
    ffn = keys.size(width) if "-" in pattern else 0
    fields = {"layers": len(pattern), "pattern": pattern, "ffn": ffn}
    return fields | ({"mamba": mamba} if "M" in pattern else {})


def _expert_fields(keys: Keys, family: Family, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``experts``, and the width of dense layers that follows from it."""
    names = family.experts
    requires = names.get("requires", {})
    if family.layer_pattern and "E" not in found["pattern"]:
        keys.ignore([key for key in names.values() if isinstance(key, str)])
        keys.ignore(requires)
        return {}
    _require(keys, requires)
    experts = read_experts(keys, names, found["layers"])
    if experts is None:
        shared = names.get("shared_size")
        return {"ffn": keys.size(shared, least=0)} if shared else {}
    if family.layer_pattern:
        return {"experts": experts}
    no_dense_layer = experts.get("first_dense_layers", 0) == 0 and experts.get("every", 1) == 1
    return {"experts": experts} | ({"ffn": 0} if no_dense_layer else {})


def _with_constants(keys: Keys, family: Family, found: dict[str, Any]) -> dict[str, Any]:
    """Add the constants of the family, and those that its switches select.

    Constants of a nested section count only if the config has that section: a dense model has no
    experts.
    """
    chosen = [family.constants]
    for key, branches in family.switches.items():
        chosen.append(branches.get("set" if keys.flag(key) else "unset", {}))
    for constants in chosen:
        for field, value in constants.items():
            if not isinstance(value, dict):
                found[field] = value
            elif field in found:
                found[field] = found[field] | value
    return found
