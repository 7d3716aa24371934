"""Conversion of Kubernetes objects to YAML text, with keys in conventional order.

The module is separate so that only emission imports ruamel.yaml, which is slow to import.
"""

from __future__ import annotations

import io
from typing import Any


def yaml_text(documents: list[dict[str, Any]]) -> str:
    """Return the objects as YAML documents separated by ``---``.

    Strings of several lines become literal blocks, so that scripts stay readable.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    # Long commands stay on one line, so that a reader can search for them.
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump_all([_mark_literal_blocks(document) for document in documents], text)
    return text.getvalue().removeprefix("---\n")


def _mark_literal_blocks(value: Any) -> Any:
    """Return ``value`` with every string of several lines marked as a literal block."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    if isinstance(value, dict):
        return {key: _mark_literal_blocks(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mark_literal_blocks(item) for item in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value
