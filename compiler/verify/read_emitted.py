"""Read emitted files of PARC's own formats: the rank map, the lock, JSON and lists of hosts.

No code is shared with the emitters. Each reader raises ``Malformed`` for any text that it cannot
read. ``RankMap`` has the contents of ``rankmap.csv`` that other files are compared with.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RankMap:
    """Hosts and coordinates of all ranks."""

    world: int
    """Number of ranks."""
    hosts: list[str]
    """Host names by node rank."""
    racks: list[str]
    """Racks by node rank."""
    domains: list[str]
    """NVLink domains by node rank."""
    columns: Mapping[str, list[int] | None]
    """Coordinates by rank per column; None if unknown, or if a cell is not a number."""

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks per host."""
        return self.world // max(1, len(self.hosts))


TABLE, DOCUMENT = "rankmap.csv", "rankmap.json"
PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns of the rank map before the coordinates, whose names depend on the framework."""
COORDINATES = re.compile(r"[a-z]+(?:-[a-z]+)*")
LARGEST = 10**9
"""Upper bound of all counts in emitted files; a larger number is damage."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can encode it, but no output can show it."""


class Malformed(Exception):
    """A file cannot be read in the format of its name."""

    def __init__(self, file: str, line: int, message: str) -> None:
        """``line`` counts from 1."""
        super().__init__(message)
        self.file = file
        self.line = line
        self.message = message


def read_table(text: str) -> dict[str, list[str]]:
    """Return the columns of ``rankmap.csv`` as text, with at least one rank."""
    lines = text.split("\n", 1)
    names = lines[0].rstrip("\r").split(",")
    axes = names[len(PLACE) :]
    plain = all(COORDINATES.fullmatch(name) for name in axes) and len(set(names)) == len(names)
    if tuple(names[: len(PLACE)]) != PLACE or not axes or not plain:
        raise Malformed(TABLE, 1, f"the header is not {','.join(PLACE)} and coordinates")
    try:
        rows = list(csv.reader(io.StringIO(lines[1] if len(lines) > 1 else ""), strict=True))
    except csv.Error as error:
        raise Malformed(TABLE, 2, f"not a CSV table: {error}") from None
    if not rows:
        raise Malformed(TABLE, 2, "the table has no rank")
    for line, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise Malformed(TABLE, line, f"{len(row)} cells, must be {len(names)}")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_document(text: str) -> dict[str, Any]:
    """Return the tree of ``rankmap.json``, with the keys of format 1."""
    keys = (("groups", dict), ("hosts", list), ("ranks", dict), ("sizes", dict))
    return read_format_1(DOCUMENT, text, keys)


def read_lock(text: str) -> dict[str, Any]:
    """Return the tree of ``parc.lock``, format 1; ``files``, if present, is a table by path."""
    file = "parc.lock"
    tree = read_format_1(file, text, (("decisions", dict),))
    if "files" in tree and not isinstance(tree["files"], dict):
        raise Malformed(file, 1, "files is not a table of digests")
    odd = next(filter(_SURROGATE.search, tree.get("files", ())), None)
    if odd is not None:
        raise Malformed(file, 1, f"files has {odd!a:.60}, which is not a path")
    return tree


def read_format_1(file: str, text: str, keys: tuple[tuple[str, type], ...]) -> dict[str, Any]:
    """Return the tree of a JSON file of PARC's format 1 that has ``keys`` of the given types."""
    tree = read_json(file, text)
    if tree.get("format") != 1:
        raise Malformed(file, 1, "not a JSON object of format 1")
    for key, kind in keys:
        if not isinstance(tree.get(key), kind):
            raise Malformed(file, 1, f"{key} is missing or not a {kind.__name__}")
    return tree


def read_json(file: str, text: str) -> dict[str, Any]:
    """Return the JSON object that is the whole of ``text``."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise Malformed(file, line, f"not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(tree, dict):
        raise Malformed(file, 1, "not a JSON object")
    return tree


def read_lines(text: str) -> list[str]:
    """Return the lines of a host file, without an empty one at the end."""
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")


def read_numbers(text: str, pattern: str) -> list[tuple[int, int]]:
    """Return (line, number) per match of ``pattern``; numbers of ten digits or more are 0."""
    return [
        (text.count("\n", 0, found.start()) + 1, int(found[1]) if len(found[1]) < 10 else 0)
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


def read_number(text: str, pattern: str) -> int | None:
    """Return the number that ``pattern`` captures at its first match; None without a match."""
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found and len(found[1]) < 10 else None
