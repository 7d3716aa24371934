"""The facts of one Hugging Face model family, as declared in ``families/<model_type>.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class FamilyError(Exception):
    """A family file that is incomplete or invalid."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        """``key`` is the dotted key in ``file``; ``problem`` continues the sentence about it."""
        super().__init__(f"{file}: {key} {problem}" if key else f"{file} {problem}")
        self.file = file
        self.key = key


@dataclass(frozen=True, slots=True)
class Family:
    """Facts of one family; absent sections are empty."""

    file: str
    """Name of the file, for messages."""
    source: str
    """Page or source file that the defaults are from."""
    defaults: Mapping[str, Any]
    """Config key -> value that the transformers class uses if a config lacks the key."""
    keys: Mapping[str, str | list[str]]
    """Field of ``ModelSpec`` -> config key; of several keys the first that is not null counts."""
    position: Mapping[str, str]
    """``form`` (a key of POSITION_FORMS) and the config keys that it reads."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Field of ``ModelSpec`` -> value that does not depend on the config."""
    switches: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Boolean config key -> constants if it is true (``set``) or not (``unset``)."""
    window: str = ""
    """Reader of sliding windows (a key of WINDOW_FORMS); empty for full attention."""
    ffn_to_hidden: int = 0
    """MLP width / hidden size if the config sets no width; 0 if the config must set it."""
    latent: Mapping[str, str] = field(default_factory=dict)
    """Field of ``LatentSpec`` -> config key."""
    linear_attention: Mapping[str, str] = field(default_factory=dict)
    """Field of ``LinearAttentionSpec`` -> config key; the other layers have full attention."""
    mamba: Mapping[str, str] = field(default_factory=dict)
    """Field of ``MambaSpec`` -> config key; needs ``layer_pattern``."""
    layer_pattern: Mapping[str, str] = field(default_factory=dict)
    """Config keys of a layer pattern: ``letters`` (text) or ``types`` (list), and ``layers``."""
    experts: Mapping[str, Any] = field(default_factory=dict)
    """Field of ``ExpertsSpec`` -> config key, and keys with other meanings.

    ``router``: reader of the router (a key of ROUTERS), with its keys ``normalized``, ``method``
    and ``expert_bias``. ``shared_count`` (a key or a number) and ``shared_width``: number and width
    of shared experts. ``layer_types``, ``dense_layers``, ``expert_layers``, ``last_layer``: keys
    that list or bound the layers with experts. ``shared_gate``: the shared expert has a gate.
    ``dense_if_null`` and ``dense_if_zero``: the model is dense if ``count`` is null or 0.
    ``requires``: like the section, for configs with experts.
    """
    readers: tuple[str, ...] = ()
    """Readers for what other sections cannot express (keys of SPECIAL_READERS)."""
    requires: Mapping[str, Any] = field(default_factory=dict)
    """Config key -> only supported value, or ``{value, reason}``, or ``{same_as: key, reason}``."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """Config key -> value that targets assume; another value is a warning (K06)."""
    ignored_keys: tuple[str, ...] = ()
    """Config keys that change nothing that PARC models; ``*`` at the end matches any ending."""
    unsupported_parts: str = ""
    """Computations of the family for which ``ModelSpec`` has no field, in words."""
