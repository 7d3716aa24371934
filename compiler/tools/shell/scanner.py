"""Split a shell script into words with positions, in the order in which bash reads it.

Nothing is executed: a value that the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re

from parc.compiler.tools.shell.arithmetic import evaluate_arithmetic
from parc.compiler.tools.shell.commands import ASSIGNS, Command, CommandReader, Part
from parc.compiler.tools.shell.conditions import Operand
from parc.compiler.tools.shell.pieces import PIECE, SUBSTITUTION, remove_quotes
from parc.compiler.tools.shell.scanned_script import ScannedScript
from parc.compiler.tools.shell.values import UNKNOWN, Expansion
from parc.compiler.tools.shell.word import Word

# Bounds for hostile or generated input: a script is read in linear time and memory.
MOST_WORDS = 200_000
DEEPEST = 4
_COMMAND = re.compile(r"\s(?:--?[A-Za-z]|[^\s'\"=]+\.py\b)")
"""Matches a flag or a program in quoted text, so that the text is a command or a part of one."""
_FLAG = re.compile(r"\s*--[A-Za-z]")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=")
_ARITHMETIC = re.compile(r"\(\(((?:[^()\n]|\([^()\n]*+\))*+)\)\)")
_CHANGED = re.compile(r"([A-Za-z_]\w{0,63})\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w*)")


class Scanner(CommandReader):
    """Scanner of the pieces of one script."""

    def scan(self) -> ScannedScript:
        """Scan the whole text."""
        self._scan_part(0, len(self._text), 0)
        self._flow.close_all()
        found = self.found
        if self._open_range is not None:
            found.undecided.append((self._open_range, (len(self._starts) + 1, 1)))
        finished = ((self._values.finished(word.text), word) for word in found.words)
        found.words = [
            word if text == word.text else _with_text(word, text) for text, word in finished if text
        ]
        found.ambiguous, found.used = self._values.ambiguous, self._values.used
        uses = self._values.uses.items()
        found.used_in_branches = frozenset(name for name, is_certain in uses if not is_certain)
        return found

    def _scan_part(self, start: int, end: int, depth: int) -> None:
        """Scan a part of the text that ``depth`` quoted commands contain."""
        at = start
        while at < end and len(self.found.words) < MOST_WORDS:
            at = self._skipped.get(at, at)
            match = PIECE.match(self._text, at, end)
            if match is None:  # a here-document ends the text
                break
            at = self._read_piece(match, end, depth)
            self._update_range(at)
        self._end_word()
        self._end_command("\n")

    def _read_piece(self, match: re.Match[str], end: int, depth: int) -> int:
        """Read a piece; return the offset after it."""
        kind, text, at = match.lastgroup or "other", match[0], match.end()
        # As in the shell, "#" starts a comment only at the start of a word.
        if kind == "plain" and text.startswith("#") and not self._word.raw:
            if self._command.is_open and self._command.cut_at < 0 and not self._arrays:
                self._command.cut_at = match.start()
            line_end = self._text.find("\n", match.start(), end)
            return end if line_end < 0 else line_end
        if kind in ("single", "double") and self._is_command(text, depth):
            return self._scan_quoted(match, end, depth)
        if kind in ("plain", "other", "single", "double", "placeholder"):
            self._add_to_word(kind, text, match.start())
            return at
        if kind == "open":
            return self._read_opening(match)
        self._end_word()
        if kind == "close":
            self._read_closing()
        elif kind == "end":
            self._read_separator(match)
        elif text != " " and text.startswith("\\"):
            self._command.is_continued = self._command.is_open = True
        return at

    def _scan_quoted(self, match: re.Match[str], end: int, depth: int) -> int:
        """Scan a quoted text that contains a command; return the offset after it."""
        at = match.end()
        at = self._end_of_joined_parts(at, end) if match.lastgroup == "double" else at
        quoted = match.lastgroup == "single" or self._text[at - 1] == '"'
        word, command, before = self._word, self._command, self._before
        saved = self._variable, self._outer, self._arrays
        first = word.raw[0] if word.raw else ""
        self._variable = saved[0] or _assigned_name(first, match[0])
        self._outer = self._outer if depth else self._statement
        self._word, self._command, self._before, self._arrays = Part(), Command(), None, 0
        self._flow.open("quote")
        self._scan_part(match.start() + 1, at - quoted, depth + 1)
        self._flow.close("quote")
        self._word, self._command, self._before = word, command, before
        self._variable, self._outer, self._arrays = saved
        word.start = word.start if word.raw else match.start()
        word.is_listed = True
        command.is_open = False
        return at

    def _is_command(self, text: str, depth: int) -> bool:
        """Return True if a quoted text contains a command or arguments of a command.

        ``text`` starts with the opening quote.
        """
        if depth >= DEEPEST or self._command.is_message or self._command.is_hidden:
            return False
        if self._flow.in_pattern or self._flow.in_subject or self._flow.in_header:
            return False
        # The first piece contains the name: joining all pieces would take quadratic time.
        raw = self._word.raw
        if raw and _NAME.match(raw[0]) and _FLAG.match(text, 1):
            return True
        return bool(_COMMAND.search(SUBSTITUTION.sub("", text) if "$(" in text else text))

    def _end_of_joined_parts(self, at: int, end: int) -> int:
        """Return the end of the shell word that continues at ``at`` after a double-quoted part.

        In ``"--save "a b" --load c"``, the inner quotes close and reopen the outer ones, as in
        bash, so the three parts are one quoted command.
        """
        while (match := PIECE.match(self._text, at, end)) is not None:
            if match.lastgroup not in ("plain", "double", "other", "placeholder"):
                break
            at = match.end()
        return at

    def _add_to_word(self, kind: str, text: str, start: int) -> None:
        word, command = self._word, self._command
        if not word.raw:
            if not word.is_listed:
                word.start = start
            may_assign = command.only_assigns or command.declares
            word.is_assignment = may_assign and ASSIGNS.match(text) is not None
        word.raw.append(text)
        word.quoted |= kind != "plain"
        if self._flow.runs is False:
            word.expansions.append(Expansion(text, text, False))
            return
        if "${" in text and "=" in text:
            self._values.place = self._span(start, len(text))
        self._values.is_message = command.is_message
        self._values.is_certain = self._flow.runs is True
        splits = kind == "plain" and not word.is_assignment and not command.is_message
        word.expansions.append(self._values.expand(remove_quotes(kind, text), splits))

    def _read_opening(self, match: re.Match[str]) -> int:
        """Read ``(``: an array, a function, arithmetic, a subshell or a pattern."""
        text, at = match[0], match.end()
        raw = self._word.raw
        if text == "=(" or (raw and raw[-1].endswith("=")):
            if text == "=(":
                self._add_to_word("plain", "=", match.start())
            self._word.is_listed = True
            self._end_word()
            self._arrays += 1
            return at
        if self._arrays:
            self._end_word()
            self._arrays += 1
            return at
        command = self._command
        starts_command = not raw and not command.operands and not command.first
        if command.first == "[[":
            command.operands.append(Operand("(", False))
        function = re.compile(r"\([ \t]*\)").match(self._text, match.start())
        if function is not None and len(raw) == 1 and not self._command.operands:
            self._word = Part()
            self._flow.next_is_function = True
            return function.end()
        self._end_word()
        arithmetic = _ARITHMETIC.match(self._text, match.start())
        if arithmetic is not None and (starts_command or self._flow.in_header):
            self._read_arithmetic(arithmetic[1])
            return arithmetic.end()
        if starts_command and not self._flow.in_pattern and not self._flow.in_header:
            self._flow.open("subshell")
        return at

    def _read_arithmetic(self, text: str) -> None:
        for match in _CHANGED.finditer(text):
            self._change(match[1] or match[2], UNKNOWN)
        self._command.first = "(("
        sure = True

        def value(name: str) -> int | None:
            nonlocal sure
            found, is_sure = self._values.integer(name)
            sure &= is_sure
            return found

        result = evaluate_arithmetic(text, value)
        self._flow.end_arithmetic(bool(result) if result is not None and sure else None)

    def _read_closing(self) -> None:
        if self._arrays:
            self._arrays -= 1
        elif self._flow.in_pattern:
            self._flow.start_case_branch()
            self._command = Command()
            self._statement += 1
        elif self._command.operands[:1] and self._command.operands[0].text == "[[":
            return
        else:
            self._end_command(")")
            if self._flow.close("subshell"):
                self._command.is_hidden = True

    def _read_separator(self, match: re.Match[str]) -> None:
        text = match[0]
        command = self._command
        if text.endswith("\n"):
            command.is_open = False
            if self._arrays:
                return
            if self._flow.in_pattern or self._flow.in_subject:
                self._flow.end_line_of_case(bool(command.operands))
                return
        around = self._text[match.start() - 1 : match.end() + 1]
        in_test = command.first == "[[" and command.operands[-1].text != "]]"
        if in_test and text in ("&&", "||"):
            command.operands.append(Operand(text, True))
        elif text == "&" and {"<", ">"} & set(around):  # in ``2>&1`` and ``&>file``
            self._statement += 1
        elif self._flow.in_pattern:
            return
        elif text == ";" and self._text.startswith(";", match.end()):
            self._end_command(";")
            self._flow.end_case_branch(False)
        elif text == "&" and self._text.startswith(";&", match.start() - 1):
            self._flow.end_case_branch(True)
        elif text == ";" and self._text.startswith(";;", match.start() - 1):
            return
        else:
            self._end_command(text)

    def _update_range(self, at: int) -> None:
        """Record the start or the end of a part that not every run executes."""
        is_certain = self._flow.runs is True
        if is_certain and self._open_range is not None:
            self.found.undecided.append((self._open_range, self._place(at)))
            self._open_range = None
        elif not is_certain and self._open_range is None:
            self._open_range = self._place(at)


def _with_text(word: Word, text: str) -> Word:
    return Word(text, word.span, word.statement, word.variable, word.outer)


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
