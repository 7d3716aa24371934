"""Conversion of Kubernetes objects to YAML text, with keys in conventional order.

The module is separate so that only emission imports ruamel.yaml, which is slow to import.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that only a double-quoted scalar can represent: control characters, and line breaks
of YAML 1.1 (U+0085, U+2028, U+2029), which ruamel.yaml writes without an escape."""


def yaml_text(documents: list[dict[str, Any]]) -> str:
    """Return the objects as YAML documents separated by ``---``.

    Strings of several lines become literal blocks, so that scripts stay readable. The documents
    parse to exactly the given objects, whatever characters their strings contain.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    # Commands and lists of pod names stay on one line, so that a reader can search for them. They
    # have no upper length: 2,048 pod names have 35,000 characters.
    yaml.width = sys.maxsize
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump_all([_choose_styles(document) for document in documents], text)
    return text.getvalue().removeprefix("---\n")


def _choose_styles(value: Any) -> Any:
    """Return ``value`` with a YAML style for each string that the default style cannot represent.

    Strings of several lines become literal blocks, and strings with unusual characters are
    double-quoted.
    """
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, dict):
        return {key: _choose_styles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_choose_styles(item) for item in value]
    if not isinstance(value, str):
        return value
    if _UNSAFE.search(value):
        return DoubleQuotedScalarString(value)
    return LiteralScalarString(value) if "\n" in value else value
