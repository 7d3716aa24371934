"""Versions of DeepSpeed that the key table tells apart."""

from __future__ import annotations

VERSIONS = ("0.16", "0.17", "0.18", "0.19", "0.19.6", "0.19.7", "0.19.8")
"""Releases of PyPI. Of 0.19 the last patches stand alone, for keys were removed in 0.19.7 and
0.19.8; ``0.19`` is what came before them."""
DEFAULT = "0.19.8"
