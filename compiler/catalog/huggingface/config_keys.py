"""Typed access to the keys of a Hugging Face config; problems become notes.

Readers access every key through ``ConfigKeys``, which records the access. Keys that no reader has
accessed get a note, with the explanations in ``known_keys.yaml``, so that no key is silently
ignored. A dotted key such as ``ffn_config.moe_top_k`` means a key of a nested mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.frozen import frozen

_EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
LARGEST = 10**9
"""Upper bound of a model dimension; a larger number must be a typo."""


@frozen
class ConfigNote:
    """Problem with one key of a config, which is later reported as a finding."""

    code: str
    """Diagnostic code: K02 to K06."""
    key: str
    message: str
    help: str = ""
    nested: bool = False
    """True if ``key`` is a path of nested keys, separated by dots."""

    @property
    def path(self) -> tuple[str, ...]:
        """Keys on the path to the value that this note is about, outermost key first."""
        return tuple(self.key.split(".")) if self.nested else (self.key,)


class ConfigKeys:
    """Values of one config by key, with the defaults of its transformers class."""

    def __init__(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any], file: str = ""
    ) -> None:
        """Create a reader of ``config``. The values in ``defaults`` are used for missing keys.

        ``file`` is the name of the family file with the defaults, for help texts.
        """
        self.config = config
        self.defaults = defaults
        self.notes: list[ConfigNote] = []
        self._file = file
        self._read: set[str] = set()

    def value(self, key: str) -> Any:
        """Return the value of ``key`` in the config, or of its second name.

        Return the default of the key if the config lacks both, or None if it has no default.
        """
        parent, _, name = key.rpartition(".")
        mapping = self._nested_mapping(parent) if parent else self.config
        name = name if parent else self._name_in_config(key)
        self._read |= {key, name}
        return mapping.get(name, self.defaults.get(key))

    def _name_in_config(self, key: str) -> str:
        """Return the second name of ``key`` if the config has only this one, otherwise ``key``."""
        if key in self.config:
            return key
        second = _known_keys()["second_names"].items()
        own_keys = {name for name, value in self.defaults.items() if value is not None}
        names = (name for name, own in second if key in own and name not in own_keys)
        return next((name for name in names if name in self.config), key)

    def is_null_by_default(self, key: str) -> bool:
        """Return True if null is the default of ``key``, so that its class derives the value."""
        return self.defaults.get(key, 0) is None

    def _nested_mapping(self, key: str) -> Mapping[str, Any]:
        """Return the mapping at ``key``; an empty mapping if the value is absent or null.

        A value of another type gives a note (K03).
        """
        value = self.value(key)
        if value is not None and not isinstance(value, Mapping):
            self.add_note("K03", key, f"{key} must be a mapping")
        return value if isinstance(value, Mapping) else {}

    def mark_as_read(self, keys: Iterable[str]) -> None:
        """Mark ``keys`` as read. A key that ends in ``*`` marks all keys with that prefix."""
        for key in keys:
            if key.endswith("*"):
                self._read |= {name for name in self.config if name.startswith(key[:-1])}
            else:
                self._read.add(key)

    def add_note(self, code: str, key: str, message: str, help: str = "") -> None:
        """Add a note about the config key ``key``. ``code`` is a diagnostic code."""
        key = self._name_in_config(key)
        # Some configs have keys that contain a dot themselves, such as transformers.js_config.
        nested = key not in self.config and "." in key
        self.notes.append(ConfigNote(code, key, message, help, nested))

    def whole_number(self, key: str, *, least: int = 1) -> int:
        """Return the value of ``key``, which must be a whole number from ``least`` to LARGEST.

        For any other value, add a note (K03) and return ``least``.
        """
        value = self.value(key)
        return least if self._reject_invalid_number(key, value, least) else int(value)

    def optional_whole_number(self, key: str) -> int | None:
        """Return the value of ``key`` as a whole number; None if the key is null or absent."""
        return None if self.value(key) is None else self.whole_number(key)

    def uniform_whole_number(self, key: str, *, least: int = 1) -> int:
        """Return the whole number at ``key``, which may be a list with one equal number per layer.

        For any other value, add a note and return ``least``, the smallest valid number.
        """
        value = self.value(key)
        if not isinstance(value, list):
            return self.whole_number(key, least=least)
        if not value or any(other != value[0] for other in value):
            self.add_note(
                "K02",
                key,
                f"{key} differs between layers",
                "PARC supports one number for all layers",
            )
            return least
        return least if self._reject_invalid_number(key, value[0], least) else int(value[0])

    def _reject_invalid_number(self, key: str, value: Any, least: int) -> bool:
        """Return True, and add a note (K03), if ``value`` is not a valid whole number.

        Valid numbers are those from ``least`` to LARGEST. ``key`` is the config key of the value.
        """
        if value is None:
            help = (
                ""
                if key in self.config
                else f"the family file {self._file} has no default for {key}"
            )
            self.add_note("K03", key, f"{key} is missing", help if self._file else "")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.add_note("K03", key, f"{key} is {format_value(value)}, must be a whole number")
        elif not least <= value <= LARGEST:
            self.add_note(
                "K03", key, f"{key} is {format_value(value)}, must be between {least} and {LARGEST}"
            )
        else:
            return False
        return True

    def positive_number(self, key: str) -> float:
        """Return the value of ``key``, which must be a positive finite number.

        For any other value, add a note (K03) and return 1.0.
        """
        return check_positive_number(self, key, self.value(key))

    def non_negative_number(self, key: str) -> float:
        """Return the value of ``key``, a finite number of at least 0; 0 if the value is null."""
        return 0.0 if self.value(key) in (None, 0) else self.positive_number(key)

    def boolean(self, key: str) -> bool:
        """Return the boolean value of ``key``; False if the value is null.

        For any other value, add a note (K03) and return False.
        """
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.add_note("K03", key, f"{key} is {format_value(value)}, must be true or false")
        return False

    def translated_choice(self, key: str, words: Mapping[str, str]) -> str:
        """Return PARC's name for the value of the config key ``key``.

        ``words`` maps values in the config to names. If ``words`` does not contain the value, add a
        note (K02) and return the first name.
        """
        value = self.value(key)
        if isinstance(value, str) and value in words:
            return words[value]
        self.add_note(
            "K02",
            key,
            f"{key} is {format_value(value)}, which PARC does not support",
            valid_values_help(words),
        )
        return next(iter(words.values()))

    def require_value(self, key: str, value: Any, reason: str = "") -> None:
        """Add a note (K02) if the value of ``key`` differs from ``value``, which PARC requires.

        A list of equal entries, one per layer, is treated as a single entry. A missing key without
        a default is accepted, because the transformers class then lacks this option.
        """
        given = self.value(key)
        if given is None and (key not in self.defaults or not value):
            return
        # Some configs write one value per layer, also if all layers are equal.
        one = given[0] if isinstance(given, list) and given and given != value else given
        uniform = one is given or all(equal_and_same_type(other, one) for other in given)
        if uniform and equal_and_same_type(one, value):
            return
        only = f"this family is supported only with {format_value(value)}"
        self.add_note(
            "K02",
            key,
            f"{key} is {format_value(given)}: {reason or only}",
            f"valid value: {format_value(value)}",
        )

    def unread_keys(self) -> list[str]:
        """Return the keys with a value in the config that no reader has read, sorted."""
        found = _unread_keys_of_mapping(self.config, "", self._read)
        # Nested mappings are searched only if some of their keys are read.
        for key in {key.rpartition(".")[0] for key in self._read} - {""}:
            found += _unread_keys_of_mapping(self._nested_mapping(key), f"{key}.", self._read)
        return sorted(found)

    def repeats_read_key(self, key: str, synonyms: Iterable[Iterable[str]]) -> bool:
        """Return True if ``key`` is a synonym of a key that was read and that has the same value.

        Newer versions of transformers and other tools write a value under several names.
        """
        return any(
            equal_and_same_type(self.value(other), self.config[key])
            for names in synonyms
            if key in names and key in self.config
            for other in self._read.intersection(names)
        )


def _unread_keys_of_mapping(mapping: Mapping[str, Any], prefix: str, read: set[str]) -> list[str]:
    """Return the keys of ``mapping`` with a value that no reader has read, each with ``prefix``.

    ``read`` contains the keys that were read. Null, false, 0 and empty values are ignored.
    """
    names = [f"{prefix}{key}" for key, value in mapping.items() if value not in _EMPTY]
    return [name for name in names if name not in read]


def equal_and_same_type(value: Any, other: Any) -> bool:
    """Return True if two values are equal and have the same type, so that 1 differs from true."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def check_positive_number(keys: ConfigKeys, key: str, value: Any, *, label: str = "") -> float:
    """Return ``value`` as a float. The value must be a positive finite number.

    For any other value, add a note (K03) about ``key`` and return 1.0. The note names ``label``
    instead of ``key`` if ``label`` is given, because the value may be inside the mapping at
    ``key``.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Integers are compared before they become floats: a huge one would overflow.
    if number and 0 < value <= 10**18 and math.isfinite(value):
        return float(value)
    found = "missing" if value is None else format_value(value)
    keys.add_note("K03", key, f"{label or key} is {found}, must be a positive number")
    return 1.0


def first_key_with_value(keys: ConfigKeys, names: str | list[str]) -> str:
    """Return the first key of ``names`` with a value; the last key if all have no value."""
    listed = [names] if isinstance(names, str) else names
    values = {name: keys.value(name) for name in listed}
    return next((name for name, value in values.items() if value is not None), listed[-1])


def valid_values_help(values: Iterable[str]) -> str:
    """Return a help text that lists ``values`` as the valid values."""
    return f"valid values: {', '.join(values)}"


def format_value(value: Any) -> str:
    """Return ``value`` as text for a message, shortened to at most 40 characters.

    Mappings and lists are described by their type.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    # A JSON integer may have thousands of digits, more than Python agrees to print.
    if isinstance(value, int) and abs(value) >= 10**18:
        return "an enormous number"
    if value == []:
        return "[]"
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."


_DROPOUT_ENDINGS = ("dropout", "_pdrop")
"""Families spell the keys of dropout rates differently."""


def add_notes_on_unread_keys(keys: ConfigKeys) -> None:
    """Add a note for each key of the config that has a value but that no reader has read.

    A known key without effect gets K04, if its value turns a feature on. A key that changes the
    model structure in other families gets K02, and an unknown key gets K05. Harmless keys get no
    note, and neither does a second name of a key that was read, if both have the same value.
    """
    types = keys.config.get("layer_types")
    if isinstance(types, list) and all(name == "full_attention" for name in types):
        keys.mark_as_read(("layer_types",))  # full attention in all layers is the default
    known = _known_keys()
    for key in keys.unread_keys():
        name = key.rpartition(".")[2] if key not in keys.config else key
        if keys.repeats_read_key(key, known["synonyms"]):
            continue
        if name in known["harmless"] or name.endswith("_token_id"):
            continue
        if reason := known["no_effect"].get("dropout" if _is_dropout(name) else name, ""):
            if keys.value(key):
                keys.add_note("K04", key, f"{key} is not used: {reason}")
        elif name in known["structural"]:
            keys.add_note(
                "K02",
                key,
                f"{key} changes the model structure; PARC does not support it in this family",
            )
        else:
            keys.add_note("K05", key, f"unknown key {format_value(key)}; PARC ignores it")


def _is_dropout(name: str) -> bool:
    return name.endswith(_DROPOUT_ENDINGS)


@cache
def _known_keys() -> dict[str, Any]:
    path = files("parc.compiler.catalog.huggingface") / "known_keys.yaml"
    tree: dict[str, Any] = parse_table(path.read_text("utf-8"))
    return tree
