"""Read mixture-of-experts layers of a Hugging Face config, as section ``experts`` declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq
from typing import Any

from parc.compiler.catalog.huggingface.keys import Keys, shown

_SCORES = {"softmax": "softmax", "sigmoid": "sigmoid"}
_SOFTMAX_METHODS = {"greedy": "all", "group_limited_greedy": "groups"}
_SIGMOID_METHODS = {"noaux_tc": "buffer"}

Names = Mapping[str, Any]
"""Section ``experts`` of a family file: field -> config key."""


def read_experts(keys: Keys, names: Names, layers: int) -> dict[str, Any] | None:
    """Return ``experts`` of the spec; None if the config is a dense model of the family."""
    count = keys.raw(names["count"])
    if (names.get("dense_if_null") and count is None) or (
        names.get("dense_if_zero") and keys.size(names["count"], least=0) == 0
    ):
        return None
    size = keys.size(names["size"])
    found: dict[str, Any] = {
        "count": keys.uniform(names["count"]),
        "top_k": keys.uniform(names["top_k"]),
        "size": size,
        "shared_size": _shared_size(keys, names, size),
    }
    for field, read in _OPTIONAL.items():
        if field in names:
            found[field] = read(keys, names[field])
    if names.get("shared_gate"):
        found["shared_gate"] = found["shared_size"] > 0
    found |= _dense_layers(keys, names, layers)
    if "router" in names:
        found |= ROUTERS[names["router"]](keys, names, found)
    return found


_OPTIONAL: dict[str, Callable[[Keys, str], Any]] = {
    "aux_loss_coefficient": Keys.weight,
    "every": Keys.size,
    "scaling_factor": Keys.number,
    "score_function": lambda keys, key: keys.word(key, _SCORES),
}


def _shared_size(keys: Keys, names: Names, size: int) -> int:
    """Return the total width of the shared experts.

    It is the value of key ``shared_size``, or ``shared_count`` (a key or a number) times the width
    of one shared expert. That width is the key ``shared_width``, or the width of a routed expert.
    """
    if "shared_size" in names:
        return keys.size(names["shared_size"], least=0)
    count = names.get("shared_count", 0)
    if isinstance(count, str):
        count = 0 if keys.raw(count) is None else keys.size(count, least=0)
    width = keys.optional_size(names["shared_width"]) if "shared_width" in names else None
    return int(count) * (width or size)


def _dense_layers(keys: Keys, names: Names, layers: int) -> dict[str, Any]:
    """Return ``first_dense_layers`` and check the keys that list or bound layers with experts."""
    found: dict[str, Any] = {}
    if "first_dense_layers" in names:
        found["first_dense_layers"] = keys.size(names["first_dense_layers"], least=0)
    if "layer_types" in names:
        dense = _dense_by_type(keys, names["layer_types"], layers)
        found |= {} if dense is None else {"first_dense_layers": dense}
    if "dense_layers" in names:
        found["first_dense_layers"] = _dense_by_index(keys, names["dense_layers"])
    if "expert_layers" in names:
        _check_every_nth(keys, names["expert_layers"], names["every"], layers)
    if "last_layer" in names:
        _check_last_layer(keys, names["last_layer"], layers)
    return found


def _dense_by_type(keys: Keys, key: str, layers: int) -> int | None:
    """Return the number of leading ``dense`` entries in a list of layer types; None if absent."""
    types = keys.raw(key)
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        keys.note("K03", key, f"{key} must list one type for each of {layers} layers")
        return 0
    dense = types.index("sparse") if "sparse" in types else layers
    if types != ["dense"] * dense + ["sparse"] * (layers - dense):
        keys.note("K02", key, f"{key} must list the dense layers first, then the sparse ones")
    return dense


def _dense_by_index(keys: Keys, key: str) -> int:
    """Return the number of leading layers that a list of dense layers names."""
    dense = keys.raw(key) or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        message = f"{key} lists dense layers that are not the first ones"
        keys.note("K02", key, message, "for example: [0, 1, 2]")
        return 0
    return len(dense)


def _check_every_nth(keys: Keys, key: str, every_key: str, layers: int) -> None:
    """Record K02 unless the list of layers with experts names every n-th layer (Llama 4)."""
    listed, every = keys.raw(key), keys.size(every_key)
    expected = range(every - 1, layers, every)
    complete = isinstance(listed, list) and len(listed) == len(expected)
    if listed not in (None, []) and not (complete and all(map(eq, listed, expected))):
        message = f"{key} does not list every n-th layer, but {every_key} is {every}"
        keys.note("K02", key, message)


def _check_last_layer(keys: Keys, key: str, layers: int) -> None:
    """Record K02 if dense layers follow the last layer with experts (ERNIE)."""
    last = keys.raw(key)
    if last not in (None, -1) and keys.size(key, least=0) < layers - 1:
        message = f"the layers after {shown(last)} are dense again"
        keys.note("K02", key, message, f"valid values: -1, {layers - 1}")


def _softmax(keys: Keys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a softmax router.

    Softmax over all experts, then top-k, then normalization equals top-k, then softmax. So scores
    that are not normalized again need ``pre_softmax``.
    """
    return {"pre_softmax": not keys.flag(names["normalized"])}


def _softmax_grouped(keys: Keys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return DeepSeek-V2's softmax router, with or without expert groups."""
    router = _softmax(keys, names, found)
    grouped = keys.word(names["method"], _SOFTMAX_METHODS) == "groups"
    groups = _groups(keys, names) if grouped else {}
    keys.ignore((names["groups"], names["group_top_k"]))
    return router | groups


def _sigmoid(keys: Keys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return DeepSeek-V3's router: sigmoid scores and a load-balancing bias (arXiv:2412.19437).

    The bias is a buffer, not a trained parameter.
    """
    if not keys.flag(names["normalized"]):
        key = names["normalized"]
        keys.note("K02", key, "sigmoid scores that are not normalized", "valid value: true")
    return {"router_bias": keys.word(names["method"], _SIGMOID_METHODS)} | _groups(keys, names)


def _by_score(keys: Keys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the softmax router of Ling 1.5 or the sigmoid router of Ling 2.0."""
    sigmoid = found["score_function"] == "sigmoid"
    keys.require(names["expert_bias"], sigmoid)
    return (_sigmoid if sigmoid else _softmax)(keys, names, found)


def _plain_groups(keys: Keys, names: Names, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expert groups; all other router settings are constants of the family."""
    return _groups(keys, names)


def _groups(keys: Keys, names: Names) -> dict[str, Any]:
    """Return expert groups; null means one group."""
    return {field: keys.optional_size(names[field]) or 1 for field in ("groups", "group_top_k")}


ROUTERS: dict[str, Callable[[Keys, Names, Mapping[str, Any]], dict[str, Any]]] = {
    "by_score": _by_score,
    "groups": _plain_groups,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "softmax_grouped": _softmax_grouped,
}
"""Values of ``experts.router`` in a family file."""
ROUTER_FIELDS = {
    "by_score": ("normalized", "method", "groups", "group_top_k", "score_function", "expert_bias"),
    "groups": ("groups", "group_top_k"),
    "sigmoid": ("normalized", "method", "groups", "group_top_k"),
    "softmax": ("normalized",),
    "softmax_grouped": ("normalized", "method", "groups", "group_top_k"),
}
"""Router -> fields of section ``experts`` that it needs."""
