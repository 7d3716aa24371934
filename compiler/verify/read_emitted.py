"""Emitted files -> what they say, for the second route of the verification.

Nothing here is shared with what wrote the files. Every reader raises ``Malformed`` for any text.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TABLE = "rankmap.csv"
PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns of the rank map before the coordinates, which are those of the framework."""
COORDINATES = re.compile(r"[a-z]+(?:-[a-z]+)*")
ARGUMENTS = "megatron/args.sh"
LARGEST = 10**9
"""No count in an emitted file is larger; one that is stands for damage."""


_BLANK_OR_WORD = re.compile(r"""[ \t\n]+|#[^\n]*|((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+)""")
"""White space, a comment, or a word of bash with its quotes."""
_COMMENTS = re.compile(r"^\s*#[^\n]*$", re.MULTILINE)
_INERT = re.compile(r"""'[^']*'|"[^"\\$`!]*"|\\.""")
"""What bash takes literally."""
_LIVE = re.compile(r"[$`;&|<>()*?\[\]{}~!]")
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can spell it, no output can show it."""


class Malformed(Exception):
    """A file that cannot be read as what its name says."""

    def __init__(self, file: str, line: int, message: str) -> None:
        """``line`` counts from 1."""
        super().__init__(message)
        self.file = file
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Arguments:
    """Flags of ``megatron/args.sh`` with their values; the last of equals wins, as in argparse."""

    flags: dict[str, tuple[str, ...]]

    def has(self, flag: str) -> bool:
        """Whether ``--flag`` is given."""
        return flag in self.flags

    def text(self, flag: str) -> str | None:
        """The one value of ``--flag``."""
        values = self.flags.get(flag, ())
        return values[0] if values else None

    def number(self, flag: str, default: int) -> int:
        """The value of ``--flag`` as a positive integer; Malformed where it is none."""
        return _number(flag, self.text(flag) or "") if flag in self.flags else default

    def numbers(self, flag: str) -> tuple[int, ...]:
        """All values of ``--flag``, as ``number`` reads them; empty where it is not given."""
        return tuple(_number(flag, value) for value in self.flags.get(flag, ()))


def _number(flag: str, value: str) -> int:
    number = int(value) if re.fullmatch(r"[0-9]{1,10}", value) else 0
    if not 0 < number <= LARGEST:
        raise Malformed(ARGUMENTS, 1, f"--{flag} is {value!r}, must be a number > 0")
    return number


def read_arguments(text: str) -> Arguments:
    """The words of the bash array ``MEGATRON_ARGS``, which must be all that the file does."""
    start = re.search(r"\A(?:#[^\n]*\n|\s*\n)*MEGATRON_ARGS=\(", text)
    if not start:
        raise Malformed(ARGUMENTS, 1, "it does not start with the array MEGATRON_ARGS=( ... )")
    flags: dict[str, tuple[str, ...]] = {}
    name = ""
    for line, word in _words(text, start.end()):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = (value,) if value else ()
        elif name:
            flags[name] = (*flags[name], word)
        else:
            raise Malformed(ARGUMENTS, line, f"{word!r:.60} stands before the first flag")
    return Arguments(flags)


def _words(text: str, at: int) -> Iterator[tuple[int, str]]:
    """(line, word) to the closing parenthesis, unquoted as bash does it."""
    while found := _BLANK_OR_WORD.match(text, at):
        at, raw = found.end(), found[1]
        line = text.count("\n", 0, found.start()) + 1
        if raw == ")":
            if rest := _COMMENTS.sub("", text[at:]).strip():
                raise Malformed(ARGUMENTS, line, f"{rest!r:.60} stands after the array")
            return
        if raw:
            if _LIVE.search(_INERT.sub("", raw)):
                raise Malformed(ARGUMENTS, line, f"{raw!r:.60} would be expanded by bash")
            yield line, shlex.split(raw)[0]
    raise Malformed(ARGUMENTS, text.count("\n", 0, at) + 1, "the array is not closed")


def read_table(text: str) -> dict[str, list[str]]:
    """Columns of ``rankmap.csv``, as text; at least one rank."""
    file = TABLE
    lines = text.split("\n", 1)
    names = lines[0].rstrip("\r").split(",")
    own = names[len(PLACE) :]
    plain = all(COORDINATES.fullmatch(name) for name in own) and len(set(names)) == len(names)
    if tuple(names[: len(PLACE)]) != PLACE or not own or not plain:
        raise Malformed(file, 1, f"the header is not {','.join(PLACE)} and coordinates")
    try:
        rows = list(csv.reader(io.StringIO(lines[1] if len(lines) > 1 else ""), strict=True))
    except csv.Error as error:
        raise Malformed(file, 2, f"not a CSV table: {error}") from None
    if not rows:
        raise Malformed(file, 2, "the table has no rank")
    for line, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise Malformed(file, line, f"{len(row)} cells, must be {len(names)}")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_document(text: str) -> dict[str, Any]:
    """The top level of ``rankmap.json``, with the keys of format 1."""
    keys = (("groups", dict), ("hosts", list), ("ranks", dict), ("sizes", dict))
    return _read_json("rankmap.json", text, keys)


def read_lock(text: str) -> dict[str, Any]:
    """The top level of ``parc.lock``, format 1; ``files``, where there is one, is by path."""
    file = "parc.lock"
    tree = _read_json(file, text, (("decisions", dict),))
    if "files" in tree and not isinstance(tree["files"], dict):
        raise Malformed(file, 1, "files is no table of digests")
    odd = next(filter(_NO_TEXT.search, tree.get("files", ())), None)
    if odd is not None:
        raise Malformed(file, 1, f"files has {odd!a:.60}, which is no path")
    return tree


def _read_json(file: str, text: str, keys: tuple[tuple[str, type], ...]) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise Malformed(file, line, f"not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(tree, dict) or tree.get("format") != 1:
        raise Malformed(file, 1, "not a JSON object of format 1")
    for key, kind in keys:
        if not isinstance(tree.get(key), kind):
            raise Malformed(file, 1, f"{key} is missing or no {kind.__name__}")
    return tree


def read_expected(text: str) -> dict[str, Any]:
    """The top level of ``preflight/expected.json``, format 1."""
    return _read_json("preflight/expected.json", text, (("groups", dict), ("hosts", list)))


def read_lines(text: str) -> list[str]:
    """Host names, one a line."""
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")


def read_numbers(text: str, pattern: str) -> list[tuple[int, int]]:
    """(line, number) of every match of ``pattern``; numbers of ten digits or more are 0."""
    return [
        (text.count("\n", 0, found.start()) + 1, int(found[1]) if len(found[1]) < 10 else 0)
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


def read_number(text: str, pattern: str) -> int | None:
    """The number that ``pattern`` captures at its first match; None where there is none."""
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found and len(found[1]) < 10 else None
