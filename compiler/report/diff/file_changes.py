"""Comparison of the output files of two sides, line by line.

The comparison finds differences in all files that PARC wrote, including edits by hand that no plan
records. Numbers in another notation count as equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import zip_longest

from parc.compiler.diagnostics.secret_values import is_secret_name
from parc.compiler.ir.frozen import frozen
from parc.compiler.report.diff.plan_fields import (
    HIDDEN,
    hide_in_text,
    plain_numbers,
)

LOCK = "parc.lock"
MAX_COMPARED = 2000
"""Largest number of lines between the first and the last difference that are aligned."""
MAX_LINES = 12
"""Largest number of lines of a file that are stored."""
_PAIR_IN_JSON = re.compile(r'\s*"([A-Za-z_][A-Za-z0-9_]*)",')
"""Line with the first item of a pair in plan.json; the next line has the value."""
_NAMED_VALUE = re.compile(r"""name: ["']?([A-Za-z_][A-Za-z0-9_]*)["']?""")


@frozen
class LineChange:
    """Line that differs: its text on both sides, empty if absent, and its number."""

    line: int
    """Number of the line in the new file, or in the old file if the new file lacks the line."""
    old: str
    new: str


@frozen
class FileChange:
    """File whose content differs between two outputs, or that only one of them has."""

    path: str
    kind: str
    """``added``, ``removed`` or ``changed``."""
    edited: bool
    """True if the file was changed on one side after PARC wrote it."""
    count: int
    """Number of lines that differ."""
    lines: tuple[LineChange, ...]
    """First lines that differ."""


@frozen
class OutputFiles:
    """Output files of one side of a diff."""

    texts: Mapping[str, str]
    """Path -> text."""
    digests: Mapping[str, str]
    """Path -> SHA-256 of each file when PARC wrote it; empty if this is unknown."""

    def edited(self) -> Iterator[str]:
        """Yield the files that were changed after PARC wrote them."""
        for path, digest in self.digests.items():
            text = self.texts.get(path)
            if text is None:
                continue
            if sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest:
                yield path

    def emitted(self) -> dict[str, str]:
        """Return the files that PARC wrote, without other files that lie in their folders."""
        known = {*self.digests, LOCK}
        every = not self.digests
        return {path: text for path, text in self.texts.items() if every or path in known}


def locked_digests(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of files in ``parc.lock``; empty if the lock is missing or damaged."""
    try:
        digests = json.loads(texts.get(LOCK, "{}")).get("files", {})
        return {str(path): str(digest) for path, digest in digests.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def file_changes(old: OutputFiles, new: OutputFiles) -> tuple[FileChange, ...]:
    """Return the files that differ between two outputs, sorted by path.

    Numbers in another notation, such as 1.0 and 1.00, are equal. The lines of files that only one
    side has are not listed.
    """
    edited = {*old.edited(), *new.edited()}
    before, after = old.emitted(), new.emitted()
    found = []
    for path in sorted(before.keys() | after.keys()):
        if path not in before or path not in after:
            kind = "added" if path in after else "removed"
            found.append(FileChange(path, kind, path in edited, 0, ()))
            continue
        rows = tuple(_changed_lines(before[path], after[path]))
        if rows:
            found.append(FileChange(path, "changed", path in edited, len(rows), rows[:MAX_LINES]))
    return tuple(found)


def _changed_lines(old: str, new: str) -> Iterator[LineChange]:
    """Yield the lines that differ, aligned with each other."""
    if old == new:
        return
    before, after = old.split("\n"), new.split("\n")
    start = _common_start(before, after)
    most = min(len(before), len(after)) - start
    end = _common_start(before[len(before) - most :][::-1], after[len(after) - most :][::-1])
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    for first, second, gone, come in _aligned(left, right):
        for offset, pair in enumerate(zip_longest(gone, come, fillvalue="")):
            if plain_numbers(pair[0].strip()) == plain_numbers(pair[1].strip()):
                continue
            place = start + offset + (second if offset < len(come) else first)
            lines = after if offset < len(come) else before
            yield _line_change(place + 1, *pair, lines[place - 1] if place else "")


def _common_start(old: list[str], new: list[str]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(old), len(new)))


def _line_change(number: int, old: str, new: str, previous: str) -> LineChange:
    """Return the change of a line, without secrets; ``previous`` is the line before."""
    one, two = (_without_secret(line.strip().removesuffix(" \\"), previous) for line in (old, new))
    if one == two:
        one, two = f"{one} (old value)", f"{two} (new value)"
    return LineChange(number, one, two)


def _aligned(old: list[str], new: list[str]) -> Iterator[tuple[int, int, list[str], list[str]]]:
    """Yield (place in ``old``, place in ``new``, old lines, new lines) of each difference."""
    if max(len(old), len(new)) > MAX_COMPARED:
        yield 0, 0, old, new
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield i1, j1, old[i1:i2], new[j1:j2]


def _without_secret(line: str, previous: str) -> str:
    """Return ``line`` without the value of a variable whose name looks like that of a secret.

    ``previous`` is the line before, which names the variable in a manifest.
    """
    found = _NAMED_VALUE.search(previous)
    if line.startswith("value:") and found and is_secret_name(found[1]):
        return f"value: {HIDDEN}"
    found = _PAIR_IN_JSON.fullmatch(previous)
    if found and is_secret_name(found[1]):
        return HIDDEN
    return hide_in_text(line)
