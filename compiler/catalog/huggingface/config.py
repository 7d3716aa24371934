"""Conversion of a Hugging Face ``config.json`` to the fields of ``ModelSpec``.

Unrecognized input is reported, never ignored: an unknown family or structure as K02, a missing or
invalid number as K03, a key without effect as K04, an unknown key as K05. If a config cannot be
read, the message explains why, and what the user can do.

Of a multi-modal model, only the text decoder is read: ``config.json#text_config``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import (
    ConfigKeys,
    ConfigNote,
    add_notes_on_unread_keys,
    format_value,
)
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import FamilyFiles, shipped_families
from parc.compiler.catalog.huggingface.model_fields import read_model
from parc.compiler.ir.frozen import frozen

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config.text_config")
"""Keys under which multi-modal configs contain the config of the text decoder. Keys of nested
mappings are joined by dots."""
_FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""``model_type`` of a config that has the keys of its text decoder at the top level, next to
``vision_config`` -> family of the text decoder."""
DECODERS_ONLY = "PARC plans decoder-only models"
_INHERITED = ("tie_word_embeddings",)
"""Keys that also apply to a text decoder if the config contains them one level above it."""


def split_config_path(name: str) -> tuple[str, str]:
    """Return (path, key) of a name such as ``dir/config.json#text_config``.

    The key is the text after ``#``. It is empty if the name has no ``#``.
    """
    head, mark, part = name.rpartition(".json#")
    return (f"{head}.json", part) if mark else (name, "")


def model_name_of(path: str, config: Mapping[str, Any]) -> str:
    """Return the name of the model in a file: ``qwen3-8b`` for ``qwen3-8b/config.json``.

    The name is the file name without its extension, or the name of its folder if the file is called
    config.json. Without a folder it is the ``model_type`` of the config. Characters that a model
    name cannot contain become ``-``.
    """
    pure = PurePath(path.replace("\\", "/"))
    # Downloaded checkpoints are folders named after the model that contain config.json.
    names = (pure.parent.name, config.get("model_type")) if pure.stem == "config" else ()
    usable = (name for name in names if isinstance(name, str) and name not in ("", ".."))
    return re.sub(r"[^A-Za-z0-9._-]", "-", next(usable, pure.stem))[:128] or "model"


def text_decoder_config(
    config: Mapping[str, Any], part: str, families: FamilyFiles
) -> Mapping[str, Any]:
    """Return the config of the text decoder, which is the mapping at ``part`` inside ``config``.

    ``part`` consists of keys joined by dots. If ``part`` is empty, the result is ``config`` itself.
    A text decoder without ``model_type`` gets that of the level above with the ending ``_text``, if
    this is a supported family.

    Raises:
        KeyError: the config has no such mapping.
    """
    # Users can write #text_config for every multi-modal family, also for the old flat configs.
    if part == TEXT_PARTS[0] and has_decoder_keys_at_top(config):
        return {**config, "vision_config": None, "model_type": _FLAT[config["model_type"]]}
    found: Any = config
    for key in part.split(".") if part else ():
        if not isinstance(found, Mapping) or not isinstance(found.get(key), Mapping):
            raise KeyError(key)
        inner, family = found[key], f"{found.get('model_type')}_text"
        found = {name: found[name] for name in _INHERITED if name in found} | dict(inner)
        # transformers takes the class of the decoder from the class of the whole model.
        if "model_type" not in inner and families.is_supported(family):
            found["model_type"] = family
    whole: Mapping[str, Any] = found
    return whole


def _find_text_decoder(
    config: Mapping[str, Any], families: FamilyFiles
) -> tuple[str, Mapping[str, Any]] | None:
    """Return the part of a multi-modal config that is its text decoder, and the decoder's config.

    The result is None if the config contains one model.
    """
    for part in TEXT_PARTS:
        with suppress(KeyError):
            return part, text_decoder_config(config, part, families)
    return None


def has_decoder_keys_at_top(config: Mapping[str, Any]) -> bool:
    """Return True if a multi-modal config has the keys of its text decoder at the top level."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and model_type in _FLAT and TEXT_PARTS[0] not in config


def explain_unsupported_family(
    config: Mapping[str, Any], families: FamilyFiles, part: str = ""
) -> ConfigNote:
    """Return a note that explains why PARC cannot read configs of this family, with a help text.

    ``config`` is the mapping under ``part`` of a file.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return ConfigNote(
            "K02",
            "model_type",
            f"the config{part and f' under {part}'} has no key model_type, which names the family",
            _supported_families_help("", families),
        )
    if (found := _find_text_decoder(config, families)) is not None:
        message = f"model_type {format_value(model_type)} contains several models"
        inner, decoder_config = found
        help = _explain_text_decoder(decoder_config, inner, families)
        return ConfigNote("K02", "model_type", message, help)
    reason = families.reason_unsupported(model_type) or _reason_in_keys(config)
    decoder = f"{model_type}_text"
    if families.is_supported(decoder) or families.reason_unsupported(decoder):
        reason = f"it contains several models, but the config has no key {TEXT_PARTS[0]}"
    message = f"model_type {format_value(model_type)} is not supported{reason and f': {reason}'}"
    help = _supported_families_help(model_type, families, decodes=reason != _ENCODER_DECODER)
    return ConfigNote("K02", "model_type", message, help)


_ENCODER_DECODER = "it is an encoder and a decoder"


def _reason_in_keys(config: Mapping[str, Any]) -> str:
    """Return why PARC cannot read a config of an unknown family, if its keys show a reason."""
    parts = all(isinstance(config.get(key), Mapping) for key in ("encoder", "decoder"))
    if parts or config.get("is_encoder_decoder") is True:
        return _ENCODER_DECODER
    if config.get("cross_attention_layers"):
        return "some layers attend to another input (cross_attention_layers)"
    return ""


def _supported_families_help(
    model_type: str, families: FamilyFiles, *, decodes: bool = True
) -> str:
    """Return a help text that refers to the list of supported families.

    The text also lists supported families with a name similar to ``model_type``. ``decodes`` is
    False for a model that section ``model`` cannot describe, because it is not only a decoder.
    """
    near = ", ".join(get_close_matches(model_type[:80], families.names(), n=4, cutoff=0.6))
    similar = f"; similar: {near}" if near else ""
    advice = families.describe_alternative(model_type) if decodes else DECODERS_ONLY
    return f"{advice}; docs/import.md lists the supported families{similar}"


def _explain_text_decoder(config: Mapping[str, Any], part: str, families: FamilyFiles) -> str:
    """Return a help text that explains how to select the text decoder at ``part``.

    If PARC cannot read the text decoder, the help text states the reason instead.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return f"the text decoder under {part} has no model_type, so PARC cannot read it"
    if families.is_supported(model_type):
        return f"to read only the text decoder, append #{part} to the file: config.json#{part}"
    reason = families.reason_unsupported(model_type) or _reason_in_keys(config)
    named = format_value(model_type)
    advice = families.describe_alternative(model_type)
    return (
        f"the text decoder is {named}, which is not supported{reason and f': {reason}'}; {advice}"
    )


def explain_missing_part(config: Mapping[str, Any], part: str) -> ConfigNote:
    """Return a note that the config has no mapping at ``part``, which is given after ``#``."""
    parts = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    models = [key for key, value in parts.items() if "model_type" in value]
    listed = f"keys of the models in the config: {', '.join(map(format_value, models[:8]))}"
    single = "the config describes a single model: remove # and the key after #"
    message = f"the config has no mapping under the key {format_value(part)}"
    return ConfigNote("K02", part, message, listed if models else single)


@frozen
class ConfigReading:
    """Result of reading a config: fields of ``ModelSpec``, and notes on the config."""

    mapping: dict[str, Any]
    """Fields of ``ModelSpec`` by name; not usable if ``failed`` is True."""
    notes: tuple[ConfigNote, ...]

    @property
    def failed(self) -> bool:
        """True if a note is an error (K02 or K03). In this case the fields must not be used."""
        return any(note.code in ("K02", "K03") for note in self.notes)


def model_spec_from_config(
    config: Mapping[str, Any], name: str, part: str = "", families: FamilyFiles | None = None
) -> ConfigReading:
    """Return the fields of ``ModelSpec`` read from a Hugging Face config, and notes on problems.

    If the config lacks a key, the default of the transformers class is used.

    Args:
        config: content of config.json.
        name: name of the model.
        part: path of keys, joined by dots, to the text decoder inside ``config``; empty for all.
        families: family files; None means those of this package.
    """
    families = families or shipped_families()
    try:
        config = text_decoder_config(config, part, families)
    except KeyError:
        return ConfigReading({}, (explain_missing_part(config, part),))
    model_type = config.get("model_type")
    try:
        if not isinstance(model_type, str) or not families.is_supported(model_type):
            return ConfigReading({}, (explain_unsupported_family(config, families, part),))
        family = families.load_family(model_type)
    except FamilyError as error:
        return ConfigReading({}, (ConfigNote("K02", "model_type", str(error), _INCOMPLETE),))
    keys = ConfigKeys(config, family.defaults, family.file)
    # The key was already used to select the family.
    keys.mark_as_read(("model_type",))
    mapping = {"name": name, "family": model_type} | read_model(keys, family)
    add_notes_on_unread_keys(keys)
    # A key that is read twice would give the same note twice.
    return ConfigReading(mapping, tuple(dict.fromkeys(keys.notes)))


_INCOMPLETE = (
    "this family file of PARC is incomplete; docs/import.md describes the sections of such a file"
)
