"""The words of a shell script, with positions: enough of the shell to find the flags of a launch.

Assignments of plain values are put in where a word uses the variable. Nothing is run: a value that
only the shell would know stays as it is written.
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
"""What makes a quoted text a command, or a part of one: flags."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,63})(?::?-([^{}$]{0,200}))?\}|([A-Za-z_][A-Za-z0-9_]{0,63}))"
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word, variables put in and quotes taken off."""

    text: str
    span: Span
    statement: int
    """Words of one command, or of one array, have the same number."""

    @property
    def dynamic(self) -> bool:
        """Whether a part of it is known only when the script runs."""
        return "$" in self.text or "`" in self.text

    @property
    def is_flag(self) -> bool:
        """``--tp`` and ``-tp``; not ``-1`` and not ``-``."""
        return re.match(r"--?[A-Za-z]", self.text) is not None


class _Scanner:
    """Splits one text; quoted commands are split again."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._statement = 0
        self.words: list[Word] = []

    def scan(self, start: int, end: int, depth: int) -> None:
        """Take the words of a stretch of the text."""
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
        """Where the word ends that a quoted command before ``at`` is a part of.

        In ``"--save "a b" --load c"`` the inner quotes close and open the outer ones.
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
    """Words in the order of the text, at most MOST_WORDS; comments are left out.

    Variables in ``kept`` stay as they are written. A word that is a variable without a value is
    none, as in the shell; so is one that holds a command, whose words stand where it was set.
    """
    scanner = _Scanner(text, file)
    scanner.scan(0, len(text), 0)
    values = {
        name: _own(name, value) for name, value in assignments(scanner.words) if name not in kept
    }
    filled = ((_filled(word.text, values, kept, DEEPEST), word) for word in scanner.words)
    return [Word(text, word.span, word.statement) for text, word in filled if text]


def literal_stretches(text: str) -> list[tuple[int, int]]:
    """Offsets of what the shell of a script leaves alone: single quotes, comments, here-documents.

    In the order of the text, without overlap.
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
    """(name, value) of every ``NAME=value``, ``export NAME=value`` too."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match and len(match[2]) <= LONGEST_VALUE:
            yield match[1], match[2]


def _own(name: str, value: str) -> str:
    """``GBS=${GBS:-512}`` is 512 where nobody set it before."""
    match = _VARIABLE.fullmatch(value)
    return match[2] if match and name in (match[1], match[3]) and match[2] else value


def _filled(text: str, values: dict[str, str], kept: Collection[str], depth: int) -> str:
    """``text`` with the variables that the script assigns; others stay."""
    if depth == 0 or "$" not in text or len(text) > LONGEST_VALUE:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = values.get(name, None if name in kept else match[2])
        return match[0] if found is None else found

    filled = _VARIABLE.sub(value, text)
    return text if filled == text else _filled(filled[:LONGEST_VALUE], values, kept, depth - 1)
