"""Words of a shell script with positions, as far as reading a launch command requires.

Nothing is executed: a value that the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments
from parc.compiler.tools.shell.here_documents import HereDocuments
from parc.compiler.tools.shell.pieces import PIECE
from parc.compiler.tools.shell.scanned_script import ScannedScript
from parc.compiler.tools.shell.scanner import Scanner
from parc.compiler.tools.shell.values import LONGEST_VALUE, UNKNOWN_VALUE
from parc.compiler.tools.shell.word import Word

__all__ = (
    "ASSIGNMENT",
    "UNKNOWN_VALUE",
    "Word",
    "command_with_separators",
    "scan_script",
    "shell_assignments",
    "shell_words",
    "split_last_values",
    "split_quoted_flag",
    "statements",
    "unexpanded_ranges",
)

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""Matches the assignment of a variable; the groups are its name and its value."""


def shell_words(text: str, file: str, kept: Collection[str] = ()) -> list[Word]:
    """Return the first MOST_WORDS words of a script in order, without comments.

    The script is read as bash would read it: variables have the values that they have at this
    point, and commands that no run executes are left out. Variables in ``kept`` are not expanded.
    As in the shell, a variable with an empty value yields no word. A variable whose value is a
    command yields no word either, because the words of this command are already returned at the
    assignment.
    """
    return list(scan_script(text, file, frozenset(kept)).words)


@lru_cache(maxsize=4)
def scan_script(text: str, file: str, kept: frozenset[str] = frozenset()) -> ScannedScript:
    """Return the words of a script, its assignments and its control flow."""
    return Scanner(join_manifest_arguments(text), file, kept).scan()


def split_last_values(
    words: list[Word], names: Collection[str] | None
) -> tuple[list[Word], list[Word]]:
    """Return (words that the script uses, words of quoted values that it does not use).

    A value is not used if its variable is not in ``names``, or if a later assignment replaces the
    value. For example, ``ARGS="--tp 4"`` replaces an earlier ``ARGS="--tp 2"``. If ``names`` is
    None, all variables are used.
    """
    last: dict[str, int] = {}
    start = 0
    for at, word in enumerate(words):
        if word.variable and (at == 0 or words[at - 1].variable != word.variable):
            start = at
        match = ASSIGNMENT.fullmatch(word.text)
        if match is None or word.variable:
            continue
        # The word ARGS= follows the words of its quoted value.
        before = words[at - 1].variable if at and not match[2] else ""
        if before.rstrip("+") != match[1]:
            last[match[1]] = at
        elif not before.endswith("+"):
            last[match[1]] = start
    used = []
    for at, word in enumerate(words):
        name = word.variable.rstrip("+")
        read = not name or names is None or name in names
        used.append(read and at >= last.get(name, 0))
    pairs = list(zip(words, used, strict=True))
    return [word for word, is_used in pairs if is_used], [word for word, u in pairs if not u]


def unexpanded_ranges(text: str) -> list[tuple[int, int]]:
    """Return (start, end) offsets of the parts of a script in which variables are not expanded.

    These parts are single-quoted texts, comments and here-documents. Here-documents with an
    unquoted delimiter are included, although the shell expands variables in them.
    """
    found: list[tuple[int, int]] = []
    at, blank = 0, True
    documents = HereDocuments(text)
    while at < len(text):
        here = documents.here_document_at(at)
        if here is not None:
            found.append((at, here.end))
            at, blank = here.end, False
            continue
        match = PIECE.match(text, at)
        assert match is not None
        start, at = match.start(), match.end()
        if blank and match[0].startswith("#"):
            line_end = text.find("\n", start)
            at = len(text) if line_end < 0 else line_end
            found.append((start, at))
        elif match.lastgroup == "single":
            found.append((start, at))
        blank = match.lastgroup in ("blank", "end", "open")
    return found


def command_with_separators(text: str, word: Word) -> tuple[str, str, str]:
    """Return (command, separator before the command, separator after the command).

    The command is the part of the script ``text`` that starts with ``word``. A separator, such as
    ``&&``, is empty at the start or the end of a line.
    """
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[: word.span.line - 1]) + word.span.column - 1
    before = lines[word.span.line - 1][: word.span.column - 1].rstrip()
    at, depth, blank, after = start, 0, False, ""
    while at < len(text) and (match := PIECE.match(text, at)) is not None:
        kind = match.lastgroup
        depth += (kind == "open") - (kind == "close")
        comment = blank and match[0].startswith("#")
        if (kind == "end" and not depth) or depth < 0 or kind == "other" or comment:
            after = "" if comment else match[0].strip()
            break
        blank, at = kind == "blank", match.end()
    separator = re.search(r"[;&|]+$", before)
    command = re.sub(r"\\\r?\n\s*", " ", text[start:at]).strip()
    return command, separator[0] if separator else before[-1:], after


def split_quoted_flag(word: Word) -> list[Word]:
    """Return the words of an array element such as ``"--flag value"``, split at the spaces.

    Any other word is returned unchanged.
    """
    if not (word.is_flag and re.search(r"\s", word.text)):
        return [word]
    return [replace(word, text=part) for part in word.text.replace("'", "").split()]


def statements(words: Iterable[Word]) -> list[list[Word]]:
    """Return the words of each statement, in the order of the script."""
    return [list(group) for _, group in groupby(words, key=lambda word: word.statement)]


def shell_assignments(words: list[Word]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each assignment ``NAME=value``, with or without ``export``."""
    for word in words:
        match = ASSIGNMENT.fullmatch(word.text)
        if match and len(match[2]) <= LONGEST_VALUE:
            yield match[1], match[2]
