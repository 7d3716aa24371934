"""Read the words of the commands of a shell script, and execute their assignments.

Nothing else is executed: a value that the shell would compute at run time stays as written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Span
from parc.compiler.tools.shell.conditions import Operand
from parc.compiler.tools.shell.control_flow import ControlFlow
from parc.compiler.tools.shell.here_documents import HereDocuments
from parc.compiler.tools.shell.scanned_script import Assignment, Place, ScannedScript, StrayLine
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

_MESSAGES = frozenset(
    (
        *("echo", "printf", "log", "info", "die", "usage", "warn", "error"),
        *("[[", "[", "test", "grep", "egrep", "sed", "awk"),
    )
)
"""Commands whose arguments are texts or patterns: flags in them start nothing."""
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_READS = frozenset(("read", "mapfile", "readarray", "getopts", "unset"))
ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
_RESERVED = str.maketrans(dict.fromkeys("\0\1\2\3", "\4"))
"""Characters that mark parts of expanded texts."""


@dataclass
class Command:
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
class Part:
    """Word that is being read."""

    start: int = 0
    raw: list[str] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    quoted: bool = False
    is_listed: bool = False
    is_assignment: bool = False


class CommandReader:
    """Reader of the words and commands of one script, in order."""

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
        self._command = Command()
        self._word = Part()
        self._before: Command | None = None
        self._arrays = 0
        self._open_range: Place | None = None
        self._is_shell = text.startswith("#!")
        self.found = ScannedScript()

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
        self._command = Command()
        self._statement += 1

    def _assign(self, command: Command) -> None:
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

    def _add_stray_line(self, words: list[Word], before: Command) -> None:
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
        self._word = Part()
        command, flow = self._command, self._flow
        raw = "".join(word.raw)
        full = "".join(one.text for one in word.expansions)
        is_sure = all(one.is_sure for one in word.expansions) and not word.is_listed
        operand = Expansion(full, full, is_sure).operand
        if flow.in_subject or flow.in_pattern:
            self._read_part_of_case(raw, operand)
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

    def _read_part_of_case(self, raw: str, operand: Operand) -> None:
        """Read a word between ``case`` and the bracket after a pattern."""
        command, flow = self._command, self._flow
        if flow.in_subject and raw == "in":
            flow.set_subject(command.operands[-1] if command.operands else None)
            self._command = Command()
        elif flow.in_subject:
            command.operands.append(operand)
        elif raw == "esac":
            flow.read_keyword(raw)
            command.is_hidden = True
        else:
            flow.add_pattern(operand)

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
        self._command = Command(is_hidden=closes or self._flow.in_header)
        self._before = None
        return True

    def _add_to_command(
        self, word: Part, raw: str, operand: Operand, texts: tuple[str, str, bool]
    ) -> None:
        command = self._command
        full, shown, is_sure = texts
        match = ASSIGNS.match(raw) if word.is_assignment else None
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
            match[1],
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
            self.found.assignments.append(
                Assignment(name, self._values.finished(text), place, certain)
            )
        self._values.defaults.clear()

    def _append_words(self, word: Part, shown: str, starts: bool) -> None:
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
