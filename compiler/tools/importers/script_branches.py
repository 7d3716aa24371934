"""Find the commands of a script that only some of its runs execute."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.here_documents import HereDocuments
from parc.compiler.tools.importers.shell_words import PIECE

# A keyword counts only at the start of a line, so that words such as "for" in arguments do not.
_BRANCH = re.compile(r"\s*(?:(?:if|case|while|until|for|select)|(?P<close>fi|esac|done))\b")
_OPENINGS = re.compile(
    r"(?:^|[;&|({]|\b(?:then|do|else|in)\b)[ \t]*(?:if|case|while|until|for|select)\b"
)
_CLOSINGS = re.compile(r"(?:^|[;)}])[ \t]*(?:fi|esac|done)\b")
_OPEN = frozenset(("if", "case", "while", "until", "for", "select"))
_CLOSE = frozenset(("fi", "esac", "done"))
_BEFORE_COMMANDS = frozenset(("then", "else", "elif", "do", "!", "time"))
"""Keywords that a command, or another keyword, follows."""
_TESTS = frozenset(("[", "[[", "test", "((", "grep", "egrep", "command", "which"))
"""Commands whose result decides whether the command after ``&&`` runs."""


class Branches:
    """Parts of a script that not every run executes exactly once.

    These are the lines inside ``if`` statements, ``case`` statements and loops, the body of such a
    statement on one line, and the commands after ``||`` and after ``TEST &&``. A command after
    another ``&&``, such as ``cd folder && torchrun``, counts as executed in every run.
    """

    def __init__(self, text: str) -> None:
        """Find the branches of the script ``text``."""
        self._lines = _lines_inside_branches(text)
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        ranges = _BranchScanner(text).ranges()
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def __contains__(self, span: Span) -> bool:
        """Return True if the word at ``span`` is in a branch."""
        if span.line in self._lines:
            return True
        if not self._starts or span.line > len(self._line_starts):
            return False
        offset = self._line_starts[span.line - 1] + span.column - 1
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]


def _lines_inside_branches(text: str) -> frozenset[int]:
    """Return the numbers of all lines inside ``if`` statements, ``case`` statements and loops."""
    inside, depth = set(), 0
    for number, line in enumerate(text.split("\n"), start=1):
        match = _BRANCH.match(line)
        if match and match["close"]:
            depth = max(0, depth - len(_CLOSINGS.findall(line)))
        if depth:
            inside.add(number)
        if match:
            opened = len(_OPENINGS.findall(line))
            closed = 0 if match["close"] else len(_CLOSINGS.findall(line))
            depth += max(0, opened - closed)
    return frozenset(inside)


class _BranchScanner:
    """Scanner for conditional commands that do not have lines of their own."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._groups: list[bool] = []
        """For each open ``{``: True if the whole group is conditional."""
        self._arrays = self._depth = 0
        self._first = ""
        """First word of the current command; empty before its first word."""
        self._is_tested = self._is_conditional = False

    def ranges(self) -> list[tuple[int, int]]:
        """Return the (start, end) offsets of the conditional parts, in order."""
        found: list[tuple[int, int]] = []
        start: int | None = None
        for at, end in self._pieces():
            if self._is_conditional and start is None:
                start = end
            elif start is not None and not self._is_conditional:
                found.append((start, at))
                start = None
        return [*found, (start, len(self._text))] if start is not None else found

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yield the (start, end) offsets of each piece of the script, after it was read."""
        documents = HereDocuments(self._text)
        skipped = {one.body_start: one.end for one in documents if not one.is_script}
        at, is_new_word = 0, True
        while at < len(self._text):
            at = skipped.get(at, at)
            match = PIECE.match(self._text, at)
            if match is None:
                return
            start, at = at, match.end()
            if is_new_word and match[0].startswith("#"):
                line_end = self._text.find("\n", start)
                at = len(self._text) if line_end < 0 else line_end
                continue
            self._read_piece(match, is_new_word)
            is_new_word = match.lastgroup in ("blank", "end", "open", "close")
            yield start, at

    def _read_piece(self, match: re.Match[str], is_new_word: bool) -> None:
        kind, text = match.lastgroup, match[0]
        if kind == "end":
            # In ``2>&1`` and ``&>file``, the sign separates no commands.
            around = self._text[match.start() - 1 : match.end() + 1]
            if text != "&" or not {"<", ">"} & set(around):
                self._end_command(text)
        elif kind == "open":
            assigned = text == "=(" or self._text.endswith("=", 0, match.start())
            self._arrays += bool(self._arrays) or assigned
            double = self._text.startswith("((", match.start())
            self._first = self._first or ("((" if double else "(")
        elif kind == "close":
            self._arrays -= self._arrays > 0
        elif kind != "blank" and is_new_word:
            self._start_word(text)

    def _end_command(self, separator: str) -> None:
        """Read the separator after a command; a line break inside an array is none."""
        if separator.endswith("\n"):
            if self._arrays:
                return
            self._depth = 0
        if separator == "&&":
            self._is_tested |= self._first in _TESTS
            self._is_conditional |= self._is_tested
        elif separator == "||":
            self._is_conditional = True
        elif separator != "|":
            self._is_tested = False
            self._reset()
        self._first = ""

    def _reset(self) -> None:
        in_group = bool(self._groups) and self._groups[-1]
        self._is_conditional = in_group or self._depth > 0

    def _start_word(self, text: str) -> None:
        """Read the first piece of a word; only keywords and the names of commands matter."""
        if text == "{":
            self._groups.append(self._is_conditional)
        elif self._first:
            return
        elif text == "}":
            self._is_conditional = bool(self._groups) and self._groups.pop()
            self._first = text
        elif text in _OPEN:
            self._depth += 1
            self._is_conditional = True
        elif text in _CLOSE:
            self._depth = max(0, self._depth - 1)
            self._first = text
            self._reset()
        elif text not in _BEFORE_COMMANDS:
            self._first = text
