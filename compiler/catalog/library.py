"""Catalog of hardware and models, and look-up of the entries that a spec refers to.

Entries are read on first use. The look-up reports missing and malformed entries.

Users extend the catalog with files: a value with a slash, or one that ends in ``.yaml``, is the
path of a file, relative to the folder of the spec. The file has the same keys as the entries of
``compiler/catalog/<kind>``. A GPU of a new generation needs two such files and no code:
``cluster.gpu: gpus/r100.yaml``, and in that file ``generation: generations/rubin.yaml``.

A spec may come from another person, and diagnostics appear in public logs. So the files that a spec
refers to must be below one folder. Diagnostics quote single words of these files, and only if PARC
recognizes the format.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Protocol

from parc.compiler.catalog.catalog_files import catalog_entry, catalog_names
from parc.compiler.catalog.find_hardware import find_gpus
from parc.compiler.catalog.instance_types import node_of_instance_type
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.diagnostics.similar_names import suggest_entries
from parc.compiler.ir.frozen import frozen

LIMIT_BYTES = 4 * 1024 * 1024
"""Size limit of a user's file in bytes, far above the size of any config.json."""


@frozen
class FileRule:
    """Size limit of a user's file, and the diagnostic code for a file that cannot be read."""

    code: str = "K07"
    limit_bytes: int = LIMIT_BYTES
    advice: str = ""
    """Help for a file that is too long."""


SMALL_FILE = FileRule()


class TextReader(Protocol):
    """Reader of the files that a spec names."""

    def text(self, path: str, limit_bytes: int = LIMIT_BYTES) -> str:
        """Return the text of a user's file, whose path is relative to the spec.

        Raises:
            OSError: the file cannot be read, or is longer than ``limit_bytes``.
        """


ROOT_OPTION = "--root DIR allows all files below DIR; a symbolic link counts as its target"
"""Help text for a file outside the folder of the spec, in commands that read a spec."""


class OutsideRootError(OSError):
    """Error: a user's file is outside the folder that PARC may read."""

    def __init__(self, path: str, folder: str, advice: str) -> None:
        """Store the path in the spec, a description of the allowed folder, and the help text."""
        super().__init__(errno.EACCES, f"the file is outside {folder}", path)
        self.folder, self.advice = folder, advice


class Library:
    """Entries of the catalog by name, and files of the user relative to the folder of the spec."""

    def __init__(
        self, folder: Path | None = None, root: Path | None = None, advice: str = ROOT_OPTION
    ) -> None:
        """Set the folders for user files.

        Paths are relative to ``folder``, by default the current folder. All user files must be
        below ``root``. If ``root`` is None, they can be anywhere. ``advice`` is the help text for
        a file outside ``root``.
        """
        self._folder = folder or Path()
        self._root = root
        self._advice = advice

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all catalog entries of ``kind`` (one of KINDS), sorted."""
        return catalog_names(kind)

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """Return the content of a catalog entry as plain JSON types.

        Raises:
            KeyError: the catalog has no entry of this name.
        """
        copied: dict[str, Any] = json.loads(_entry_as_json(kind, name))
        return copied

    def text(self, path: str, limit_bytes: int = LIMIT_BYTES) -> str:
        """Return the text of a user's file.

        Raises:
            OutsideRootError: the file is not below the root folder.
            OSError: the file is missing, not UTF-8, or longer than ``limit_bytes``.
        """
        try:
            return self._read_bytes(path, limit_bytes).decode("utf-8-sig")
        except ValueError as error:  # not UTF-8, or a NUL in the path
            raise OSError(errno.EILSEQ, "the file is not a UTF-8 text", path) from error

    def _read_bytes(self, path: str, limit_bytes: int) -> bytes:
        # Symbolic links are resolved before the check, and the checked path itself is opened. The
        # file is not accessed before the check, so the message cannot show if it exists.
        full = Path(os.path.realpath(self._folder / path))
        if self._root is not None and not full.is_relative_to(os.path.realpath(self._root)):
            own = self._root == self._folder
            allowed = "the folder of the spec" if own else f"{self._root}"
            raise OutsideRootError(path, allowed, self._advice)
        if full.exists() and not full.is_file():  # a pipe would block, a device never ends
            raise OSError(errno.EINVAL, "the path is not a regular file", path)
        with full.open("rb") as file:
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise OSError(errno.EFBIG, f"the file is longer than {limit_bytes} bytes", path)
        return data


@cache
def _entry_as_json(kind: str, name: str) -> str:
    """Return a catalog entry as JSON, from which a copy takes a tenth of the time of deepcopy."""
    return json.dumps(catalog_entry(kind, name))


LABELS = {
    "clusters": "cluster",
    "fabrics": "fabric",
    "generations": "GPU generation",
    "gpus": "GPU",
    "models": "model",
    "nodes": "node type",
    "sites": "site",
}
"""Kind of catalog entries -> name of one entry in messages."""
USER_FILES = ("fabrics", "generations", "gpus", "nodes")
"""Kinds of catalog entries that can also be files of the user."""


@frozen
class CatalogEntry:
    """Content of a catalog entry or of a user's file, with the origin of the content."""

    kind: str
    name: str
    """Name in the catalog; for a user's file, the file name without ``.yaml``."""
    facts: Mapping[str, Any]
    file: str = ""
    """Path of the user's file, as written in the spec; empty for an entry of the catalog."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Positions of the keys in the user's file, by dotted path of the key."""

    @property
    def label(self) -> str:
        """Path of the file for messages: the path in the spec, or the path inside the catalog."""
        return self.file or f"{self.kind}/{self.name}.yaml"

    def report(self, key: str, finding: Finding, sink: Sink, at: str) -> None:
        """Report that the value of ``key`` is invalid or missing (K08).

        In a user's file, the finding points to the key. For a catalog entry, the finding points to
        ``at``, the spec path that refers to the entry.
        """
        above = self.spans.get(key.rpartition(".")[0])  # a missing key is shown at its mapping
        beginning = Span(self.file, 1, 1) if self.file else None
        sink.report("K08", finding, at=at, span=self.spans.get(key) or above or beginning)


def look_up_entry(
    kind: str, name: str, library: Library, sink: Sink, at: str
) -> CatalogEntry | None:
    """Return the catalog entry or user's file ``name``; ``at`` is the spec path that names it.

    Returns None after reporting a finding: K01 (no such entry) with up to three similar names, K07
    (file cannot be read), K08 (file is not a mapping), or an X code such as X06 (invalid YAML).
    """
    if kind in USER_FILES and is_user_file_path(name):
        return _read_user_file(kind, name, library, sink, at)
    try:
        return CatalogEntry(kind, name, library.entry(kind, name))
    except KeyError:
        sink.report("K01", unknown_entry_finding(kind, name, library.names(kind), at), at=at)
        return None


def is_user_file_path(name: str) -> bool:
    """Return True if ``name`` is the path of a user's file, not the name of a catalog entry."""
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _read_user_file(
    kind: str, path: str, library: Library, sink: Sink, at: str
) -> CatalogEntry | None:
    # The position-keeping YAML reader is imported on first use: most specs name no file.
    from parc.compiler.spec.reading.yaml_tree import read_tree

    text = read_user_file(path, library, sink, at)
    tree = None if text is None else read_tree(text, path, sink)
    if text is None or tree is None:
        return None
    entry = CatalogEntry(kind, PurePath(path.replace("\\", "/")).stem, {}, path, tree.keys)
    if not isinstance(tree.value, dict):
        entry.report("", Finding(f"{path} must be a mapping of keys to values"), sink, at)
        return None
    register_user_file_lines(path, text, sink)
    return replace(entry, facts=tree.value)


def read_user_file(
    path: str, library: TextReader, sink: Sink, at: str, rule: FileRule = SMALL_FILE
) -> str | None:
    """Return the text of the user's file at ``path``; ``at`` is the spec path that names it.

    Returns None after reporting that the file is outside the root folder (I11), or that the file
    cannot be read. ``rule`` has the code for the latter and the size limit.
    """
    try:
        return library.text(path, rule.limit_bytes)
    except OutsideRootError as error:
        finding = Finding(
            f"{path[:200]} is outside {error.folder}",
            f"a spec may read only files below {error.folder}",
            help=error.advice,
        )
        sink.report("I11", finding, at=at)
    except OSError as error:
        reason = error.strerror or str(error)
        finding = Finding(
            f"{path[:200]} cannot be read: {reason}",
            "the spec refers to the file here",
            help=_advice_for_unreadable(error, rule),
        )
        sink.report(rule.code, finding, at=at)
    return None


def _advice_for_unreadable(error: OSError, rule: FileRule) -> str:
    if error.errno == errno.EFBIG:
        return rule.advice
    missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
    return "paths are relative to the folder of the spec" if missing else ""


def register_user_file_lines(path: str, text: str, sink: Sink) -> None:
    """Store the lines of a user's file, so that later findings can quote single words of them.

    Call this function only after the format of the file was recognized. A spec can name any file on
    the machine, and the content of other files must not be printed.
    """
    from parc.compiler.spec.reading.yaml_tree import split_lines

    positions = sink.positions
    # If a spec refers to itself as a file, findings can still quote whole lines of the spec.
    if path not in positions.lines:
        lines = {**positions.lines, path: split_lines(text)}
        word_only = positions.word_only | {path}
        sink.positions = replace(positions, lines=lines, word_only=word_only)


def unknown_entry_finding(kind: str, name: str, names: tuple[str, ...], at: str) -> Finding:
    """Return the finding (K01) for ``name``, which is not among the ``names`` of the catalog."""
    near, meant = suggest_entries(name, names)
    if kind == "gpus":
        near = find_gpus(name) or near
        meant = near[0] if len(near) == 1 else ""
    if kind == "nodes":
        meant = node_of_instance_type(name) or meant
        near = (meant,) if meant else near
    return Finding(
        message=f"the catalog has no {LABELS[kind]} {name[:100]!r}",
        label="no catalog entry has this name",
        help=f"did you mean {' or '.join(near)}?"
        if near
        else f"`parc catalog {kind}` lists the valid names",
        fix=f"{at}: {meant}" if meant else _fix_of_unknown_entry(kind, name, names, at),
    )


def _fix_of_unknown_entry(kind: str, name: str, names: tuple[str, ...], at: str) -> str:
    """Return the fix for a name that does not mean exactly one entry; empty for none."""
    if kind == "gpus":
        # `parc check --fix` does not apply an example, because the user must choose the variant.
        variants = find_gpus(name)
        return f"set {at}, for example {at}: {variants[0]}" if variants else ""
    return _node_with_other_gpu_count(kind, name, names, at)


def _node_with_other_gpu_count(kind: str, name: str, names: tuple[str, ...], at: str) -> str:
    """Return the fix for a node type ``name``, such as mi300x-4, that the catalog has as mi300x-8.

    The result is empty for other entries.
    """
    count = re.fullmatch(r"(.+-)([1-9]\d{0,2})", name.lower()) if kind == "nodes" else None
    if count is None:
        return ""
    known = [one for one in names if re.fullmatch(re.escape(count[1]) + r"\d+", one)]
    return f"{at}: {{base: {known[0]}, gpus_per_node: {count[2]}}}" if known else ""
