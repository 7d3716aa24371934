"""Renaming of one key of a spec: in its tree, in its positions, and in its text."""

from __future__ import annotations

import re
from typing import Any

from parc.compiler.diagnostics import Span

RENAME = re.compile(r'rename ((?:[^\s"=]|"[^"=]*")+) to ([A-Za-z_][\w-]*)')
"""A fix that renames the last key of a path. A key with "=" cannot be written as an override."""


def rename_in_mapping(node: dict[Any, Any], old: str, new: str) -> bool:
    """Rename the key ``old`` of a mapping, which keeps its place; return True if it was renamed.

    Nothing changes if the mapping lacks ``old`` or already has ``new``.
    """
    if old not in node or new in node:
        return False
    entries = [(new if key == old else key, value) for key, value in node.items()]
    node.clear()
    node.update(entries)
    return True


def renamed_path(path: str, old: str, new: str) -> str:
    """Return ``path`` with ``new`` in place of ``old``, if ``path`` is ``old`` or below it."""
    is_inside = path == old or path.startswith((f"{old}.", f"{old}["))
    return new + path[len(old) :] if is_inside else path


def rename_spans(table: dict[str, Span], old: str, new: str) -> dict[str, Span]:
    """Return the positions ``table`` after the path ``old`` was renamed to ``new``."""
    return {renamed_path(path, old, new): span for path, span in table.items()}


def rename_in_text(text: str, mapping: Any, old: str, new: str) -> str | None:
    """Return the YAML ``text`` with the key ``old`` of the composed node ``mapping`` renamed.

    The result is None if the mapping has no such key.
    """
    keys = [key for key, _ in mapping.value if key.value == old] if mapping.id == "mapping" else []
    if not keys:
        return None
    start, end = keys[0].start_mark.index, keys[0].end_mark.index
    return text[:start] + new + text[end:]
