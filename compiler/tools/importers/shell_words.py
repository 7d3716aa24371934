"""Split a shell script into words with positions, as far as reading a launch command requires.

Variables are expanded if the script assigns plain values to them. Nothing is executed: a value that
the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from parc.compiler.diagnostics import Span

# Bounds for hostile or generated input: a script is read in linear time and memory.
MOST_WORDS = 200_000
LONGEST_VALUE = 4096
DEEPEST = 4
# ``*+`` is possessive: without it, an unbalanced quote could cause exponential backtracking.
_PIECE = re.compile(
    r"""(?P<blank>[ \t]+|\\\r?\n)
    |(?P<end>\r?\n|;|&&?|\|\|?)
    |(?P<open>=?\()|(?P<close>\))
    |(?P<single>'[^']*')
    |(?P<double>"(?:[^"\\`$]|\\[\s\S]|`[^`\n]*`|\$\([^()\n]*\)|[`$])*+")
    |(?P<plain>(?:[^\s'"\\;&|()]|\\[^\r\n])+)
    |(?P<other>[\s\S])""",
    re.VERBOSE,
)
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(\w{1,40})\1(?!\w)[^\n]*\n")
_END_WORD = re.compile(r"^[ \t]*(\w{1,40})$", re.M)
_COMMAND = re.compile(r"\s--?[A-Za-z]")
"""Matches a flag inside quoted text, which shows that the text is a command or a part of one."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,63})(?::?-([^{}$]{0,200}))?\}|([A-Za-z_][A-Za-z0-9_]{0,63}))"
)


@dataclass(frozen=True, slots=True)
class Word:
    """Word of a shell script, with variables expanded and quotes removed."""

    text: str
    span: Span
    statement: int
    """Index of the command, or of the array assignment, that contains the word."""

    @property
    def dynamic(self) -> bool:
        """True if the shell computes a part of the word at run time."""
        return "$" in self.text or "`" in self.text

    @property
    def is_flag(self) -> bool:
        """True for ``--tp`` and ``-tp``; False for ``-1`` and ``-``."""
        return re.match(r"--?[A-Za-z]", self.text) is not None


class _WordScanner:
    """Scanner that splits a script into words, including the words of quoted commands."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._statement = 0
        self.words: list[Word] = []

    def scan(self, start: int, end: int, depth: int) -> None:
        """Append the words between the offsets ``start`` and ``end`` of the text to ``words``.

        ``depth`` is the number of quoted commands around this part of the text.
        """
        pieces: list[str] = []
        began = start
        arrays = 0
        at = start
        while at < end and len(self.words) < MOST_WORDS:
            match = _PIECE.match(self._text, at, end)
            assert match is not None
            kind, text, at = match.lastgroup, match[0], match.end()
            # As in the shell, "#" starts a comment only at the start of a word.
            if kind == "plain" and text.startswith("#") and not pieces:
                line_end = self._text.find("\n", match.start(), end)
                at = end if line_end < 0 else line_end
                continue
            if kind in ("single", "double") and depth < DEEPEST and _COMMAND.search(text):
                at = self._end_of_joined_parts(at, end) if kind == "double" else at
                quoted = kind == "single" or self._text[at - 1] == '"'
                self.scan(match.start() + 1, at - quoted, depth + 1)
                began = began if pieces else match.start()
                continue
            if kind in ("plain", "other", "single", "double"):
                began = began if pieces else match.start()
                pieces.append(_remove_quotes(kind, text))
                continue
            self._append_word(pieces, began)
            arrays += (kind == "open") - (kind == "close" and arrays > 0)
            # A line break inside ``ARGS=( ... )`` separates elements, and does not end the array.
            if kind == "end" and not (arrays and text.endswith("\n")):
                self._statement += 1
        self._append_word(pieces, began)
        self._statement += 1

    def _end_of_joined_parts(self, at: int, end: int) -> int:
        """Return where the shell word ends that continues at ``at``, after a double-quoted part.

        In ``"--save "a b" --load c"``, the inner quotes close and reopen the outer ones, as in
        bash, so the three parts are one quoted command.
        """
        while (match := _PIECE.match(self._text, at, end)) is not None:
            if match.lastgroup not in ("plain", "double", "other"):
                break
            at = match.end()
        return at

    def _append_word(self, pieces: list[str], start: int) -> None:
        if pieces:
            text = "".join(pieces)
            if text:
                line = bisect_right(self._starts, start)
                span = Span(self._file, line, start - self._starts[line - 1] + 1, len(text))
                self.words.append(Word(text, span, self._statement))
            pieces.clear()


def _remove_quotes(kind: str, text: str) -> str:
    if kind in ("single", "double"):
        return text[1:-1]
    return "" if text == '"' else re.sub(r"\\(.)", r"\1", text)


def shell_words(text: str, file: str, kept: Collection[str] = ()) -> list[Word]:
    """Return the words of a script without comments, in order; at most MOST_WORDS.

    Variables in ``kept`` are not expanded. A variable with an empty value yields no word, as in the
    shell. A variable whose value is a command yields no word either, because the words of the
    command are returned where it is assigned.
    """
    scanner = _WordScanner(text, file)
    scanner.scan(0, len(text), 0)
    values = {
        name: _default_or_value(name, value)
        for name, value in assignments(scanner.words)
        if name not in kept
    }
    expanded = ((_expand(word.text, values, kept, DEEPEST), word) for word in scanner.words)
    return [Word(text, word.span, word.statement) for text, word in expanded if text]


class HereDocuments:
    """Here-documents of a text.

    A here-document ends at the line that contains only its end word, indented or not. The lines
    that can end one are indexed, because a search per start of a here-document would take minutes
    for a text with thousands of starts and no end.
    """

    def __init__(self, text: str) -> None:
        """Index the lines of ``text`` that consist of one word."""
        self._text = text
        self._ends: dict[str, list[int]] = {}
        for match in _END_WORD.finditer(text) if "<<" in text else ():
            self._ends.setdefault(match[1], []).append(match.end())

    def end(self, at: int) -> int | None:
        """Return the end offset of the here-document that starts at ``at``; None if none does."""
        match = _HERE_DOCUMENT.match(self._text, at)
        return None if match is None else self._end_of(match)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield (start, end) offsets of all here-documents."""
        at = 0
        while match := _HERE_DOCUMENT.search(self._text, at):
            end = self._end_of(match)
            if end is not None:
                yield match.start(), end
            at = match.end() - 1 if end is None else end

    def _end_of(self, match: re.Match[str]) -> int | None:
        ends = self._ends.get(match[2], [])
        index = bisect_left(ends, match.end())
        return ends[index] if index < len(ends) else None


def unexpanded_ranges(text: str) -> list[tuple[int, int]]:
    """Return (start, end) offsets of the single-quoted texts, comments and here-documents.

    The shell expands no variables in them, except in here-documents with an unquoted delimiter.
    """
    found: list[tuple[int, int]] = []
    documents = HereDocuments(text)
    at, blank = 0, True
    while at < len(text):
        here = documents.end(at)
        if here is not None:
            found.append((at, here))
            at, blank = here, False
            continue
        match = _PIECE.match(text, at)
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


def split_quoted_flag(word: Word) -> list[Word]:
    """Return the words in an array element such as ``"--flag value"``, which the shell splits."""
    if not (word.is_flag and re.search(r"\s", word.text)):
        return [word]
    return [replace(word, text=part) for part in word.text.replace("'", "").split()]


def statements(words: Iterable[Word]) -> list[list[Word]]:
    """Return the words of each statement, in the order of the script."""
    return [list(group) for _, group in groupby(words, key=lambda word: word.statement)]


def assignments(words: list[Word]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each assignment ``NAME=value``, with or without ``export``."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match and len(match[2]) <= LONGEST_VALUE:
            yield match[1], match[2]


def _default_or_value(name: str, value: str) -> str:
    """Return the default in an assignment such as ``GBS=${GBS:-512}``, here 512; else ``value``.

    The default applies unless the environment already sets the variable.
    """
    match = _VARIABLE.fullmatch(value)
    return match[2] if match and name in (match[1], match[3]) and match[2] else value


def _expand(text: str, values: dict[str, str], kept: Collection[str], depth: int) -> str:
    """Return ``text`` with each variable replaced by its value in ``values``.

    Variables inside values are replaced too, up to ``depth`` times. A variable without a value is
    replaced by its default (``${NAME:-default}``) or stays as written.
    """
    # The depth bounds variables that refer to themselves, the length values that grow.
    if depth == 0 or "$" not in text or len(text) > LONGEST_VALUE:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = values.get(name, None if name in kept else match[2])
        return match[0] if found is None else found

    expanded = _VARIABLE.sub(value, text)
    return text if expanded == text else _expand(expanded[:LONGEST_VALUE], values, kept, depth - 1)
