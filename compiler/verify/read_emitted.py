"""Read emitted files of PARC's own formats: the rank map, the lock, JSON and lists of hosts.

No code is shared with the emitters. Each reader raises ``MalformedFileError`` for any text that it
cannot read. ``RankMap`` contains the part of ``rankmap.csv`` that other files are compared with.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

from parc.compiler.ir.frozen import frozen


@frozen
class RankMap:
    """Rank map: hosts, racks and NVLink domains by node rank, and coordinates by rank."""

    world: int
    """Number of ranks."""
    hosts: list[str]
    """Host names by node rank."""
    racks: list[str]
    """Racks by node rank."""
    domains: list[str]
    """NVLink domains by node rank."""
    columns: Mapping[str, list[int] | None]
    """Column name -> coordinates by rank; None if they were not read or a cell is not a number."""

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks per host."""
        return self.world // max(1, len(self.hosts))


TABLE, DOCUMENT = "rankmap.csv", "rankmap.json"
PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns of the rank map before the coordinates, whose names depend on the framework."""
COORDINATES = re.compile(r"[a-z]+(?:-[a-z]+)*")
LARGEST = 10**9
"""Upper bound of all counts in emitted files; a larger number shows that the file is damaged."""
MOST_HOSTS = 1_000_000
"""Maximum number of hosts of a host list; it bounds the memory for damaged files."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a UTF-16 character pair: JSON can contain it, but it cannot be encoded as UTF-8."""


class MalformedFileError(Exception):
    """Error: the content of a file does not have the format that belongs to its name."""

    def __init__(self, file: str, line: int, message: str) -> None:
        """Store the file, the line (counted from 1) and the reason."""
        super().__init__(message)
        self.file = file
        self.line = line
        self.message = message


def read_table(text: str) -> dict[str, list[str]]:
    """Return column name -> cells of ``rankmap.csv`` as text, one cell per rank.

    Raises:
        MalformedFileError: the header is wrong, a row has too many or too few cells, or no rank is
            listed.
    """
    lines = text.split("\n", 1)
    names = lines[0].rstrip("\r").split(",")
    axes = names[len(PLACE) :]
    # Duplicate column names would silently replace each other in the dictionary.
    plain = all(COORDINATES.fullmatch(name) for name in axes) and len(set(names)) == len(names)
    if tuple(names[: len(PLACE)]) != PLACE or not axes or not plain:
        message = f"the header must be {','.join(PLACE)}, followed by coordinate columns"
        raise MalformedFileError(TABLE, 1, message)
    # strict: an unclosed quote is an error; by default csv.reader accepts it silently.
    try:
        rows = list(csv.reader(io.StringIO(lines[1] if len(lines) > 1 else ""), strict=True))
    except csv.Error as error:
        raise MalformedFileError(TABLE, 2, f"the text is not a CSV table: {error}") from None
    if not rows:
        raise MalformedFileError(TABLE, 2, "the table has no row for a rank")
    for line, row in enumerate(rows, start=2):
        if len(row) != len(names):
            message = f"the row has {len(row)} cells, but the header has {len(names)}"
            raise MalformedFileError(TABLE, line, message)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_document(text: str) -> dict[str, Any]:
    """Return the content of ``rankmap.json``; raise MalformedFileError if a key is missing."""
    keys = (("groups", dict), ("hosts", list), ("ranks", dict), ("sizes", dict))
    return read_format_1(DOCUMENT, text, keys)


def read_lock(text: str) -> dict[str, Any]:
    """Return the content of ``parc.lock``.

    The key ``files``, which contains file digests, is optional, because old versions of PARC did
    not write it.

    Raises:
        MalformedFileError: the file is damaged.
    """
    file = "parc.lock"
    tree = read_format_1(file, text, (("decisions", dict),))
    if "files" in tree and not isinstance(tree["files"], dict):
        raise MalformedFileError(
            file, 1, "the value of the key 'files' is not an object with checksums"
        )
    odd = next(filter(_SURROGATE.search, tree.get("files", ())), None)
    if odd is not None:
        raise MalformedFileError(
            file, 1, f"the object 'files' has the key {odd!a:.60}, which is not a path"
        )
    return tree


def read_format_1(file: str, text: str, keys: tuple[tuple[str, type], ...]) -> dict[str, Any]:
    """Return the content of a JSON file with the entry ``"format": 1``.

    ``keys`` contains a pair (key, type of its value) per required key.

    Raises:
        MalformedFileError: the format is not 1, or a required key is missing or has another type.
    """
    tree = read_json(file, text)
    if tree.get("format") != 1:
        raise MalformedFileError(file, 1, 'the JSON object does not contain "format": 1')
    for key, kind in keys:
        if not isinstance(tree.get(key), kind):
            raise MalformedFileError(
                file, 1, f"the key {key!r} is missing or not of type {kind.__name__}"
            )
    return tree


def read_json(file: str, text: str) -> dict[str, Any]:
    """Return ``text`` parsed as a JSON object; raise MalformedFileError for anything else."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        reason = getattr(error, "msg", error)
        raise MalformedFileError(file, line, f"the text is not JSON: {reason}") from None
    if not isinstance(tree, dict):
        raise MalformedFileError(file, 1, "the text is not a JSON object")
    return tree


def read_lines(text: str) -> list[str]:
    """Return the lines of a host file. The newline at its end does not start another line."""
    # str.splitlines() would also split at characters such as U+2028, which launchers do not.
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")


def unfold_hosts(text: str) -> list[str] | None:
    """Return the host names that a host list such as ``r[01-02]n[01-16],x`` stands for.

    If a name has several brackets, the last one varies fastest. Return None if ``text`` is not a
    valid host list or stands for too many hosts.
    """
    hosts: list[str] = []
    for item in re.split(r",(?![^\[]*\])", text):
        parts = re.split(r"\[([0-9,-]+)\]", item)
        choices = [_unfold_ranges(part) if at % 2 else [part] for at, part in enumerate(parts)]
        if len(hosts) + prod(map(len, choices)) > MOST_HOSTS or not all(choices):
            return None
        hosts += map("".join, product(*choices))
    return hosts


def _unfold_ranges(text: str) -> list[str]:
    """Return the numbers in ranges such as ``01-16,18``, with their leading zeros.

    The list is empty if a range is invalid or too long.
    """
    numbers: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or len(part) > 20:
            return []
        low, high = int(first), int(last) if last.isdecimal() else int(first)
        if high - low > MOST_HOSTS:
            return []
        numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return numbers


def read_numbers(text: str, pattern: str) -> list[tuple[int, int]]:
    """Return (line, number) for each match of ``pattern``, whose first group captures the number.

    A number of ten digits or more is returned as 0: only a damaged file contains one, and int()
    raises ValueError for more than 4,300 digits.
    """
    return [
        (text.count("\n", 0, found.start()) + 1, int(found[1]) if len(found[1]) < 10 else 0)
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]
