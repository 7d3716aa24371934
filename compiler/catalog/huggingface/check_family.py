"""Check that a family file, which declares how to read Hugging Face configs, is valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from parc.compiler.catalog.huggingface.attention import SPECIAL_READERS, WINDOW_FORMS
from parc.compiler.catalog.huggingface.experts import ROUTER_FIELDS, ROUTERS
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.model_fields import FIELD_READERS
from parc.compiler.catalog.huggingface.position import POSITION_FORMS

_MAPPINGS = (
    *("defaults", "keys", "constants", "switches", "position", "latent", "linear_attention"),
    *("mamba", "convolution", "layer_mixers", "indexer", "layer_pattern", "experts"),
    *("requires", "assumed"),
)
_LISTS = ("readers", "ignored_keys", "extra_weights")
_TEXTS = ("source", "window", "unsupported_parts", "assumed_constants")
_SECTIONS = (*_MAPPINGS, *_LISTS, *_TEXTS, "ffn_to_hidden")
_NEEDED_SECTIONS = ("source", "defaults", "keys", "position")
_NEEDED_FIELDS = ("hidden", "vocab", "activation")
_NESTED_FIELDS = {
    "latent": ("q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim"),
    "linear_attention": (*("key_heads", "value_heads", "key_dim", "value_dim"),),
    "mamba": ("state_size", "conv_size"),
    "convolution": ("conv_size", "bias"),
    "layer_mixers": ("mixer", "types", "default_every"),
    "indexer": ("heads", "head_dim", "top_k"),
    "layer_pattern": ("letters", "types", "layers"),
    "experts": ("count", "top_k", "size"),
    "position": ("form", "max_positions"),
}
"""Section of a family file -> keys that are required if the file has this section."""
_OPTIONAL_FIELDS = {
    "linear_attention": ("conv_size", "full_attention_every"),
    "mamba": ("heads", "head_dim", "groups", "expand", "inner", "step_rank", "norm"),
    "layer_mixers": ("attention_layers", "first_layer", "flags", "period", "offset"),
    "experts": (
        *("shared_size", "shared_count", "shared_width", "shared_gate", "first_dense_layers"),
        *("layer_types", "dense_layers", "expert_layers", "last_layer", "every", "router"),
        *("normalized", "method", "groups", "group_top_k", "expert_bias", "score_function"),
        *(
            "latent_size",
            "scaling_factor",
            "aux_loss_coefficient",
            "dense_if_null",
            "dense_up_to",
            "offset",
            "requires",
        ),
    ),
    "position": ("base", "percent", "dims", "type", "ratio"),
}
_OTHER_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "dense_if_null": (bool, "be true or false"),
    "dense_up_to": (int, "be a whole number"),
    "shared_gate": (bool, "be true or false"),
    "default_every": (int, "be a whole number"),
    "first_layer": (int, "be a whole number"),
    "shared_count": ((int, str), "be a whole number or a config key"),
    "requires": (dict, "be a mapping"),
}
"""Key of a nested section whose value is not the name of a config key -> (type of the value in
Python, requirement for messages)."""
_POSITION_FIELDS = {
    "rope": ("base",),
    "alpha_rope": ("base",),
    "ratio_rope": ("ratio",),
    "rope_or_none": ("base", "type"),
}
"""Form of the position encoding -> keys that this form requires in addition."""


def check_family(tree: Mapping[str, Any], file: str) -> None:
    """Check the sections of a family file after they are merged with the sections of its base file.

    Raises:
        FamilyError: a key is missing, unknown or of the wrong type; only the first error is raised.
    """
    _check_key_names(file, "", tree, _SECTIONS)
    _check_section_types(tree, file)
    _check_needed_keys(file, "", tree, _NEEDED_SECTIONS)
    _check_section_keys(tree, file)
    for section, needed in _NESTED_FIELDS.items():
        if section in tree:
            fields = tree[section]
            _check_key_names(file, section, fields, (*needed, *_OPTIONAL_FIELDS.get(section, ())))
            _check_needed_keys(file, section, fields, needed)
    if "mamba" in tree or "only_mamba" in tree.get("readers", ()):
        mamba = tree.get("mamba", {})
        needed = ("expand",) if "step_rank" in mamba else ("heads", "head_dim", "groups")
        _check_needed_keys(file, "mamba", mamba, needed)
    if "period" in tree.get("layer_mixers", {}):
        _check_needed_keys(file, "layer_mixers", tree["layer_mixers"], ("offset",))
    _check_readers(tree, file)
    _check_constants(tree, file)
    for number, entry in enumerate(tree.get("extra_weights", ())):
        _check_extra_weights(file, f"extra_weights[{number}]", entry)


def _check_extra_weights(file: str, key: str, entry: Any) -> None:
    """Check one entry of ``extra_weights``: its keys, and that it lists products of factors."""
    _check_key_names(file, key, entry, ("name", "at", "multiplied", "parameters", "if"))
    _check_needed_keys(file, key, entry, ("name", "parameters"))
    products = entry["parameters"]
    lists = isinstance(products, list) and all(isinstance(one, list) and one for one in products)
    if not products or not lists:
        raise FamilyError(file, f"{key}.parameters must be a list of lists of factors")
    if not all(isinstance(one, int | str) for product in products for one in product):
        raise FamilyError(file, f"a factor in {key}.parameters must be a number or a config key")
    rest = {name: value for name, value in entry.items() if name != "if"}
    _check_model_fields(file, key, {"extra_weights": ({**rest, "parameters": 1},)})


def _check_section_types(tree: Mapping[str, Any], file: str) -> None:
    """Check that each section has the right type, and that names of config keys are strings."""
    wanted: dict[str, tuple[type, str]] = {
        **dict.fromkeys(_MAPPINGS, (dict, "a mapping")),
        **dict.fromkeys(_LISTS, (list, "a list")),
        **dict.fromkeys(_TEXTS, (str, "a text")),
        "ffn_to_hidden": (int, "a whole number"),
    }
    for section, value in tree.items():
        kind, words = wanted[section]
        if not isinstance(value, kind):
            raise FamilyError(file, f"{section} must be {words}")
    for section in _NESTED_FIELDS:
        for field, key in tree.get(section, {}).items():
            wanted_type, words = _OTHER_TYPES.get(field, (str, "be a config key"))
            if section == "linear_attention" or field in ("count", "top_k"):
                wanted_type, words = (str, list), "be a config key or a list of config keys"
            listed = key if isinstance(key, list) else []
            if not isinstance(key, wanted_type) or key == [] or not _are_texts(listed):
                raise FamilyError(file, f"{section}.{field} must {words}")


def _are_texts(values: Collection[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_section_keys(tree: Mapping[str, Any], file: str) -> None:
    """Check that section ``keys`` has only valid fields and all required fields."""
    keys, constants = tree["keys"], tree.get("constants", {})
    _check_key_names(file, "keys", keys, FIELD_READERS)
    # With a layer pattern, the number of layers is the length of the pattern.
    extra = "ffn" if "layer_pattern" in tree else "layers"
    heads = () if "only_mamba" in tree.get("readers", ()) else ("heads",)
    _check_needed_keys(file, "keys", {**constants, **keys}, (*_NEEDED_FIELDS, *heads, extra))
    if "ffn" not in keys and "ffn" not in constants:
        raise FamilyError(file, "keys.ffn is missing")
    for field, names in keys.items():
        listed = names if isinstance(names, list) else [names]
        if not listed or not all(isinstance(name, str) for name in listed):
            raise FamilyError(file, f"keys.{field} must be a config key or a list of config keys")


def _check_readers(tree: Mapping[str, Any], file: str) -> None:
    """Check that all readers named in the file exist, and that their required keys are present."""
    position, experts = tree["position"], tree.get("experts", {})
    _check_name_in_list(file, "position.form", position["form"], POSITION_FORMS)
    _check_needed_keys(file, "position", position, _POSITION_FIELDS.get(position["form"], ()))
    if "window" in tree:
        _check_name_in_list(file, "window", tree["window"], WINDOW_FORMS)
    for name in tree.get("readers", ()):
        _check_name_in_list(file, "readers", name, SPECIAL_READERS)
    if "router" in experts:
        _check_name_in_list(file, "experts.router", experts["router"], ROUTERS)
        _check_needed_keys(file, "experts", experts, ROUTER_FIELDS[experts["router"]])
    for rules in (tree.get("requires", {}), experts.get("requires", {})):
        for key, rule in rules.items():
            if isinstance(rule, dict):
                _check_key_names(file, f"requires.{key}", rule, ("value", "same_as", "reason"))
    if "expert_layers" in experts or "offset" in experts:
        _check_needed_keys(file, "experts", experts, ("every",))


def _check_constants(tree: Mapping[str, Any], file: str) -> None:
    """Check that each constant belongs to a field of ``ModelSpec`` and is a valid value of it."""
    for key, value in tree.get("constants", {}).items():
        _check_model_fields(file, f"constants.{key}", {key: value})
    for key, branches in tree.get("switches", {}).items():
        name = f"switches.{key}"
        if not isinstance(branches, dict):
            raise FamilyError(file, f"{name} must be a mapping")
        _check_key_names(file, name, branches, ("set", "unset"))
        for branch, fields in branches.items():
            _check_model_fields(file, f"{name}.{branch}", fields)


def _check_model_fields(file: str, key: str, fields: Any) -> None:
    """Check that ``fields`` maps fields of ``ModelSpec`` to valid values."""
    from pydantic import ValidationError

    from parc.compiler.spec.model_spec import ModelSpec

    if isinstance(fields, dict) and None in fields.values():
        raise FamilyError(file, f"{key} must not contain null")
    try:
        # The spec model checks names and values, so that no second list of fields is needed here.
        ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise FamilyError(file, f"{key} is invalid: {error.errors()[0]['msg']}") from error


def _check_key_names(file: str, key: str, mapping: Any, valid: Collection[str]) -> None:
    if not isinstance(mapping, Mapping):
        raise FamilyError(file, f"{key} must be a mapping")
    for name in mapping:
        _check_name_in_list(
            file, f"{key}.{name}".lstrip("."), name, valid, known="is not a valid key"
        )


def _check_name_in_list(
    file: str, key: str, name: Any, valid: Collection[str], known: str = ""
) -> None:
    if name not in valid:
        # If no valid name is similar, list all of them.
        near = get_close_matches(str(name)[:80], sorted(valid), n=4, cutoff=0.6) or sorted(valid)
        problem = known or f"is {name!r}"
        raise FamilyError(file, f"{key} {problem}; valid values: {', '.join(near)}")


def _check_needed_keys(
    file: str, key: str, mapping: Mapping[str, Any], needed: Collection[str]
) -> None:
    for name in needed:
        if name not in mapping:
            raise FamilyError(file, f"{f'{key}.{name}'.lstrip('.')} is missing")
