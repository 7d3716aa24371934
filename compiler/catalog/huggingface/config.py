"""Read a Hugging Face ``config.json`` into the fields of ``ModelSpec``.

Unrecognized input is reported, never ignored: an unknown family or structure is K02, a missing or
invalid number K03, a key without effect K04, an unknown key K05. The message explains why a config
cannot be read, and what the user can do.

Of a multi-modal model, the text decoder is read: ``config.json#text_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import FamilyFiles, shipped_families
from parc.compiler.catalog.huggingface.keys import ConfigNote, Keys, note_unread, shown
from parc.compiler.catalog.huggingface.model_fields import read_model

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


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """Model described by a config, with remarks on the config."""

    mapping: dict[str, Any]
    """Keys of ``ModelSpec``; meaningless if a note is an error (K02, K03)."""
    notes: tuple[ConfigNote, ...]

    @property
    def failed(self) -> bool:
        """Return True if the config could not be read."""
        return any(note.code in ("K02", "K03") for note in self.notes)


def model_spec_from_config(
    config: Mapping[str, Any], name: str, part: str = "", families: FamilyFiles | None = None
) -> ConfigReading:
    """Return the model that ``config`` describes; absent keys have the defaults of their class.

    ``part``: keys, joined by dots, that lead to the config of the text decoder inside ``config``.
    ``families``: the family files, by default those of the package. A file that is incomplete is
    reported with its name and the missing key.
    """
    families = families or shipped_families()
    try:
        config = text_part(config, part)
    except KeyError:
        return ConfigReading({}, (explain_part(config, part),))
    model_type = config.get("model_type")
    try:
        if not isinstance(model_type, str) or not families.is_readable(model_type):
            return ConfigReading({}, (explain_family(config, families),))
        family = families.family(model_type)
    except FamilyError as error:
        return ConfigReading({}, (ConfigNote("K02", "model_type", str(error), _INCOMPLETE),))
    keys = Keys(config, family.defaults, family.file)
    keys.ignore(("model_type",))
    mapping = {"name": name, "family": model_type} | read_model(keys, family)
    note_unread(keys)
    return ConfigReading(mapping, tuple(dict.fromkeys(keys.notes)))


_INCOMPLETE = "a file of PARC is incomplete; docs/import.md describes the sections of a family"
