"""Find the text decoder in the config of a multi-modal model: ``config.json#text_config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys of the text decoder in multi-modal configs."""
_FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""model_type of configs with the decoder's keys next to ``vision_config`` -> its family."""
_INHERITED = ("tie_word_embeddings",)
"""Keys that a part takes from the mapping around it if it lacks them."""


def split_part(name: str) -> tuple[str, str]:
    """Split ``dir/config.json#text_config`` into file and part; the part may be empty."""
    head, mark, part = name.rpartition(".json#")
    return (f"{head}.json", part) if mark else (name, "")


def text_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the mapping at the keys of ``part``, joined by dots; ``config`` if it is empty.

    Raises:
        KeyError: there is no such mapping.
    """
    if part == TEXT_PARTS[0] and is_flat(config):
        return {**config, "vision_config": None, "model_type": _FLAT[config["model_type"]]}
    found: Any = config
    for key in part.split(".") if part else ():
        if not isinstance(found, Mapping) or not isinstance(found.get(key), Mapping):
            raise KeyError(key)
        inner = found[key]
        found = {name: found[name] for name in _INHERITED if name in found} | dict(inner)
    whole: Mapping[str, Any] = found
    return whole


def is_flat(config: Mapping[str, Any]) -> bool:
    """Return True if a multi-modal config has no separate mapping for its text decoder."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and model_type in _FLAT and TEXT_PARTS[0] not in config
