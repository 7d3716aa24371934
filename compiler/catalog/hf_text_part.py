"""The decoder of text in the config of a multi-modal model: ``config.json#text_config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which multi-modal configs keep their decoder of text."""
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
    found: Any = config
    for key in part.split(".") if part else ():
        if not isinstance(found, Mapping) or not isinstance(found.get(key), Mapping):
            raise KeyError(key)
        own = found[key]
        found = {key: found[key] for key in _INHERITED if key in found} | dict(own)
    whole: Mapping[str, Any] = found
    return whole
