"""Conversion of a Hugging Face ``config.json`` to the fields of ``ModelSpec``.

Unrecognized input is reported, never ignored: an unknown family or structure as K02, a missing or
invalid number as K03, a key without effect as K04, an unknown key as K05. The message explains why
a config cannot be read, and what the user can do.

Of a multi-modal model, only the text decoder is read: ``config.json#text_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import ConfigKeys, ConfigNote, note_unread, shown
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import FamilyFiles, shipped_families
from parc.compiler.catalog.huggingface.model_fields import read_model

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which multi-modal configs contain the config of the text decoder."""
_FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""model_type of configs whose decoder keys are not in a mapping of their own, but next to
``vision_config`` -> family of the decoder."""
_INHERITED = ("tie_word_embeddings",)
"""Keys that the mapping of a text decoder inherits from the mapping around it."""


def split_part(name: str) -> tuple[str, str]:
    """Split ``dir/config.json#text_config`` into the path and the key after ``#``.

    The key is empty if the text has no ``#``.
    """
    head, mark, part = name.rpartition(".json#")
    return (f"{head}.json", part) if mark else (name, "")


def text_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the mapping inside ``config`` at ``part``, a path of keys joined by dots.

    If ``part`` is empty, return ``config`` itself.

    Raises:
        KeyError: there is no such mapping.
    """
    # Users can write #text_config for every multi-modal family, also for the old flat configs.
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
    """Return True if a multi-modal config has its decoder keys at the top level."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and model_type in _FLAT and TEXT_PARTS[0] not in config


def explain_family(config: Mapping[str, Any], families: FamilyFiles) -> ConfigNote:
    """Return a note on why PARC cannot read the family of ``config``, and what the user can do."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return ConfigNote(
            "K02",
            "model_type",
            "the config has no key model_type, which names the model family",
            _help_on_families("", families),
        )
    inner = next((key for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), "")
    if inner or is_flat(config):
        part = inner or TEXT_PARTS[0]
        message = f"model_type {shown(model_type)} contains several models"
        help = _explain_text_decoder(text_part(config, part), part, families)
        return ConfigNote("K02", "model_type", message, help)
    reason = families.reason_unsupported(model_type)
    message = f"model_type {shown(model_type)} is not supported{reason and f': {reason}'}"
    return ConfigNote("K02", "model_type", message, _help_on_families(model_type, families))


def _help_on_families(model_type: str, families: FamilyFiles) -> str:
    """Return a help text that refers to the list of supported families.

    The text also names families that are similar to ``model_type``.
    """
    near = ", ".join(get_close_matches(model_type[:80], families.names(), n=4, cutoff=0.6))
    listed = "docs/import.md lists the supported families"
    return f"{listed}; similar: {near}" if near else listed


def _explain_text_decoder(config: Mapping[str, Any], part: str, families: FamilyFiles) -> str:
    """Return how to select the text decoder at the key ``part``, or why PARC cannot read it."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return f"the text decoder under {part} has no model_type, so PARC cannot read it"
    if families.is_supported(model_type):
        return f"to read only the text decoder, append #{part} to the file: config.json#{part}"
    reason = families.reason_unsupported(model_type)
    return f"its {part} is {shown(model_type)}, which is not supported{reason and f': {reason}'}"


def explain_part(config: Mapping[str, Any], part: str) -> ConfigNote:
    """Return a note that ``config`` has no mapping ``part``, the key after ``#``."""
    parts = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    models = [key for key, value in parts.items() if "model_type" in value]
    listed = f"keys of the models in the config: {', '.join(map(shown, models[:8]))}"
    single = "the config describes a single model: remove # and the key after it"
    message = f"the config has no mapping under the key {shown(part)}"
    return ConfigNote("K02", part, message, listed if models else single)


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """Result of reading a config: fields of ``ModelSpec``, and notes on the config."""

    mapping: dict[str, Any]
    """Fields of ``ModelSpec`` by name; not usable if ``failed`` is True."""
    notes: tuple[ConfigNote, ...]

    @property
    def failed(self) -> bool:
        """True if any note is an error (K02 or K03), so that the fields cannot be used."""
        return any(note.code in ("K02", "K03") for note in self.notes)


def model_spec_from_config(
    config: Mapping[str, Any], name: str, part: str = "", families: FamilyFiles | None = None
) -> ConfigReading:
    """Return the fields of ``ModelSpec`` for ``config``, with notes on problems.

    A key that the config lacks has the default of its transformers class. ``part`` contains the
    keys, joined by dots, that lead to the config of the text decoder inside ``config``.
    ``families`` are the family files, by default those of this package. An incomplete family file
    is reported with its name and the missing key.
    """
    families = families or shipped_families()
    try:
        config = text_part(config, part)
    except KeyError:
        return ConfigReading({}, (explain_part(config, part),))
    model_type = config.get("model_type")
    try:
        if not isinstance(model_type, str) or not families.is_supported(model_type):
            return ConfigReading({}, (explain_family(config, families),))
        family = families.family(model_type)
    except FamilyError as error:
        return ConfigReading({}, (ConfigNote("K02", "model_type", str(error), _INCOMPLETE),))
    keys = ConfigKeys(config, family.defaults, family.file)
    # The family has been selected with it already.
    keys.mark_as_read(("model_type",))
    mapping = {"name": name, "family": model_type} | read_model(keys, family)
    note_unread(keys)
    # A key that is read twice would give the same note twice.
    return ConfigReading(mapping, tuple(dict.fromkeys(keys.notes)))


_INCOMPLETE = (
    "this family file of PARC is incomplete; docs/import.md describes the sections of such a file"
)
