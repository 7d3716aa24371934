"""Read gated DeltaNet layers and patterns of layer types in a Hugging Face config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.catalog.huggingface.attention import full_attention_every
from parc.compiler.catalog.huggingface.keys import Keys, listed

_LETTERS = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""Layer type in ``layers_block_type`` (names before and since transformers 5) -> pattern letter."""


def read_linear_attention(keys: Keys, names: Mapping[str, str], layers: int) -> dict[str, Any]:
    """Return ``linear_attention`` of the spec; ``layer_types`` overrides the interval key."""
    found = {field: keys.size(key) for field, key in names.items()}
    every = full_attention_every(keys, "linear_attention", layers)
    if every == 0:
        keys.note("K02", "layer_types", "no layer has full attention")
    return found | {"full_attention_every": every or found["full_attention_every"]}


def read_layer_pattern(keys: Keys, names: Mapping[str, str]) -> str:
    """Return one letter per layer, as Megatron writes them; empty, with a note, if invalid."""
    letters, types = keys.raw(names["letters"]), keys.raw(names["types"])
    layers = keys.optional_size(names["layers"])
    key = names["letters"] if types is None else names["types"]
    if isinstance(types, list):
        letters = "".join(_LETTERS.get(name, "?") for name in types if isinstance(name, str))
    elif types is not None:
        letters = None
    if letters is None or letters in ("", [], {}):
        keys.note("K03", key, f"{key} is missing; it defines the type of each layer")
        return ""
    if not isinstance(letters, str) or set(letters) - {*_LETTERS.values()}:
        valid = _LETTERS if types is not None else dict.fromkeys(_LETTERS.values())
        keys.note("K02", key, f"{key} has unsupported layer types", listed(valid))
        return ""
    if layers not in (None, len(letters)):
        message = f"{key} has {len(letters)} layers, but {names['layers']} is {layers}"
        keys.note("K03", names["layers"], message)
    return letters
