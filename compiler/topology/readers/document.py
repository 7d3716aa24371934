"""JSON or YAML documents whose values have positions (line and column).

``DocumentNode`` walks the tree and reports missing values and values of the wrong type (I02). A
position in JSON is searched only when a finding needs it, because files may be large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from parc.compiler.diagnostics import Finding, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree
from parc.compiler.topology.readers.reader_state import Reading

Path = tuple[str | int, ...]
MOST_SEARCHED = 50_000_000
"""Limit on the characters that all searches for positions in one file scan together."""
LONGEST_SEARCH = 2_000_000
"""Longest JSON text, in characters, in which positions are searched. Findings in a longer text are
shown at line 1, column 1."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_TYPE_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
}


@frozen
class DocumentNode:
    """Value in a JSON or YAML document, with its path from the root."""

    value: Any
    path: Path
    document: Document

    @property
    def span(self) -> Span:
        """Return the position of this value in the file.

        If the position is unknown, the position of the nearest ancestor is returned.
        """
        return self.document.find(self.path)

    @property
    def name(self) -> str:
        """Return the path of this value, such as ``nodes[3].gres``; ``the file`` for the root."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).lstrip(".")[:80] or "the file"

    def child(self, key: str) -> DocumentNode | None:
        """Return the value at ``key`` of this mapping as a node.

        Returns None if the value is absent or null, or if this node is not a mapping.
        """
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return None if value is None else DocumentNode(value, (*self.path, key), self.document)

    def mapping(self, key: str) -> DocumentNode | None:
        """Return the mapping at ``key``, or None if the key is absent; report other types (I02)."""
        found = self.child(key)
        return found if found is None or found.check_type(dict) else None

    def items(self, key: str | None = None, *, required: bool = True) -> list[DocumentNode]:
        """Return the entries of the list at ``key``, or of this list if ``key`` is None.

        Reports a value that is not a list. An absent list is reported only if ``required`` (I02).
        """
        found = self if key is None else self.child(key)
        if found is None:
            if required:
                self.report_missing(str(key))
            return []
        if not found.check_type(list):
            return []
        each = enumerate(found.value)
        return [DocumentNode(value, (*found.path, index), self.document) for index, value in each]

    def text(self, *keys: str, required: bool = False) -> str:
        """Return the string or integer at the path ``keys`` as a string; empty if absent.

        Reports a value of another type. An absent value is reported only if ``required`` (I02).
        """
        found: DocumentNode | None = self
        for key in keys:
            found = found.child(key) if found is not None else None
        if found is None:
            if required:
                self.report_missing(".".join(keys))
            return ""
        # bool is a subclass of int in Python.
        if isinstance(found.value, int) and not isinstance(found.value, bool):
            return str(found.value)[:40]
        return found.value if found.check_type(str) else ""

    def check_type(self, kind: type) -> bool:
        """Return True if this value has the type ``kind``; otherwise report its type (I02)."""
        if isinstance(self.value, kind):
            return True
        known = "null" if self.value is None else _TYPE_NAMES.get(type(self.value), "a number")
        message = f"{self.name} is {known}, expected {_TYPE_NAMES[kind]}"
        self.document.reading.report_error("I02", Finding(message, f"this is {known}"), self.span)
        return False

    def report_missing(self, key: str) -> None:
        """Report that this mapping does not contain ``key`` (I02)."""
        message = f"{self.name} has no {key}"
        self.document.reading.report_error("I02", Finding(message, f"{key} is missing"), self.span)


class Document:
    """Parsed JSON or YAML text that can find the position of a value."""

    def __init__(self, reading: Reading, value: Any, tree: SpecTree | None) -> None:
        """Store the parsed value of the file.

        ``tree`` contains the positions of all values in a YAML text. ``tree`` is None for JSON.
        """
        self.reading, self._tree = reading, tree
        self.root = DocumentNode(value, (), self)
        self._searched = 0

    def find(self, path: Path) -> Span:
        """Return the position of the value at ``path``.

        If the position is unknown, the position of the nearest ancestor is returned.
        """
        if self._tree is None:
            # Each search scans the text, and a file of thousands of hosts would be scanned for each
            # host. Beyond the budget, positions are the start of the file.
            self._searched += len(self.reading.text)
            if self._searched > MOST_SEARCHED:
                return self.reading.span()
            return _span_at_offset(self.reading, *_find_in_json(self.reading.text, path))
        for length in range(len(path), -1, -1):
            where = ""
            for part in path[:length]:
                where = f"{where}[{part}]" if isinstance(part, int) else join_path(where, part)
            if where in self._tree.values:
                return self._tree.values[where]
        return self.reading.span()


def read_document(reading: Reading) -> DocumentNode | None:
    """Return the root value of the file of ``reading``, parsed as JSON or YAML.

    Returns None after a syntax error, which is reported as I01 (JSON), X06 or X14 (YAML).
    """
    if reading.text.lstrip()[:1] not in ("{", "["):
        # Positions per value make YAML slow to read; JSON files may be large and are read without.
        tree = read_tree(reading.text, reading.file, reading.sink)
        reading.is_valid &= tree is not None
        return None if tree is None else Document(reading, tree.value, tree).root
    try:
        value = json.loads(reading.text)
    except json.JSONDecodeError as error:
        finding = Finding(f"invalid JSON: {error.msg}", "parsing stopped here")
        reading.report_error("I01", finding, reading.span(error.lineno, error.colno))
    except (RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        why = "nested too deeply" if deep else str(error)[:80]
        reading.report_error("I01", f"unreadable JSON: {why}", reading.span())
    else:
        return Document(reading, value, None).root
    return None


def _find_in_json(text: str, path: Path) -> tuple[int, int]:
    """Return (offset, length) in ``text`` of the value at ``path``, or of its nearest ancestor.

    ``text`` must be valid JSON. The tokens of the text are scanned once, up to the value.
    """
    best, length = (0, 1), -1
    # A search of the whole text would take too long.
    if len(text) > LONGEST_SEARCH:
        return best
    here: list[str | int] = []
    opened: list[str] = []
    key = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "}]":
            del here[-1:], opened[-1:]
        elif word == ":":
            key = False
        elif word == ",":
            key = opened[-1:] == ["{"]
            here[-1:] = [_next_index_or_key(here[-1:])]
        elif key:
            here[-1:] = [_unquote(word)]
        else:
            if len(here) > length and tuple(here) == path[: len(here)]:
                best, length = (token.start(), len(word)), len(here)
            if length == len(path):
                return best
            if word in "{[":
                opened.append(word)
                key = word == "{"
                here.append("" if key else 0)
    return best


def _next_index_or_key(last: list[str | int]) -> str | int:
    return last[0] + 1 if last and isinstance(last[0], int) else ""


def _unquote(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word


def _span_at_offset(reading: Reading, offset: int, length: int) -> Span:
    line = reading.text.count("\n", 0, offset) + 1
    column = offset - (reading.text.rfind("\n", 0, offset) + 1) + 1
    return reading.span(line, column, length)


def leaves_by_path(node: DocumentNode) -> dict[str, DocumentNode]:
    """Return dotted path -> value, for the ``leaf_nodes`` of ``node``."""
    return {".".join(map(str, leaf.path)): leaf for leaf in leaf_nodes(node)}


def leaf_nodes(node: DocumentNode) -> Iterator[DocumentNode]:
    """Yield the values below ``node`` that are neither null nor a mapping with further keys."""
    if not isinstance(node.value, dict):
        yield node
        return
    for key in node.value:
        child = node.child(key)
        if child is not None:
            yield from leaf_nodes(child)
