"""What is said of configs that are not read: families without a reader, parts that lack."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from parc.compiler.catalog.huggingface.keys import ConfigNote, shown
from parc.compiler.catalog.huggingface.known_keys import UNKNOWN_FAMILIES
from parc.compiler.catalog.huggingface.text_part import TEXT_PARTS, is_flat, text_part


def unknown_family(config: Mapping[str, Any], known: Collection[str]) -> ConfigNote:
    """Why this model_type is not one of ``known``, and what the user can do."""
    family = config.get("model_type")
    if not isinstance(family, str):
        return ConfigNote("K02", "model_type", "the config has no model_type", _known("", known))
    inner = next((key for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), "")
    if inner or is_flat(config):
        told = f"model_type {shown(family)} holds several models"
        part = inner or TEXT_PARTS[0]
        way = _way_to(text_part(config, part), part, known)
        return ConfigNote("K02", "model_type", told, way)
    why = UNKNOWN_FAMILIES.get(family, "PARC does not know this family")
    told = f"model_type {shown(family)}: {why}"
    return ConfigNote("K02", "model_type", told, _known(family, known))


def _known(family: str, known: Collection[str]) -> str:
    """Families that are read, those of a similar name first named."""
    near = ", ".join(get_close_matches(family[:80], sorted(known), n=4, cutoff=0.6))
    listed = "docs/import.md lists the families that are known"
    return f"{listed}, nearest: {near}" if near else listed


def _way_to(config: Mapping[str, Any], part: str, known: Collection[str]) -> str:
    """What a user of a multi-modal model can do to have its decoder of text."""
    inner = config.get("model_type")
    if not isinstance(inner, str):
        return f"its {part} has no model_type"
    if inner in known:
        return f"for the decoder of text alone write #{part} behind the file: config.json#{part}"
    why = UNKNOWN_FAMILIES.get(inner, "which PARC does not know either")
    return f"its {part} is {shown(inner)}: {why}"


def no_part(config: Mapping[str, Any], part: str) -> ConfigNote:
    """The user named a part that is not there."""
    parts = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    found = [key for key, value in parts.items() if "model_type" in value]
    told = f"there is no mapping {shown(part)} in the config"
    listed = f"models in it: {', '.join(map(shown, found[:8]))}"
    alone = "it holds one model: leave the part behind # away"
    return ConfigNote("K02", part, told, listed if found else alone)
