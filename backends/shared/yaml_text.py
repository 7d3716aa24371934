"""Conversion of settings to YAML text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def yaml_text(tree: Mapping[str, Any], indent: str = "") -> str:
    """Return nested mappings as YAML text, sorted by key.

    Texts are written without quotes. This is safe because they are constants or names, which YAML
    reads as texts.
    """
    lines = []
    for key, value in sorted(tree.items()):
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{yaml_text(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(value).strip(chr(34))}\n")
    return "".join(lines)
