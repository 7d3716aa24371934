"""Lines of a shell script that bash would run, without comments, indentation and blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parc.compiler.ir.frozen import frozen

_TOKEN = re.compile(
    r"""'[^']*'|"(?:[^"\\]|\\.)*"|\$\{?\#|\\.|[^\s'"\\#$]+|[ \t]+|\n|.""", re.DOTALL
)
_WORD_BREAKS = frozenset(" \n;|&(")
"""Characters after which ``#`` starts a comment."""


@frozen
class ShellLine:
    """Line of a script. If a quoted text contains newlines, all its lines count as one line."""

    number: int
    text: str
    """Text with single blanks between words, and without a comment."""


def command_lines(text: str) -> Iterator[ShellLine]:
    """Yield the lines of ``text`` that bash runs, preceded by the ``#!`` line if there is one.

    Lines that are joined by a backslash, or by a quoted text that contains newlines, count as one
    line.
    """
    number, start, parts = 1, 1, list[str]()
    at = 0
    if text.startswith("#!"):
        first, _, _ = text.partition("\n")
        yield ShellLine(1, first.rstrip())
        at = len(first)
    while found := _TOKEN.match(text, at):
        token, at = found[0], found.end()
        if token == "#" and (not parts or parts[-1][-1] in _WORD_BREAKS):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif token == "\n":
            yield from _shell_line(start, parts)
            number += 1
            start, parts = number, []
        elif token == "\\\n" or token.isspace():
            number += token.count("\n")
            parts += [" "] if parts and parts[-1] != " " else []
        else:
            start = start if parts else number
            number += token.count("\n")
            parts.append(token)
    yield from _shell_line(start, parts)


def without_trailing_comments(text: str) -> str:
    """Return the script without comments that follow a command; the number of lines stays.

    Lines that consist of a comment are kept, because sbatch reads some of them.
    """
    at, kept, is_blank = 0, list[str](), True
    while found := _TOKEN.match(text, at):
        token, at = found[0], found.end()
        if token == "#" and (not kept or kept[-1][-1] in _WORD_BREAKS):
            end = text.find("\n", at)
            start, at = at - 1, len(text) if end < 0 else end
            kept += [text[start:at]] if is_blank else []
        else:
            kept.append(token)
            is_blank = token == "\n" or (is_blank and token.isspace())
    return "".join(kept)


def _shell_line(number: int, parts: list[str]) -> Iterator[ShellLine]:
    text = "".join(parts).rstrip(" ")
    if text:
        yield ShellLine(number, text)
