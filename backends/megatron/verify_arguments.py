"""Reader of ``megatron/args.sh`` that follows the rules of bash and argparse.

It shares no code with the emitter, and raises ``MalformedFileError`` for any text that is not a
single array of literal words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache

from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError

ARGUMENTS = "megatron/args.sh"
_BLANK_OR_WORD = re.compile(r"""[ \t\n]+|#[^\n]*|((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+)""")
"""Pattern of white space, a comment, or a bash word with its quotes."""
_COMMENTS = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_LITERAL = re.compile(
    r"""(?:'[^']*'|"(?:[^"\\$`!]|\\["\\])*"|\\.|[^'"\\$`;&|<>()*?\[\]{}~!])*""", re.DOTALL
)
"""Word in which bash expands and interprets nothing."""


@frozen
class WrittenFlags:
    """Flags and their values. If a flag is repeated, the last occurrence counts, as in argparse."""

    flags: dict[str, tuple[str, ...]]
    lines: Mapping[str, int] = field(default_factory=dict)
    """Flag -> line number of the last occurrence of the flag."""

    def has(self, flag: str) -> bool:
        """Return True if the arguments contain ``--flag``."""
        return flag in self.flags

    def text(self, flag: str) -> str | None:
        """Return the first value of ``--flag``; None if the flag is absent or has no value."""
        values = self.flags.get(flag, ())
        return values[0] if values else None

    def number(self, flag: str, default: int) -> int:
        """Return the value of ``--flag`` as a positive integer; ``default`` if the flag is absent.

        Raise ``MalformedFileError`` for other values.
        """
        return (
            _parse_positive_integer(flag, self.text(flag) or "") if flag in self.flags else default
        )

    def numbers(self, flag: str) -> tuple[int, ...]:
        """Return all values of ``--flag`` as positive integers; () if the flag is absent."""
        return tuple(_parse_positive_integer(flag, value) for value in self.flags.get(flag, ()))


def _parse_positive_integer(flag: str, value: str) -> int:
    number = int(value) if re.fullmatch(r"[0-9]{1,10}", value) else 0
    if not 0 < number <= LARGEST:
        raise MalformedFileError(ARGUMENTS, 1, f"--{flag} is {value!r}, must be a number > 0")
    return number


@lru_cache(maxsize=4)
def read_arguments(text: str) -> WrittenFlags:
    """Return the flags in the bash array ``MEGATRON_ARGS``.

    Raises ``MalformedFileError`` if ``text`` contains anything except this array and comments.
    """
    start = re.search(r"\A(?:[ \t]*#[^\n]*\n|\s*\n)*[ \t]*MEGATRON_ARGS=\(", text)
    if not start:
        raise MalformedFileError(
            ARGUMENTS, 1, "the file does not start with the array MEGATRON_ARGS=( ... )"
        )
    flags: dict[str, tuple[str, ...]] = {}
    lines: dict[str, int] = {}
    name = ""
    for line, word in _iterate_words(text, start.end()):
        if word.startswith("--"):
            # argparse accepts both `--flag value` and `--flag=value`.
            name, _, value = word[2:].partition("=")
            flags[name] = (value,) if "=" in word else ()
            lines[name] = line
        elif name:
            flags[name] = (*flags[name], word)
        else:
            raise MalformedFileError(
                ARGUMENTS, line, f"the word {word!r:.60} precedes the first flag"
            )
    return WrittenFlags(flags, lines)


def _iterate_words(text: str, at: int) -> Iterator[tuple[int, str]]:
    """Yield (line number, unquoted word) for each word before the closing parenthesis."""
    while found := _BLANK_OR_WORD.match(text, at):
        at, raw = found.end(), found[1]
        line = text.count("\n", 0, found.start()) + 1
        if raw == ")":
            if rest := _COMMENTS.sub("", text[at:]).strip():
                raise MalformedFileError(
                    ARGUMENTS, line, f"the text {rest!r:.60} follows the array"
                )
            return
        if raw:
            # Such a word depends on the environment of the shell, so its value cannot be verified.
            if not _LITERAL.fullmatch(raw):
                raise MalformedFileError(ARGUMENTS, line, f"bash would expand the word {raw!r:.60}")
            yield line, shlex.split(raw)[0]
    raise MalformedFileError(
        ARGUMENTS, text.count("\n", 0, at) + 1, "the array MEGATRON_ARGS has no closing parenthesis"
    )
