"""Catalog of facts by kind and name, and look-up of the entries that a spec names.

The entries of the package are read on first use. The look-up reports missing and malformed entries.

Users extend the catalog with files: a value with a slash, or one that ends in ``.yaml``, is the
path of an entry, relative to the folder of the spec. The file has the same keys as the entries of
``compiler/catalog/<kind>``. A GPU of a new generation needs two such files and no code:
``cluster.gpu: gpus/r100.yaml``, and in it ``generation: generations/rubin.yaml``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
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


LABELS = {
    "clusters": "cluster",
    "fabrics": "fabric",
    "generations": "GPU generation",
    "gpus": "GPU",
    "models": "model",
    "nodes": "node type",
}
"""Kind of the catalog -> label of one entry in messages."""
USER_FILES = ("fabrics", "generations", "gpus", "nodes")
"""Kinds whose entries may also be files of the user."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Facts of one entry and the file that they are from."""

    kind: str
    name: str
    """Name in the catalog; for a file of the user, its name without ``.yaml``."""
    facts: Mapping[str, Any]
    file: str = ""
    """Path of the user's file, as the spec names it; empty for an entry of the catalog."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Positions of keys in the user's file, by dotted path."""

    @property
    def label(self) -> str:
        """File to name in messages."""
        return self.file or f"{self.kind}/{self.name}.yaml"

    def report(self, key: str, finding: Finding, sink: Sink, at: str) -> None:
        """Report K08 about ``key``, in the user's file or else at the spec path ``at``."""
        above = self.spans.get(key.rpartition(".")[0])  # a missing key is shown at its mapping
        beginning = Span(self.file, 1, 1) if self.file else None
        sink.report("K08", finding, at=at, span=self.spans.get(key) or above or beginning)


def look_up(kind: str, name: str, library: Library, sink: Sink, at: str) -> Entry | None:
    """Return the entry that ``name``, written at the spec path ``at``, refers to.

    None after K01 with at most three similar names, K07 for a file that cannot be read, K08 for a
    file that is not a mapping, or X06 and the like for a file that is not valid YAML.
    """
    if kind in USER_FILES and is_path(name):
        return _read_file(kind, name, library, sink, at)
    try:
        return Entry(kind, name, library.entry(kind, name))
    except KeyError:
        sink.report("K01", _unknown(kind, name, library.names(kind), at), at=at)
        return None


def is_path(name: str) -> bool:
    """Return True if ``name`` is the path of a file instead of a catalog name."""
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _read_file(kind: str, path: str, library: Library, sink: Sink, at: str) -> Entry | None:
    # The position-keeping YAML reader is imported on first use: most specs name no file.
    from parc.compiler.spec.reading.yaml_tree import read_tree, split_lines

    try:
        text = library.text(path)
    except OSError as error:
        reason = error.strerror or str(error)
        sink.report("K07", Finding(f"{path} cannot be read: {reason}", "named here"), at=at)
        return None
    lines = {**sink.positions.lines, path: split_lines(text)}
    sink.positions = replace(sink.positions, lines=lines)
    tree = read_tree(text, path, sink)
    if tree is None:
        return None
    entry = Entry(kind, PurePath(path.replace("\\", "/")).stem, {}, path, tree.keys)
    if not isinstance(tree.value, dict):
        entry.report("", Finding(f"{path} is not a mapping of keys to facts"), sink, at)
        return None
    return replace(entry, facts=tree.value)


def _unknown(kind: str, name: str, names: tuple[str, ...], at: str) -> Finding:
    from difflib import get_close_matches

    near = get_close_matches(name[:100].lower(), names, n=3, cutoff=0.5)
    near = near or [other for other in names if name and other.startswith(name.lower())][:3]
    return Finding(
        message=f"the catalog has no {LABELS[kind]} {name[:100]!r}",
        label="no such entry",
        help=f"did you mean {' or '.join(near)}?" if near else f"see: parc catalog {kind}",
        fix=f"{at}: {near[0]}" if near else "",
    )
