"""Catalog of the package: facts by kind and name, read on first use."""

from __future__ import annotations

import errno
import re
from copy import deepcopy
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table

KINDS = ("clusters", "fabrics", "generations", "gpus", "kernels", "models", "nodes")
LIMIT_BYTES = 4 * 1024 * 1024
"""Size limit for files of users; far above that of any config.json."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Library:
    """Catalog entries by name, and files of the user relative to the folder of the spec."""

    def __init__(self, folder: Path | None = None) -> None:
        """Resolve relative paths against ``folder``; None: the current directory."""
        self._folder = folder

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all entries of ``kind`` (one of KINDS), sorted."""
        return _names(kind)

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """Return the facts of one entry as plain JSON types; KeyError for an unknown name."""
        return deepcopy(_entry(kind, name))

    def text(self, path: str) -> str:
        """Return a user's file as text; OSError if it is missing, not UTF-8 or too long."""
        try:
            return self._read(Path(path)).decode("utf-8-sig")
        except ValueError as error:  # not UTF-8, or a NUL in the path
            raise OSError(errno.EILSEQ, "not a UTF-8 text file", path) from error

    def _read(self, path: Path) -> bytes:
        full = (self._folder or Path()) / path
        if full.exists() and not full.is_file():  # a pipe would block, a device never ends
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with full.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
        if len(data) > LIMIT_BYTES:
            raise OSError(errno.EFBIG, f"longer than {LIMIT_BYTES} bytes", str(path))
        return data


@cache
def _names(kind: str) -> tuple[str, ...]:
    folder = files("parc.compiler.catalog") / kind
    if kind not in KINDS or not folder.is_dir():
        return ()
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def _entry(kind: str, name: str) -> dict[str, Any]:
    # the pattern keeps ``name`` inside the folder: no slash, no leading dot
    if kind not in KINDS or not _NAME.fullmatch(name):
        raise KeyError(name)
    path = files("parc.compiler.catalog") / kind / f"{name}.yaml"
    if not path.is_file():
        raise KeyError(name)
    tree: dict[str, Any] = parse_table(path.read_text("utf-8"))
    return tree
