"""Mixture-of-experts layers of a Hugging Face config, as fields of ``ExpertsSpec``.

Section ``experts`` of a family file declares which keys are read, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    first_key_with_value,
    format_value,
)

_SCORES = {"softmax": "softmax", "sigmoid": "sigmoid"}
_SOFTMAX_METHODS = {"greedy": "all", "group_limited_greedy": "groups"}
_SIGMOID_METHODS = {"noaux_tc": "buffer"}

Names = Mapping[str, Any]
"""Section ``experts`` of a family file, which mainly maps fields of ``ExpertsSpec`` to config
keys."""


def read_experts(keys: ConfigKeys, names: Names, layers: int) -> dict[str, Any] | None:
    """Return the fields of section ``experts`` of ``ModelSpec``; None for a dense model."""
    count, top_k = (first_key_with_value(keys, names[field]) for field in ("count", "top_k"))
    if names.get("dense_if_null") and keys.value(count) is None:
        return None
    if "dense_up_to" in names and keys.whole_number(count, least=0) <= names["dense_up_to"]:
        keys.mark_as_read([names[field] for field in ("offset", "every") if field in names])
        keys.mark_as_read((top_k,))
        return None
    size = keys.whole_number(names["size"])
    found: dict[str, Any] = {
        "count": keys.uniform_whole_number(count),
        "top_k": keys.uniform_whole_number(top_k),
        "size": size,
        "shared_size": _shared_expert_width(keys, names, size),
    }
    if "latent_size" in names:
        found["latent_size"] = keys.optional_whole_number(names["latent_size"]) or 0
    for field, read in _OPTIONAL.items():
        if field in names:
            found[field] = read(keys, names[field])
    if names.get("shared_gate"):
        found["shared_gate"] = found["shared_size"] > 0
    found |= _leading_dense_layers(keys, names, layers)
    if "router" in names:
        found |= ROUTERS[names["router"]](keys, names, found)
    return found


_OPTIONAL: dict[str, Callable[[ConfigKeys, str], Any]] = {
    "aux_loss_coefficient": ConfigKeys.non_negative_number,
    "every": ConfigKeys.whole_number,
    # null means that the output is not scaled, as in the published config of MiMo-V2-Flash.
    "scaling_factor": lambda keys, key: (
        1.0 if keys.value(key) is None else keys.positive_number(key)
    ),
    "score_function": lambda keys, key: keys.translated_choice(key, _SCORES),
}


def _shared_expert_width(keys: ConfigKeys, names: Names, size: int) -> int:
    """Return the total MLP width of the shared experts.

    If the family declares ``shared_size``, the width is read from this config key. Otherwise the
    width is the number of shared experts times the width of one. The latter is read from
    ``shared_width``; without it, ``size`` is used, the width of a routed expert.
    """
    if "shared_size" in names:
        return keys.whole_number(names["shared_size"], least=0)
    count = names.get("shared_count", 0)
    if isinstance(count, str):
        count = 0 if keys.value(count) is None else keys.whole_number(count, least=0)
    width = keys.optional_whole_number(names["shared_width"]) if "shared_width" in names else None
    return int(count) * (width or size)


def _leading_dense_layers(keys: ConfigKeys, names: Names, layers: int) -> dict[str, Any]:
    """Return the field ``first_dense_layers``; empty if the config does not determine it.

    Adds notes if ``ExpertsSpec`` cannot express which layers have experts.
    """
    found: dict[str, Any] = {}
    if "first_dense_layers" in names:
        found["first_dense_layers"] = keys.whole_number(names["first_dense_layers"], least=0)
    if "layer_types" in names:
        dense = _dense_layers_by_type(keys, names["layer_types"], layers)
        found |= {} if dense is None else {"first_dense_layers": dense}
    if "dense_layers" in names:
        found["first_dense_layers"] = _dense_layers_by_index(keys, names["dense_layers"])
    if "expert_layers" in names:
        _check_expert_layer_interval(keys, names["expert_layers"], names["every"], layers)
    if "offset" in names:
        every, first = keys.whole_number(names["every"]), names["offset"]
        # Layers n, 2n, ... (counted from 1) have experts: the first one has index n - 1.
        keys.require_value(first, every - 1, "experts are in other layers than every n-th one")
    if "last_layer" in names:
        _check_last_expert_layer(keys, names["last_layer"], layers)
    return found


def _dense_layers_by_type(keys: ConfigKeys, key: str, layers: int) -> int | None:
    """Return the number of leading dense layers, counted in the list of layer types at ``key``.

    Return None if the config lacks the list. Dense layers that follow a layer with experts give a
    note (K02).
    """
    types = keys.value(key)
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        keys.add_note("K03", key, f"{key} must list one type for each of the {layers} layers")
        return 0
    dense = types.index("sparse") if "sparse" in types else layers
    if types != ["dense"] * dense + ["sparse"] * (layers - dense):
        keys.add_note("K02", key, f"{key} must list the dense layers first, then the sparse ones")
    return dense


def _dense_layers_by_index(keys: ConfigKeys, key: str) -> int:
    """Return the length of the list at ``key``, which contains the indexes of the dense layers.

    Adds a note (K02) and returns 0 if these are not the first layers of the model.
    """
    dense = keys.value(key) or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        message = f"{key} must list the first layers of the model, without gaps"
        keys.add_note("K02", key, message, "for example: [0, 1, 2]")
        return 0
    return len(dense)


def _check_expert_layer_interval(keys: ConfigKeys, key: str, every_key: str, layers: int) -> None:
    """Add a note (K02) if the layers with experts are not every n-th layer, as in Llama 4.

    The config key ``key`` lists the layers with experts, and the config key ``every_key`` contains
    n.
    """
    listed, every = keys.value(key), keys.whole_number(every_key)
    # 0-based indexes: with every = 2, the layers 1, 3, 5, ...
    expected = range(every - 1, layers, every)
    complete = isinstance(listed, list) and len(listed) == len(expected)
    if listed not in (None, []) and not (complete and all(map(eq, listed, expected))):
        message = f"{key} must list every n-th layer, with n = {every_key} = {every}"
        keys.add_note("K02", key, message)


def _check_last_expert_layer(keys: ConfigKeys, key: str, layers: int) -> None:
    """Add a note (K02) if dense layers follow the last layer with experts (possible in ERNIE).

    ``key`` is the config key with the index of the last layer with experts.
    """
    last = keys.value(key)
    # -1 means the last layer of the model (ERNIE's moe_layer_end_index).
    if last not in (None, -1) and keys.whole_number(key, least=0) < layers - 1:
        message = (
            f"{key} is {format_value(last)}; PARC does not support dense layers after that layer"
        )
        keys.add_note("K02", key, message, f"valid values: -1, {layers - 1}")


def _softmax_router(
    keys: ConfigKeys, names: Names, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of ``ExpertsSpec`` that describe a softmax router."""
    # Softmax, top-k and normalization of the selected scores give the same result as top-k and
    # then softmax. So the softmax must come first only if the scores are not normalized.
    return {"pre_softmax": not keys.boolean(names["normalized"])}


def _grouped_softmax_router(
    keys: ConfigKeys, names: Names, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``ExpertsSpec`` fields of the softmax router of DeepSeek-V2.

    The fields for expert groups are included only if the config enables grouped routing.
    """
    router = _softmax_router(keys, names, model_fields)
    grouped = keys.translated_choice(names["method"], _SOFTMAX_METHODS) == "groups"
    groups = _expert_group_fields(keys, names) if grouped else {}
    # Configs without grouped routing contain these keys too, without effect.
    keys.mark_as_read((names["groups"], names["group_top_k"]))
    return router | groups


def _sigmoid_router(
    keys: ConfigKeys, names: Names, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``ExpertsSpec`` fields of the router of DeepSeek-V3: sigmoid scores and a bias.

    The bias balances the load. It is a buffer and not a trained parameter (arXiv:2412.19437).
    """
    if not keys.boolean(names["normalized"]):
        key = names["normalized"]
        keys.add_note(
            "K02",
            key,
            f"{key} is false; PARC supports sigmoid routers only with normalized scores",
            "valid value: true",
        )
    return {
        "router_bias": keys.translated_choice(names["method"], _SIGMOID_METHODS)
    } | _expert_group_fields(keys, names)


def _router_by_score(
    keys: ConfigKeys, names: Names, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``ExpertsSpec`` fields of the router of Ling, which depends on the version.

    Ling 1.5 has a softmax router and Ling 2.0 a sigmoid router.
    """
    sigmoid = model_fields["score_function"] == "sigmoid"
    keys.require_value(names["expert_bias"], sigmoid)
    return (_sigmoid_router if sigmoid else _softmax_router)(keys, names, model_fields)


def _group_fields_without_router(
    keys: ConfigKeys, names: Names, model_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return only the fields of the expert groups, because the family fixes all other fields."""
    return _expert_group_fields(keys, names)


def _expert_group_fields(keys: ConfigKeys, names: Names) -> dict[str, Any]:
    """Return the fields ``groups`` and ``group_top_k``. A null in the config is returned as 1."""
    return {
        field: keys.optional_whole_number(names[field]) or 1 for field in ("groups", "group_top_k")
    }


ROUTERS: dict[str, Callable[[ConfigKeys, Names, Mapping[str, Any]], dict[str, Any]]] = {
    "by_score": _router_by_score,
    "groups": _group_fields_without_router,
    "sigmoid": _sigmoid_router,
    "softmax": _softmax_router,
    "softmax_grouped": _grouped_softmax_router,
}
"""Name of a router (``experts.router`` in a family file) -> function that reads its fields."""
ROUTER_FIELDS = {
    "by_score": ("normalized", "method", "groups", "group_top_k", "score_function", "expert_bias"),
    "groups": ("groups", "group_top_k"),
    "sigmoid": ("normalized", "method", "groups", "group_top_k"),
    "softmax": ("normalized",),
    "softmax_grouped": ("normalized", "method", "groups", "group_top_k"),
}
"""Name of a router -> fields of section ``experts`` that the router needs."""
