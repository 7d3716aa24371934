"""YAML text of Kubernetes objects, with keys in conventional order and scripts as blocks.

The module is separate so that only emission imports ruamel.yaml.
"""

from __future__ import annotations

import io
from typing import Any


def yaml_text(documents: list[dict[str, Any]]) -> str:
    """Return the documents separated by ``---``; multi-line strings are literal blocks."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump_all([_blocks(document) for document in documents], text)
    return text.getvalue().removeprefix("---\n")


def _blocks(value: Any) -> Any:
    from ruamel.yaml.scalarstring import LiteralScalarString

    if isinstance(value, dict):
        return {key: _blocks(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blocks(item) for item in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value
