"""Values of a spec as YAML in flow style, for fixes and for written specs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Texts that YAML reads as text without quotes, except for the words below: YAML 1.1 reads those as
# booleans or null.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def flow_text(value: Any) -> str:
    """Return plain JSON types as YAML on one line, such as ``{tp: 8, cp_comm: p2p}``."""
    if isinstance(value, Mapping):
        pairs = (f"{scalar_text(str(key))}: {flow_text(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(flow_text(item) for item in value)}]"
    return scalar_text(value)


def _quoted_text(text: str) -> str:
    """Return ``text`` in double quotes, with escapes for characters that YAML forbids or folds."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def scalar_text(value: Any) -> str:
    """Return a text, number, boolean or None as YAML, quoted only if it must be."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else _quoted_text(value)
    return json.dumps(value)
