"""A launch script as it is judged: its flags, and how sure each of them is.

A script says more than one launch: a variable that is set twice, a flag in a branch, arguments
from another file. What may be otherwise when the script runs is *open*: nothing is built on it.
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
"""Variables with a default that who starts the job sets: its size."""
_TALK = ("echo", "printf", "log", "info", "die", "usage")
_EXPANSION = re.compile(r"\$\{?(\w+|[@*])")


@dataclass(frozen=True, slots=True)
class Script:
    """The words of one file and what is known of them."""

    name: str
    text: str
    words: tuple[Word, ...]
    branches: frozenset[int]
    """Lines that run only sometimes."""
    arrays: frozenset[str]
    """Arrays that the script fills itself."""

    def flags(self, known: Iterable[str]) -> list[Flag]:
        """Flags of all statements that have one of ``known``; not those of messages and labels."""
        lines = self.text.split("\n")
        words = [
            word
            for statement in statements(self.words)
            if statement[0].text not in _TALK
            for word in statement
            if not _LABEL.match(lines[word.span.line - 1])
        ]
        return written_flags(words, known)

    def sure(self, flags: list[Flag]) -> list[Flag]:
        """Those that every run has, with one value: not in a branch, not said otherwise below."""
        said: dict[str, set[tuple[str, ...]]] = {}
        for flag in flags:
            said.setdefault(flag.name, set()).add(tuple(word.text for word in flag.values))
        return [
            flag
            for flag in flags
            if len(said[flag.name]) == 1 and flag.word.span.line not in self.branches
        ]

    def is_open(self, flags: list[Flag], takes: Callable[[str], int | None]) -> bool:
        """Whether more flags may come at run time: a word that stands for several.

        ``takes`` is the number of values of a flag, None where it is not fixed.
        """
        statements = {flag.word.statement for flag in flags}
        after: set[int] = set()
        for flag in flags:
            count = takes(flag.name)
            after |= {
                id(word) for word in flag.values[: len(flag.values) if count is None else count]
            }
        return any(
            word.dynamic and id(word) not in after and self._several(word)
            for word in self.words
            if word.statement in statements
        )

    def _several(self, word: Word) -> bool:
        """``$ARGS``, ``"${ARGS[@]}"`` or ``$@`` that the script does not set itself."""
        if "=" in word.text.partition("$")[0]:
            return False
        names = _EXPANSION.findall(word.text)
        return word.text.startswith("$") and not set(names) <= self.arrays


def read_script(text: str, name: str) -> Script:
    """Split ``text``; variables that are set once, outside of branches, are put in."""
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
    """``"--flag value"`` in an array: two words, where the array is expanded without quotes."""
    if not (word.is_flag and re.search(r"\s", word.text)):
        return [word]
    return [replace(word, text=part) for part in word.text.split()]


def _branches(text: str) -> frozenset[int]:
    """Lines between ``if`` and ``fi``, ``case`` and ``esac``, and those of loops."""
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
    """Words by statement."""
    return [list(group) for _, group in groupby(words, key=lambda word: word.statement)]
