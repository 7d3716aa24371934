"""Versions of Megatron-Core."""

from __future__ import annotations

VERSIONS = ("0.17", "0.18", "0.19", "0.20")
DEFAULT = "0.19"
"""The newest that is released."""
