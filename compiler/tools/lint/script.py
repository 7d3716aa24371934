"""A launch script as lint reads it: its words and flags, and which of them every run has.

One script can describe several launches: a variable is set twice, a flag is in a branch, arguments
come from another file. Flags that may differ between runs are not *sure*, and a command line that
may get more flags at run time is *open*; no finding is derived from either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from parc.compiler.tools.importers.flags import Flag, written_flags
from parc.compiler.tools.importers.shell_words import Word, assignments, shell_words

_BRANCH = re.compile(r"^\s*(?:(?P<open>if|case|while|until|for|select)|(?P<close>fi|esac|done))\b")
_ARRAY = re.compile(r"^\s*(?:(?:local|declare|export|readonly)\s+(?:-\w+\s+)?)?(\w+)\+?=\(", re.M)
_LABEL = re.compile(r"^\s*-[^()$]*\)")
_OF_THE_JOB = re.compile(r"\$\{(\w*(?:NODE|WORLD)\w*):?-")
"""Matches variables with a default that the user overrides at submission: the size of the job."""
_PRINTING = ("echo", "printf", "log", "info", "die", "usage")
_EXPANSION = re.compile(r"\$\{?(\w+|[@*])")


@dataclass(frozen=True, slots=True)
class Script:
    """Words of one file, with the lines that only some runs execute."""

    name: str
    text: str
    words: tuple[Word, ...]
    branches: frozenset[int]
    """Numbers of the lines inside branches and loops."""
    arrays: frozenset[str]
    """Names of the arrays that the script assigns."""

    def flags(self, known: Iterable[str]) -> list[Flag]:
        """Return the flags of statements with one of ``known``; none in messages and labels."""
        lines = self.text.split("\n")
        words = [
            word
            for statement in statements(self.words)
            if statement[0].text not in _PRINTING
            for word in statement
            if not _LABEL.match(lines[word.span.line - 1])
        ]
        return written_flags(words, known)

    def sure(self, flags: list[Flag]) -> list[Flag]:
        """Return the flags that every run has with the same value: no branch, no second value."""
        values: dict[str, set[tuple[str, ...]]] = {}
        for flag in flags:
            values.setdefault(flag.name, set()).add(tuple(word.text for word in flag.values))
        return [
            flag
            for flag in flags
            if len(values[flag.name]) == 1 and flag.word.span.line not in self.branches
        ]

    def is_open(self, flags: list[Flag], value_count: Callable[[str], int | None]) -> bool:
        """Return True if flags may be added at run time: a word can expand to several.

        ``value_count`` returns the number of values of a flag, None if it is not fixed.
        """
        statements = {flag.word.statement for flag in flags}
        after: set[int] = set()
        for flag in flags:
            count = value_count(flag.name)
            after |= {
                id(word) for word in flag.values[: len(flag.values) if count is None else count]
            }
        return any(
            word.dynamic and id(word) not in after and self._can_expand_to_flags(word)
            for word in self.words
            if word.statement in statements
        )

    def _can_expand_to_flags(self, word: Word) -> bool:
        """Return True for ``$ARGS``, ``"${ARGS[@]}"`` or ``$@`` that the script does not assign."""
        if "=" in word.text.partition("$")[0]:
            return False
        names = _EXPANSION.findall(word.text)
        return word.text.startswith("$") and not set(names) <= self.arrays


def read_script(text: str, name: str) -> Script:
    """Split ``text`` into words; expand variables that are set once, outside of branches."""
    branches = _branches(text)
    values: dict[str, set[str]] = {}
    unsure: set[str] = set()
    for word in shell_words(text, name):
        for variable, value in assignments([word]):
            values.setdefault(variable, set()).add(value)
            if word.span.line in branches:
                unsure.add(variable)
    unsure |= {variable for variable, found in values.items() if len(found) > 1}
    unsure |= set(_OF_THE_JOB.findall(text))
    words = tuple(one for word in shell_words(text, name, unsure) for one in _split(word))
    return Script(name, text, words, branches, frozenset(_ARRAY.findall(text)))


def _split(word: Word) -> list[Word]:
    """Split ``"--flag value"``, an element of an array that is expanded without quotes."""
    if not (word.is_flag and re.search(r"\s", word.text)):
        return [word]
    return [replace(word, text=part) for part in word.text.split()]


def _branches(text: str) -> frozenset[int]:
    """Return the numbers of the lines inside ``if``, ``case`` and loops."""
    inside, depth = set(), 0
    for number, line in enumerate(text.splitlines(), start=1):
        match = _BRANCH.match(line)
        if match and match["close"]:
            depth = max(0, depth - 1)
        if depth:
            inside.add(number)
        if match and match["open"] and not re.search(r"\b(fi|esac|done)\s*$", line):
            depth += 1
    return frozenset(inside)


def statements(words: Iterable[Word]) -> list[list[Word]]:
    """Group consecutive words by statement."""
    return [list(group) for _, group in groupby(words, key=lambda word: word.statement)]
