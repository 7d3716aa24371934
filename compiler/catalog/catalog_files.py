"""Names and content of the files of the catalog, which are read on first use."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table

KINDS = ("clusters", "fabrics", "generations", "gpus", "kernels", "models", "nodes", "sites")
"""Kinds of catalog entries, which are also the names of the folders."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")


@cache
def catalog_names(kind: str) -> tuple[str, ...]:
    """Return the names of all catalog entries of ``kind`` (one of KINDS), sorted."""
    folder = files("parc.compiler.catalog") / kind
    if kind not in KINDS or not folder.is_dir():
        return ()
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def catalog_entry(kind: str, name: str) -> dict[str, Any]:
    """Return the content of a catalog entry, which the caller must not change.

    Raises:
        KeyError: the catalog has no entry with this name.
    """
    # The pattern keeps ``name`` inside the folder (no slash, no leading dot), and short enough for
    # a file name.
    if kind not in KINDS or not _NAME.fullmatch(name):
        raise KeyError(name)
    path = files("parc.compiler.catalog") / kind / f"{name}.yaml"
    if not path.is_file():
        raise KeyError(name)
    tree: dict[str, Any] = parse_table(path.read_text("utf-8"))
    return tree
