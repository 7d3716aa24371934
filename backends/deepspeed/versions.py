"""Supported versions of DeepSpeed."""

from __future__ import annotations

VERSIONS = ("0.16", "0.17", "0.18", "0.19", "0.19.6", "0.19.7", "0.19.8")
"""Releases on PyPI. Patches of 0.19 are separate entries from 0.19.6 on, because 0.19.7 and 0.19.8
removed keys; ``0.19`` means the patches before them."""
DEFAULT = "0.19.8"
