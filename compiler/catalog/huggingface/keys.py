"""Typed access to the keys of a Hugging Face config; what goes wrong becomes a note.

A reader asks for every key that it understands; ``unread`` then says what is left over, so that
nothing in a config is passed over in silence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 10**9
"""No dimension of a model is larger; a bigger number is a slip."""


@dataclass(frozen=True, slots=True)
class ConfigNote:
    """One remark on one key of a config; ``code`` is of family K."""

    code: str
    key: str
    message: str
    help: str = ""


class Keys:
    """The keys of one config with the defaults of its class."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """``defaults`` are those of the transformers config class of this model_type."""
        self.config = config
        self.defaults = defaults
        self.notes: list[ConfigNote] = []
        self.parts: list[Keys] = []
        self.read: set[str] = set()

    def raw(self, key: str) -> Any:
        """The value as it is written, or the default of the class, or None."""
        self.read.add(key)
        return self.config.get(key, self.defaults.get(key))

    def note(self, code: str, key: str, message: str, help: str = "") -> None:
        """Remember a remark."""
        self.notes.append(ConfigNote(code, key, message, help))

    def size(self, key: str, *, least: int = 1) -> int:
        """A whole number from ``least`` to LARGEST; ``least`` and a note where it is not."""
        value = self.raw(key)
        return least if self._refused(key, value, least) else int(value)

    def uniform(self, key: str, *, least: int = 1) -> int:
        """A whole number, or a list that says the same one for every layer."""
        value = self.raw(key)
        if not isinstance(value, list):
            return self.size(key, least=least)
        if not value or any(other != value[0] for other in value):
            self.note("K02", key, f"{key} differs from layer to layer", "one number for all layers")
            return least
        return least if self._refused(key, value[0], least) else int(value[0])

    def size_or_none(self, key: str) -> int | None:
        """A whole number, or None where it is null or absent without default."""
        return None if self.raw(key) is None else self.size(key)

    def _refused(self, key: str, value: Any, least: int) -> bool:
        """Notes what is wrong with a whole number; True where something is."""
        if value is None:
            self.note("K03", key, f"{key} is missing")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.note("K03", key, f"{key} is {shown(value)}, a whole number is needed")
        elif not least <= value <= LARGEST:
            self.note("K03", key, f"{key} is {shown(value)}, not between {least} and {LARGEST}")
        else:
            return False
        return True

    def wants(self, key: str, value: bool | int | str) -> None:
        """Notes K02 where ``key`` is set to another value, with which no model is known."""
        given = self.raw(key)
        alike = isinstance(given, bool) == isinstance(value, bool)
        if given is None or (alike and given == value):
            return
        told = f"{key} is {shown(given)}: PARC knows this family with {shown(value)} alone"
        self.note("K02", key, told, shown(value))

    def part(self, key: str, defaults: Mapping[str, Any]) -> Keys:
        """The mapping under ``key`` as keys of their own; notes are collected together."""
        value = self.raw(key)
        if value is not None and not isinstance(value, Mapping):
            self.note("K03", key, f"{key} is not a mapping")
        inner = Keys(value if isinstance(value, Mapping) else {}, defaults)
        inner.notes = self.notes
        self.parts.append(inner)
        return inner

    def number(self, key: str) -> float:
        """A positive finite number; 1.0 and a note where it is not."""
        return positive(self, key, self.raw(key))

    def flag(self, key: str) -> bool:
        """True or false; null counts as false."""
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.note("K03", key, f"{key} is {shown(value)}, true or false is needed")
        return False

    def word(self, key: str, known: Mapping[str, str]) -> str:
        """The translation of a word; a word that ``known`` lacks is not understood."""
        value = self.raw(key)
        if isinstance(value, str) and value in known:
            return known[value]
        legal = ", ".join(known)
        self.note("K02", key, f"{key} is {shown(value)}, which PARC does not know", legal)
        return next(iter(known.values()))

    def unread(self) -> list[str]:
        """Keys that are set to something and that no reader asked for, sorted."""
        return sorted(
            str(key)
            for key, value in self.config.items()
            if key not in self.read and value not in (None, False, 0, "", [], {})
        )


def positive(keys: Keys, key: str, value: Any, *, what: str = "") -> float:
    """``value`` as a positive finite float; 1.0 and a note on ``key`` where it is none.

    ``what`` is its name where it lies inside the mapping at ``key``.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Integers are compared before they become floats: a huge one would overflow.
    if number and 0 < value <= 10**18 and math.isfinite(value):
        return float(value)
    found = "missing" if value is None else shown(value)
    keys.note("K03", key, f"{what or key} is {found}, a positive number is needed")
    return 1.0


def shown(value: Any) -> str:
    """A value as the user would know it again, never longer than a few words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    # A JSON integer may have thousands of digits, more than Python agrees to print.
    if isinstance(value, int) and abs(value) >= 10**18:
        return "an enormous number"
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
