"""Paths of spec fields, such as ``launch.kubernetes.image``."""

from __future__ import annotations

from collections.abc import Collection


def is_path_in_fields(path: str, fields: Collection[str]) -> bool:
    """Return True if ``fields`` contains ``path`` or a section that contains ``path``."""
    parts = path.split(".")
    above = {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return not above.isdisjoint(fields)
