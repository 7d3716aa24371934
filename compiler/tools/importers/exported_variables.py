"""Find the environment variables that a script passes to the program that it launches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parc.compiler.tools.importers.script_branches import Branches
from parc.compiler.tools.importers.shell_words import ASSIGNMENT, Word, statements

# Blanks without line breaks: otherwise each of thousands of empty lines would be scanned to the end
# of all of them.
ARRAY = re.compile(
    r"^[ \t]*(?:(?:local|declare|export|readonly)[ \t]+(?:-\w+[ \t]+)?)?(\w+)\+?=\(", re.M
)
"""Matches an assignment to an array; the group is its name."""


def find_exports(words: list[Word], text: str, launch: int) -> tuple[dict[str, Word], list[Word]]:
    """Return (exports of every run by name, assignments of exports that only some runs have).

    Args:
        words: words of the script.
        text: the script.
        launch: number of the statement that starts the ranks.
    """
    arrays = set(ARRAY.findall(text))
    branches = Branches(text, words[0].span.file if words else "")
    values: dict[str, Word] = {}
    certain: dict[str, Word] = {}
    open_exports: dict[str, list[Word]] = {}
    for statement in statements(words):
        prefix = dict(_leading_assignments(statement))
        if prefix.keys() & arrays:
            continue
        exported = _exports_of_statement(statement, prefix, values)
        if exported is None:
            # Assignments before a command are exported to this command only.
            exported = prefix if statement[0].statement == launch else {}
        elif exported is prefix:
            # An assignment to an exported variable changes the exported value.
            known = certain.keys() | open_exports.keys()
            exported = {name: word for name, word in prefix.items() if name in known}
        for name, word in exported.items():
            _add_export(name, word, word.span in branches, (certain, open_exports))
    # A value that starts with a blank is a launch command: CMD="$LAUNCHER train.py".
    kept = {name: one for name, one in certain.items() if "= " not in one.text[: len(name) + 2]}
    return kept, [word for found in open_exports.values() for word in found]


def _exports_of_statement(
    statement: list[Word], prefix: dict[str, Word], values: dict[str, Word]
) -> dict[str, Word] | None:
    """Return the variables that a statement exports or sets, and add them to ``values``.

    The result is ``prefix``, the assignments at the start of the statement, if it contains nothing
    else, and None if the assignments are followed by another command.
    """
    if _exports_variables(statement):
        exported = _exported_variables(statement[1:], values)
        values |= exported
        return exported
    if len(prefix) < len(statement):
        return None
    values |= prefix
    return prefix


def _add_export(
    name: str, word: Word, is_open: bool, found: tuple[dict[str, Word], dict[str, list[Word]]]
) -> None:
    """Add an export to (exports of every run, exports of some runs); ``is_open``: of some runs."""
    certain, open_exports = found
    if not is_open:
        open_exports.pop(name, None)
        certain[name] = word
    elif name not in certain or certain[name].text != word.text:
        before = certain.pop(name, None)
        open_exports.setdefault(name, [] if before is None else [before]).append(word)


def _exports_variables(statement: list[Word]) -> bool:
    """Return True if a statement exports variables, such as ``export`` and ``declare -x``."""
    first, *rest = (word.text for word in statement)
    declares = first in ("declare", "typeset") and any(re.match(r"-\w*x", one) for one in rest)
    return declares or first in ("export", "env")


def _exported_variables(words: list[Word], values: dict[str, Word]) -> dict[str, Word]:
    """Return (name -> assignment) of the variables in the arguments of ``export``.

    For ``export A`` without a value, the assignment of ``A`` is taken from ``values``.
    """
    found = {}
    for word in words:
        match = ASSIGNMENT.fullmatch(word.text)
        if match:
            found[match[1]] = word
        elif word.text in values:
            found[word.text] = values[word.text]
    return found


def _leading_assignments(statement: list[Word]) -> Iterator[tuple[str, Word]]:
    for word in statement:
        match = ASSIGNMENT.fullmatch(word.text)
        if match is None:
            return
        yield match[1], word
