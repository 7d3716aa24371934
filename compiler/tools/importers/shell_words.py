"""Split a shell script into words with positions, as far as reading a launch command requires.

Variables are expanded if the script assigns plain values to them. Nothing is executed: a value that
the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.here_documents import HereDocuments
from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments

# Bounds for hostile or generated input: a script is read in linear time and memory.
MOST_WORDS = 200_000
LONGEST_VALUE = 4096
DEEPEST = 4
# ``*+`` is possessive: without it, an unbalanced quote could cause exponential backtracking.
PIECE = re.compile(
    r"""(?P<blank>[ \t]+|\\\r?\n)
    |(?P<end>\r?\n|;|&&?|\|\|?)
    |(?P<open>=?\()|(?P<close>\))
    |(?P<single>'[^']*')
    |(?P<double>"(?:[^"\\`$]|\\[\s\S]|`[^`\n]*`|\$\([^()\n]*\)|[`$])*+")
    |(?P<plain>(?:[^\s'"\\;&|()]|\\[^\r\n])+)
    |(?P<other>[\s\S])""",
    re.VERBOSE,
)
"""Matches the next piece of a shell script: a part of a word, a blank or a separator."""
_LABEL = re.compile(r"[ \t]*-[^()$\n]*")
"""Matches a label of ``case`` that consists of flags, without its parenthesis: ``-t|--tp``."""
_MESSAGES = frozenset(
    (
        *("echo", "printf", "log", "info", "die", "usage", "warn", "error"),
        *("[[", "[", "test", "case", "grep", "egrep", "sed", "awk"),
    )
)
"""Commands whose arguments are texts or patterns: flags in them start nothing."""
_BEFORE_COMMANDS = frozenset(("if", "elif", "while", "until", "then", "else", "do", "!", "{"))
_COMMAND = re.compile(r"\s(?:--?[A-Za-z]|[^\s'\"=]+\.py\b)")
"""Matches a flag or a program in quoted text, so that the text is a command or a part of one."""
_FLAG = re.compile(r"\s*--[A-Za-z]")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""Matches the assignment of a variable; the groups are its name and its value."""
UNKNOWN_VALUE = re.compile(r"\$(?:$|[0-9@*#?])")
"""Matches a value that only the shell has: the start of ``$(command)``, or an argument ``$1``."""
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,63})(?::?[-=]([^{}$]{0,200})|:?\?[^{}$]{0,200})?\}|([A-Za-z_][A-Za-z0-9_]{0,63}))"
)
_SETS_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63}):?=([^{}$]{0,200})\}")
"""Matches ``${NAME:=value}``, which also sets the variable, unless it already has a value."""


@frozen
class Word:
    """Word of a shell script, with variables expanded and quotes removed."""

    text: str
    span: Span
    statement: int
    """Index of the command, or of the array assignment, that contains the word."""
    variable: str = ""
    """Name of the variable whose quoted value contains the word: ``ARGS`` in ``ARGS="--tp 2"``.

    ``ARGS+`` if the value contains the earlier value: ``ARGS="$ARGS --pp 2"``.
    """
    outer: int = -1
    """``statement`` of the command that has the word in quotes: ``srun bash -c "..."``; or -1."""

    @property
    def dynamic(self) -> bool:
        """True if the shell, or a template engine, computes a part of the word at run time."""
        return "$" in self.text or "`" in self.text or "{{" in self.text

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
        self._message = self._outer = -1
        self._variable = ""
        self._skipped = {
            one.body_start: one.end for one in HereDocuments(text) if not one.is_script
        }
        self.words: list[Word] = []

    def scan_script(self) -> None:
        """Append all words of the text to ``words``."""
        self.scan_words(0, len(self._text), 0)

    def scan_words(self, start: int, end: int, depth: int) -> None:
        """Append the words of a part of the text to ``words``.

        Args:
            start: offset at which the part starts.
            end: offset at which the part ends.
            depth: number of quoted commands that contain the part.
        """
        pieces: list[str] = []
        began = start
        arrays = 0
        at = start
        while at < end and len(self.words) < MOST_WORDS:
            at = self._skipped.get(at, at)
            match = PIECE.match(self._text, at, end)
            if match is None:  # a here-document ends the text
                break
            kind, text, at = match.lastgroup, match[0], match.end()
            # As in the shell, "#" starts a comment only at the start of a word.
            if kind == "plain" and text.startswith("#") and not pieces:
                line_end = self._text.find("\n", match.start(), end)
                at = end if line_end < 0 else line_end
                continue
            if kind in ("single", "double") and self._is_command(pieces, text, depth):
                at = self._end_of_joined_parts(at, end) if kind == "double" else at
                quoted = kind == "single" or self._text[at - 1] == '"'
                before = self._variable, self._outer
                self._variable = before[0] or _assigned_name(pieces[0] if pieces else "", text)
                self._outer = self._outer if depth else self._statement
                self.scan_words(match.start() + 1, at - quoted, depth + 1)
                self._variable, self._outer = before
                began = began if pieces else match.start()
                continue
            if kind in ("plain", "other", "single", "double"):
                began = began if pieces else match.start()
                pieces.append(_remove_quotes(kind, text))
                continue
            self._append_word(pieces, began)
            if kind == "close" and not arrays:
                self._remove_label(match.start())
            arrays += (kind == "open") - (kind == "close" and arrays > 0)
            # A line break inside ``ARGS=( ... )`` separates elements, and does not end the array.
            if kind == "end" and not (arrays and text.endswith("\n")):
                self._statement += 1
        self._append_word(pieces, began)
        self._statement += 1

    def _is_command(self, pieces: list[str], text: str, depth: int) -> bool:
        """Return True if a quoted text contains a command or arguments of a command.

        ``text`` starts with the opening quote. ``pieces`` are the parts of the same word before the
        quote, such as ``ARGS=``.
        """
        if depth >= DEEPEST or self._message == self._statement:
            return False
        # The first piece contains the name: joining all pieces would take quadratic time.
        arguments = pieces and _NAME.match(pieces[0]) and _FLAG.match(text, 1)
        return bool(arguments or _COMMAND.search(text))

    def _end_of_joined_parts(self, at: int, end: int) -> int:
        """Return the end of the shell word that continues at ``at`` after a double-quoted part.

        In ``"--save "a b" --load c"``, the inner quotes close and reopen the outer ones, as in
        bash, so the three parts are one quoted command.
        """
        while (match := PIECE.match(self._text, at, end)) is not None:
            if match.lastgroup not in ("plain", "double", "other"):
                break
            at = match.end()
        return at

    def _remove_label(self, end: int) -> None:
        """Remove the last words if they form the label of a branch of ``case``, such as ``small)``.

        ``end`` is the offset at which the label ends.
        """
        line = bisect_right(self._starts, end)
        if _LABEL.fullmatch(self._text, self._starts[line - 1], end):
            while self.words and self.words[-1].span.line == line:
                self.words.pop()
            self._statement += 1

    def _append_word(self, pieces: list[str], start: int) -> None:
        """Append the word that consists of ``pieces`` to the words, and clear ``pieces``.

        Words of messages, such as the arguments of ``echo``, are not appended.
        """
        text = "".join(pieces)
        pieces.clear()
        if not text or self._message == self._statement:
            return
        line = bisect_right(self._starts, start)
        span = Span(self._file, line, start - self._starts[line - 1] + 1, len(text))
        first = not self.words or self.words[-1].statement != self._statement
        if text in _MESSAGES and (first or self.words[-1].text in _BEFORE_COMMANDS):
            self._message = self._statement
        self.words.append(Word(text, span, self._statement, self._variable, self._outer))


def _assigned_name(before: str, value: str) -> str:
    """Return the name of the variable that the quoted text ``value`` is assigned to.

    ``before`` is the text before the quotes; the result is empty if it is not an assignment. The
    result ends with ``+`` if ``value`` contains the variable itself, as in ``ARGS="$ARGS --pp 2"``,
    which appends to the variable.
    """
    match = _NAME.match(before)
    if match is None:
        return ""
    return match[1] + "+" * bool(re.search(rf"\$\{{?{match[1]}\b", value))


def _remove_quotes(kind: str, text: str) -> str:
    if kind in ("single", "double"):
        return text[1:-1]
    return "" if text == '"' else re.sub(r"\\(.)", r"\1", text)


def shell_words(text: str, file: str, kept: Collection[str] = ()) -> list[Word]:
    """Return the first MOST_WORDS words of a script in order, without comments.

    Variables are expanded, except those in ``kept``. As in the shell, a variable with an empty
    value yields no word. A variable whose value is a command yields no word either, because the
    words of this command are already returned at the assignment.
    """
    scanner = _WordScanner(join_manifest_arguments(text), file)
    scanner.scan_script()
    values: dict[str, str] = {}
    for name, value in shell_assignments(scanner.words):
        # The last assignment counts, also if its value is unknown.
        values.pop(name, None)
        if name not in kept and not UNKNOWN_VALUE.search(value):
            values[name] = _default_or_value(name, value)
    for word in scanner.words:
        match = _SETS_DEFAULT.fullmatch(word.text)
        if match is not None and match[1] not in kept:
            values.setdefault(match[1], match[2])
    expanded = ((_expand_word(word.text, values, kept), word) for word in scanner.words)
    return [
        word if text == word.text else replace(word, text=text) for text, word in expanded if text
    ]


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


def _default_or_value(name: str, value: str) -> str:
    """Return the value that an assignment gives to the variable ``name``.

    For ``GBS=${GBS:-512}``, this is the default 512, which applies unless the environment already
    sets the variable. For any other assignment, the result is ``value``.
    """
    match = _VARIABLE.fullmatch(value)
    return match[2] if match and name in (match[1], match[3]) and match[2] else value


def _expand_word(text: str, values: dict[str, str], kept: Collection[str]) -> str:
    """Return ``text`` with its variables expanded.

    In ``PATH=/opt:$PATH``, the variable ``$PATH`` is not expanded, because it refers to the value
    of PATH before this assignment.
    """
    own = ASSIGNMENT.fullmatch(text)
    if own is not None and own[1] in values and "$" in own[2]:
        values = {name: value for name, value in values.items() if name != own[1]}
    return _expand_variables(text, values, kept, DEEPEST)


def _expand_variables(text: str, values: dict[str, str], kept: Collection[str], depth: int) -> str:
    """Return ``text`` with each variable replaced by its value in ``values``.

    Variables inside values are replaced too, up to ``depth`` times. A variable without a value is
    replaced by its default (``${NAME:-default}``, ``${NAME:=default}``). If the variable has no
    default or is in ``kept``, it stays as written.
    """
    # The depth bounds variables that refer to themselves, the length values that grow.
    if depth == 0 or "$" not in text or len(text) > LONGEST_VALUE:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = values.get(name, None if name in kept else match[2])
        return match[0] if found is None else found

    expanded = _VARIABLE.sub(value, text)
    if expanded == text:
        return text
    return _expand_variables(expanded[:LONGEST_VALUE], values, kept, depth - 1)
