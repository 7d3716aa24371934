"""Look up catalog entries that a spec names, with diagnostics for missing and malformed ones.

Users extend the catalog with files: a value with a slash, or one that ends in ``.yaml``, is the
path of an entry, relative to the folder of the spec. The file has the same keys as the entries of
``compiler/catalog/<kind>``. A GPU of a new generation needs two such files and no code:
``cluster.gpu: gpus/r100.yaml``, and in it ``generation: generations/rubin.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Finding, Sink, Span

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
