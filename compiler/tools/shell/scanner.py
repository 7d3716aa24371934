"""Split a shell script into words with positions, in the order in which bash reads it.

Nothing is executed: a value that the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.shell.arithmetic import evaluate_arithmetic
from parc.compiler.tools.shell.conditions import Operand
from parc.compiler.tools.shell.control_flow import ControlFlow
from parc.compiler.tools.shell.here_documents import HereDocuments
from parc.compiler.tools.shell.pieces import PIECE, SUBSTITUTION, remove_quotes
from parc.compiler.tools.shell.slurm_variables import slurm_variables
from parc.compiler.tools.shell.values import (
    SPLIT,
    UNKNOWN,
    Expansion,
    ShellValues,
    Value,
    assigned_value,
)
from parc.compiler.tools.shell.word import Word

# Bounds for hostile or generated input: a script is read in linear time and memory.
MOST_WORDS = 200_000
DEEPEST = 4
_MESSAGES = frozenset(
    (
        *("echo", "printf", "log", "info", "die", "usage", "warn", "error"),
        *("[[", "[", "test", "grep", "egrep", "sed", "awk"),
    )
)
"""Commands whose arguments are texts or patterns: flags in them start nothing."""
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_READS = frozenset(("read", "mapfile", "readarray", "getopts", "unset"))
_COMMAND = re.compile(r"\s(?:--?[A-Za-z]|[^\s'\"=]+\.py\b)")
"""Matches a flag or a program in quoted text, so that the text is a command or a part of one."""
_FLAG = re.compile(r"\s*--[A-Za-z]")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})=")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
_ARITHMETIC = re.compile(r"\(\(((?:[^()\n]|\([^()\n]*+\))*+)\)\)")
_CHANGED = re.compile(r"([A-Za-z_]\w{0,63})\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w*)")
_RESERVED = str.maketrans(dict.fromkeys("\0\1\2\3", "\4"))
"""Characters that mark parts of expanded texts."""


Place = tuple[int, int]
"""Line and column, from 1."""


@frozen
class Assignment:
    """Assignment of a variable, with its value."""

    name: str
    text: str
    span: Span
    is_certain: bool
    """True if every run of the script executes the assignment."""


@frozen
class StrayLine:
    """Line of flags that bash runs as a command of its own, although it seems to continue one."""

    words: tuple[Word, ...]
    before: Span
    """Position of what ends the command before: a comment, or a line without a backslash."""
    is_comment: bool


@dataclass
class ScannedScript:
    """Words of a script, in order, and what its control flow says about them."""

    words: list[Word] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    stray: list[StrayLine] = field(default_factory=list)
    undecided: list[tuple[Place, Place]] = field(default_factory=list)
    """(start, end) of the parts that not every run executes exactly once."""
    ambiguous: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    """Variable whose value differs between runs -> positions of the assignments."""
    used: set[Span] = field(default_factory=set)
    """Positions of the assignments whose values the script uses."""
    used_in_branches: frozenset[str] = frozenset()
    """Variables that only some runs of the script use."""


@dataclass
class _Command:
    """Simple command that is being read."""

    operands: list[Operand] = field(default_factory=list)
    pending: list[tuple[str, Value, bool]] = field(default_factory=list)
    only_assigns: bool = True
    declares: bool = False
    first: str = ""
    is_message: bool = False
    is_hidden: bool = False
    """True for redirections after the end of a compound statement, and for headers of loops."""
    is_continued: bool = False
    """True if a line of the command ends with a backslash."""
    is_open: bool = False
    """True after a backslash at the end of a line, until the next word."""
    cut_at: int = -1
    """Offset of a comment that ends the command although the line before continues it."""
    stray: list[Word] | None = None


@dataclass
class _Part:
    """Word that is being read."""

    start: int = 0
    raw: list[str] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    quoted: bool = False
    is_listed: bool = False
    is_assignment: bool = False


class Scanner:
    """Scanner of one script."""

    def __init__(self, text: str, file: str, kept: Collection[str]) -> None:
        """Prepare the scan of ``text``; variables in ``kept`` stay as written."""
        self._file = file
        self._text = text if re.search("[\0-\3]", text) is None else text.translate(_RESERVED)
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._statement = 0
        self._outer = -1
        self._variable = ""
        self._skipped = {
            one.body_start: one.end for one in HereDocuments(text) if not one.is_script
        }
        self._values = ShellValues(self._text, kept, slurm_variables(text))
        self._flow = ControlFlow(self._values)
        self._command = _Command()
        self._word = _Part()
        self._before: _Command | None = None
        self._arrays = 0
        self._open_range: Place | None = None
        self._is_shell = text.startswith("#!")
        self.found = ScannedScript()

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
        self._word, self._command, self._before, self._arrays = _Part(), _Command(), None, 0
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
            word.is_assignment = may_assign and _ASSIGNS.match(text) is not None
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
            self._word = _Part()
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
            self._command = _Command()
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

    def _end_command(self, separator: str) -> None:
        """End the current command, and execute its assignments."""
        command = self._command
        if command.first != "((" and (command.operands or command.pending):
            self._assign(command)
            self._flow.end_command(separator, command.operands)
        elif command.first == "((" or command.is_hidden or not separator.endswith("\n"):
            self._flow.end_command(separator, ())
        if command.stray is not None and self._before is not None:
            self._add_stray_line(command.stray, self._before)
        is_line = separator.endswith("\n")
        if command.operands or command.pending or command.is_hidden or not is_line:
            self._before = command if is_line else None
        self._command = _Command()
        self._statement += 1

    def _assign(self, command: _Command) -> None:
        if command.first in _READS:
            empty = Value("", "", True)
            for one in command.operands[1:]:
                if re.fullmatch(r"[A-Za-z_]\w{0,63}", one.text):
                    is_unset = command.first == "unset"
                    self._change(one.text, empty if is_unset else UNKNOWN)
        # Assignments in front of another command hold for this command only.
        if command.only_assigns or command.declares:
            for name, value, appends in command.pending:
                self._change(name, self._appended(name, value) if appends else value)

    def _change(self, name: str, value: Value) -> None:
        if self._flow.runs is not False:
            self._values.assign(name, value, self._flow.assigns_certainly)

    def _appended(self, name: str, value: Value) -> Value:
        old = self._values.find(name)
        if old is None or value.is_listed or old.is_listed:
            return Value("", "", False, True, value.places)
        if old.text is None or value.text is None:
            return Value(None, None, False, False, value.places)
        shown = f"{old.shown}{value.shown}"
        sure = old.is_sure and value.is_sure
        return Value(old.text + value.text, shown, sure, False, value.places)

    def _add_stray_line(self, words: list[Word], before: _Command) -> None:
        if before.cut_at >= 0:
            place = self._span(before.cut_at, 1)
        else:
            line = words[0].span.line - 1
            place = Span(self._file, max(line, 1), 1)
        self.found.stray.append(StrayLine(tuple(words), place, before.cut_at >= 0))

    def _end_word(self) -> None:
        """End the current word, and add it to the current command and to the words."""
        word = self._word
        if not word.raw and not word.is_listed:
            return
        self._word = _Part()
        command, flow = self._command, self._flow
        raw = "".join(word.raw)
        full = "".join(one.text for one in word.expansions)
        is_sure = all(one.is_sure for one in word.expansions) and not word.is_listed
        operand = Expansion(full, full, is_sure).operand
        if flow.in_subject:
            if raw == "in":
                flow.set_subject(command.operands[-1] if command.operands else None)
                self._command = _Command()
            else:
                command.operands.append(operand)
            return
        if flow.in_pattern:
            if raw == "esac":
                flow.read_keyword(raw)
                command.is_hidden = True
            else:
                flow.add_pattern(operand)
            return
        starts = not command.operands and not command.first and not command.pending
        if starts and not word.quoted and self._read_keyword(raw):
            return
        command.is_open = False
        if flow.in_header:
            if not command.operands and re.fullmatch(r"[A-Za-z_]\w{0,63}", raw):
                self._change(raw, UNKNOWN)
            command.operands.append(operand)
            return
        if command.is_hidden:
            return
        shown = "".join(one.shown for one in word.expansions)
        if not self._arrays:
            self._add_to_command(word, raw, operand, (full, shown, is_sure))
        self._record_defaults()
        self._append_words(word, shown, starts)

    def _read_keyword(self, raw: str) -> bool:
        """Read the first word of a command; return True if it is a keyword."""
        if raw == "function":
            self._flow.next_is_function = True
            self._command.is_hidden = True
            return True
        if self._command.is_hidden and self._flow.next_is_function and raw != "{":
            return True  # the name of the function
        if self._command.is_hidden and raw != "{" and not self._flow.in_header:
            return False
        if not self._flow.read_keyword(raw):
            return False
        closes = raw in ("fi", "done", "esac", "}")
        self._command = _Command(is_hidden=closes or self._flow.in_header)
        self._before = None
        return True

    def _add_to_command(
        self, word: _Part, raw: str, operand: Operand, texts: tuple[str, str, bool]
    ) -> None:
        command = self._command
        full, shown, is_sure = texts
        match = _ASSIGNS.match(raw) if word.is_assignment else None
        if match is None:
            if not command.operands:
                command.first = operand.text
                command.declares = operand.text in _DECLARATIONS
                command.is_message = operand.text in _MESSAGES and not command.pending
            command.only_assigns = False
            command.operands.append(operand)
            return
        length = match.end()
        value = assigned_value(
            Expansion(full[length:], shown[length:], is_sure),
            raw[length:],
            self._span(word.start, len(raw)),
            word.is_listed,
        )
        command.pending.append((match[1], value, bool(match[2])))
        if self._flow.runs is not False and not self._variable:
            text = self._values.finished(shown[length:].replace(SPLIT, " "))
            certain = self._flow.runs is True
            place = self._span(word.start, len(raw))
            self.found.assignments.append(Assignment(match[1], text, place, certain))

    def _record_defaults(self) -> None:
        """Record the variables that ``${NAME:=value}`` in the last word has set."""
        certain = self._flow.runs is True
        for name, text, place in self._values.defaults:
            self.found.assignments.append(Assignment(name, self._values.finished(text), place, certain))
        self._values.defaults.clear()

    def _append_words(self, word: _Part, shown: str, starts: bool) -> None:
        """Append a word, or the words of an unquoted value with blanks, to the words."""
        command = self._command
        is_suppressed = command.is_message and not starts and len(command.operands) > 1
        if is_suppressed or self._flow.runs is False:
            return
        for text in shown.split(SPLIT):
            if not text:
                continue
            span = self._span(word.start, len(text))
            one = Word(text, span, self._statement, self._variable, self._outer)
            if starts and one.is_flag and self._is_stray():
                command.stray = []
            starts = False
            if command.stray is not None:
                command.stray.append(one)
            else:
                self.found.words.append(one)

    def _is_stray(self) -> bool:
        """Return True if a command that starts with a flag seems to continue the one before."""
        before = self._before
        if before is None or self._variable or not before.operands:
            return False
        if before.stray is not None:
            return True
        starts_with_flag = re.match(r"--?[A-Za-z]", before.operands[0].text) is not None
        if starts_with_flag or before.declares or before.is_message:
            return False
        return before.cut_at >= 0 or (self._is_shell and before.is_continued)

    def _span(self, start: int, length: int) -> Span:
        return Span(self._file, *self._place(start), length)

    def _place(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

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
