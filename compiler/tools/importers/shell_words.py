"""Words of a shell script with positions: as much of the shell as the flags of a launch need.

Variables are expanded if the script assigns them plain values. Nothing is executed: a value that
is computed at run time stays as written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from parc.compiler.diagnostics import Span

MOST_WORDS = 200_000
LONGEST_VALUE = 4096
DEEPEST = 4
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
_HERE = re.compile(
    r"<<-?[ \t]*(['\"]?)(?P<end_word>\w{1,40})\1[^\n]*\n[\s\S]*?^[ \t]*(?P=end_word)$", re.M
)
_COMMAND = re.compile(r"\s--?[A-Za-z]")
"""Matches quoted text that is a command or a part of one: it contains flags."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,63})(?::?-([^{}$]{0,200}))?\}|([A-Za-z_][A-Za-z0-9_]{0,63}))"
)


@dataclass(frozen=True, slots=True)
class Word:
    """Word of a script, with variables expanded and quotes removed."""

    text: str
    span: Span
    statement: int
    """Number of the command or array that the word belongs to."""

    @property
    def dynamic(self) -> bool:
        """True if a part of the word is computed at run time."""
        return "$" in self.text or "`" in self.text

    @property
    def is_flag(self) -> bool:
        """True for ``--tp`` and ``-tp``; False for ``-1`` and ``-``."""
        return re.match(r"--?[A-Za-z]", self.text) is not None


class _Scanner:
    """Scanner that splits a text into words, and quoted commands again."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._statement = 0
        self.words: list[Word] = []

    def scan(self, start: int, end: int, depth: int) -> None:
        """Add the words of the text from ``start`` to ``end``."""
        pieces: list[str] = []
        began = start
        arrays = 0
        at = start
        while at < end and len(self.words) < MOST_WORDS:
            match = _PIECE.match(self._text, at, end)
            assert match is not None
            kind, text, at = match.lastgroup, match[0], match.end()
            if kind == "plain" and text.startswith("#") and not pieces:
                line_end = self._text.find("\n", match.start(), end)
                at = end if line_end < 0 else line_end
                continue
            if kind in ("single", "double") and depth < DEEPEST and _COMMAND.search(text):
                at = self._joined(at, end) if kind == "double" else at
                quoted = kind == "single" or self._text[at - 1] == '"'
                self.scan(match.start() + 1, at - quoted, depth + 1)
                began = began if pieces else match.start()
                continue
            if kind in ("plain", "other", "single", "double"):
                began = began if pieces else match.start()
                pieces.append(_unquoted(kind, text))
                continue
            self._finish(pieces, began)
            arrays += (kind == "open") - (kind == "close" and arrays > 0)
            if kind == "end" and not (arrays and text.endswith("\n")):
                self._statement += 1
        self._finish(pieces, began)
        self._statement += 1

    def _joined(self, at: int, end: int) -> int:
        """Return the end of the word that the quoted command before ``at`` is a part of.

        In ``"--save "a b" --load c"`` the inner quotes close and open the outer ones, as in bash.
        """
        while (match := _PIECE.match(self._text, at, end)) is not None:
            if match.lastgroup not in ("plain", "double", "other"):
                break
            at = match.end()
        return at

    def _finish(self, pieces: list[str], start: int) -> None:
        if pieces:
            text = "".join(pieces)
            if text:
                line = bisect_right(self._starts, start)
                span = Span(self._file, line, start - self._starts[line - 1] + 1, len(text))
                self.words.append(Word(text, span, self._statement))
            pieces.clear()


def _unquoted(kind: str, text: str) -> str:
    if kind in ("single", "double"):
        return text[1:-1]
    return "" if text == '"' else re.sub(r"\\(.)", r"\1", text)


def shell_words(text: str, file: str, kept: Collection[str] = ()) -> list[Word]:
    """Return the words in the order of the text, at most MOST_WORDS, without comments.

    Variables in ``kept`` are not expanded. A variable without a value gives no word, as in the
    shell; nor does one whose value is a command, because its words are returned at the assignment.
    """
    scanner = _Scanner(text, file)
    scanner.scan(0, len(text), 0)
    values = {
        name: _default_of(name, value)
        for name, value in assignments(scanner.words)
        if name not in kept
    }
    expanded = ((_expand(word.text, values, kept, DEEPEST), word) for word in scanner.words)
    return [Word(text, word.span, word.statement) for text, word in expanded if text]


def literal_stretches(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the text that the shell does not expand, ordered and disjoint.

    These are single quotes, comments and here-documents.
    """
    found: list[tuple[int, int]] = []
    at, blank = 0, True
    while at < len(text):
        here = _HERE.match(text, at)
        match = here or _PIECE.match(text, at)
        assert match is not None
        start, at = match.start(), match.end()
        if here is None and blank and match[0].startswith("#"):
            line_end = text.find("\n", start)
            at = len(text) if line_end < 0 else line_end
            found.append((start, at))
        elif here is not None or match.lastgroup == "single":
            found.append((start, at))
        blank = match.lastgroup in ("blank", "end", "open")
    return found


def assignments(words: list[Word]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each ``NAME=value``, also after ``export``."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match and len(match[2]) <= LONGEST_VALUE:
            yield match[1], match[2]


def _default_of(name: str, value: str) -> str:
    """Return the default of ``GBS=${GBS:-512}``, which applies if the environment has no GBS."""
    match = _VARIABLE.fullmatch(value)
    return match[2] if match and name in (match[1], match[3]) and match[2] else value


def _expand(text: str, values: dict[str, str], kept: Collection[str], depth: int) -> str:
    """Expand the variables that the script assigns; others stay as written."""
    if depth == 0 or "$" not in text or len(text) > LONGEST_VALUE:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = values.get(name, None if name in kept else match[2])
        return match[0] if found is None else found

    expanded = _VARIABLE.sub(value, text)
    return text if expanded == text else _expand(expanded[:LONGEST_VALUE], values, kept, depth - 1)
