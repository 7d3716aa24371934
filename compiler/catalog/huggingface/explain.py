"""Explain why a Hugging Face config cannot be read, and what the user can do."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from parc.compiler.catalog.huggingface.family_files import FamilyFiles
from parc.compiler.catalog.huggingface.keys import ConfigNote, shown
from parc.compiler.catalog.huggingface.text_part import TEXT_PARTS, is_flat, text_part


def explain_family(config: Mapping[str, Any], families: FamilyFiles) -> ConfigNote:
    """Return why PARC cannot read configs with this model_type, and what the user can do."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return ConfigNote(
            "K02", "model_type", "the config has no model_type", _similar("", families)
        )
    inner = next((key for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), "")
    if inner or is_flat(config):
        part = inner or TEXT_PARTS[0]
        message = f"model_type {shown(model_type)} contains several models"
        help = _explain_part_family(text_part(config, part), part, families)
        return ConfigNote("K02", "model_type", message, help)
    reason = families.refusal(model_type)
    message = f"model_type {shown(model_type)} is not supported{reason and f': {reason}'}"
    return ConfigNote("K02", "model_type", message, _similar(model_type, families))


def _similar(model_type: str, families: FamilyFiles) -> str:
    """Return the help text that lists supported families, those with a similar name first."""
    near = ", ".join(get_close_matches(model_type[:80], families.names(), n=4, cutoff=0.6))
    listed = "docs/import.md lists the supported families"
    return f"{listed}; similar: {near}" if near else listed


def _explain_part_family(config: Mapping[str, Any], part: str, families: FamilyFiles) -> str:
    """Return how to select the text decoder at ``part``, or why PARC cannot read it."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return f"its {part} has no model_type"
    if families.is_readable(model_type):
        return f"to read only the text decoder, append #{part} to the file: config.json#{part}"
    reason = families.refusal(model_type)
    return f"its {part} is {shown(model_type)}, which is not supported{reason and f': {reason}'}"


def explain_part(config: Mapping[str, Any], part: str) -> ConfigNote:
    """Return the note for a part that the user names and the config lacks."""
    parts = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    models = [key for key, value in parts.items() if "model_type" in value]
    listed = f"models in the config: {', '.join(map(shown, models[:8]))}"
    single = "the config describes one model: remove the part after #"
    message = f"the config has no mapping {shown(part)}"
    return ConfigNote("K02", part, message, listed if models else single)
