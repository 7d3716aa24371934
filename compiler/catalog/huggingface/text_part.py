"""The decoder of text in the config of a multi-modal model: ``config.json#text_config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which multi-modal configs keep their decoder of text."""
FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""Families whose first configs have the keys of the decoder beside ``vision_config``."""
_INHERITED = ("tie_word_embeddings",)
"""What the whole model says of its decoder where the part does not."""


def split_part(name: str) -> tuple[str, str]:
    """``dir/config.json#text_config`` -> its file and its part; the part may be empty."""
    head, mark, part = name.rpartition(".json#")
    return (f"{head}.json", part) if mark else (name, "")


def text_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """The mapping at the keys of ``part``, which dots join; the whole where ``part`` is empty.

    Raises:
        KeyError: there is no such mapping.
    """
    if part == TEXT_PARTS[0] and is_flat(config):
        return {**config, "vision_config": None, "model_type": FLAT[config["model_type"]]}
    found: Any = config
    for key in part.split(".") if part else ():
        if not isinstance(found, Mapping) or not isinstance(found.get(key), Mapping):
            raise KeyError(key)
        own = found[key]
        found = {key: found[key] for key in _INHERITED if key in found} | dict(own)
    whole: Mapping[str, Any] = found
    return whole


def is_flat(config: Mapping[str, Any]) -> bool:
    """Whether the config of a multi-modal model has no part for its decoder."""
    family = config.get("model_type")
    return isinstance(family, str) and family in FLAT and TEXT_PARTS[0] not in config
