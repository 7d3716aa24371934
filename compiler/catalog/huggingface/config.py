"""Read a Hugging Face ``config.json`` into the fields of ``ModelSpec``.

Unrecognized input is reported, never ignored: an unknown family or structure is K02, a missing or
invalid number K03, a key without effect K04, an unknown key K05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parc.compiler.catalog.huggingface.explain import explain_family, explain_part
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import FamilyFiles, shipped_families
from parc.compiler.catalog.huggingface.keys import ConfigNote, Keys
from parc.compiler.catalog.huggingface.known_keys import note_unread
from parc.compiler.catalog.huggingface.model_fields import read_model
from parc.compiler.catalog.huggingface.text_part import text_part


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
