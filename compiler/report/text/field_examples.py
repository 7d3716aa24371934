"""Example values of the spec fields, for docs/spec.md and ``parc explain FIELD``.

A test checks that each example is a valid value of its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parc.compiler.spec.schema import FieldDoc

FILE = "field_examples.yaml"
WORDS = re.compile(r"[\w.+-]+")
LIKE = re.compile(r"\blike ([^,]+?)(?: or |,)")
"""First example in the description of a type, such as ``80 GB`` in ``a size, like 80 GB or``."""


@cache
def example_patterns() -> Mapping[str, str]:
    """Return (pattern of a spec path -> example in YAML) from the data file."""
    # Imported only here, because the YAML reader slows down the start of a command.
    from parc.compiler.diagnostics import Sink
    from parc.compiler.spec.reading.yaml_tree import read_tree

    tree = read_tree((files(__package__) / FILE).read_text("utf-8"), FILE, Sink())
    assert tree is not None
    value: Mapping[str, str] = tree.value
    return value


def example_value(field: FieldDoc) -> str:
    """Return an example of a value of ``field`` in YAML; empty for a section of other fields.

    The example differs from the default if the type has more than one value.
    """
    for pattern, text in example_patterns().items():
        if re.fullmatch(pattern, field.path):
            return text
    if field.type in ("a mapping", "a list of mappings"):
        return ""
    if field.type.startswith("true or false"):
        return "false" if field.default is True else "true"
    if field.type.startswith("a whole number"):
        return str(2 * field.default) if isinstance(field.default, int) and field.default else "2"
    if field.type.startswith("a number"):
        return "0.5" if "below 1" in field.type else "2.0"
    found = LIKE.search(field.type)
    if found:
        return found[1]
    return next((one for one in _listed_values(field.type) if one != field.default), "")


def _listed_values(description: str) -> list[str]:
    """Return the values that the description of a type lists: ``bf16, fp16 or auto``."""
    parts = re.split(r", | or ", description)
    return [part for part in parts if WORDS.fullmatch(part) and part not in ("text", "mapping")]
