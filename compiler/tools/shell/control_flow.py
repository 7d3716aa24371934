"""Determine which commands of a script are executed by every run, by some runs, or by no run.

A state is True for commands that every run executes, None for those that some runs may execute,
and False for those that no run executes, because a constant of the script rules them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from parc.compiler.tools.shell.conditions import (
    Operand,
    both,
    decide_command,
    either,
    matches_pattern,
    negated,
)
from parc.compiler.tools.shell.values import ShellValues, Value

_DEEPEST = 32
"""Depth of statements inside each other up to which the values of branches are separate."""
_TESTS = frozenset(("[", "[[", "test", "grep", "egrep", "command", "which", "true", "false"))
"""Commands whose result decides whether the command after ``&&`` runs."""
_OPENINGS = {
    **{"if": "if", "while": "loop", "until": "loop", "for": "loop", "select": "loop"},
    **{"case": "case", "{": "group"},
}
_CLOSINGS = {"fi": "if", "done": "loop", "esac": "case", "}": "group"}
_PARTS = {"then": "if", "elif": "if", "else": "if", "do": "loop"}


@dataclass
class _CommandList:
    """Commands that ``&&`` and ``||`` join."""

    runs: bool | None
    """State of the current command."""
    status: bool | None = None
    """Result of the commands so far, if it is known."""
    is_tested: bool = False
    is_conditional: bool = False
    """True if an unknown result decides whether the current command runs."""
    is_negated: bool = False
    in_pipe: bool = False


@dataclass
class _Frame:
    """Statement with other commands inside."""

    kind: str
    """One of if, loop, case, group, function, subshell and quote."""
    commands: _CommandList
    """List of commands that contains this statement."""
    state: bool | None
    """State of the commands of the current part."""
    keyword: str = ""
    reach: bool | None = True
    """True if the earlier branches certainly did not run, False if one of them did."""
    is_layered: bool = False
    in_body: bool = False
    has_scope: bool = False
    """True if the values of this body are separate."""
    branches: list[dict[str, Value]] = field(default_factory=list)
    subject: Operand | None = None
    in_pattern: bool = False
    patterns: list[Operand] = field(default_factory=list)


class ControlFlow:
    """Statements that contain the current command of a script."""

    def __init__(self, values: ShellValues) -> None:
        """Start at the first command of a script, which every run executes."""
        self._values = values
        self._frames: list[_Frame] = []
        self._commands = _CommandList(True)
        self._last_status: bool | None = None
        self.next_is_function = False
        """True if the next group is the body of a function."""

    @property
    def runs(self) -> bool | None:
        """State of the current command."""
        return self._commands.runs

    @property
    def assigns_certainly(self) -> bool:
        """True if an assignment holds for all later commands of its branch."""
        frame = self._frames[-1] if self._frames else None
        is_own = frame is None or frame.state is True or frame.is_layered
        return is_own and not self._commands.is_conditional

    @property
    def in_header(self) -> bool:
        """True between ``for`` and ``do``, whose words are not a command."""
        frame = self._frames[-1] if self._frames else None
        return frame is not None and frame.keyword in ("for", "select") and not frame.in_body

    @property
    def in_subject(self) -> bool:
        """True between ``case`` and ``in``."""
        frame = self._frames[-1] if self._frames else None
        if frame is None or frame.kind != "case":
            return False
        return not (frame.in_pattern or frame.in_body)

    @property
    def in_pattern(self) -> bool:
        """True in the pattern of a branch of ``case``."""
        return bool(self._frames) and self._frames[-1].in_pattern

    def _start_list(self) -> None:
        self._commands = _CommandList(self._frames[-1].state if self._frames else True)

    def negate(self) -> None:
        """Read ``!``, which inverts the result of the next command."""
        self._commands.is_negated = not self._commands.is_negated

    def end_command(self, separator: str, words: Sequence[Operand]) -> None:
        """Read the separator after a command.

        Args:
            separator: the separator, such as ``&&``.
            words: words of the command.
        """
        commands = self._commands
        if words:
            commands.is_tested |= words[0].text in _TESTS
            self._set_status(None if commands.in_pipe else decide_command(words))
        self._separate(separator)

    def end_arithmetic(self, status: bool | None) -> None:
        """Read a command ``((...))`` with the result ``status``."""
        self._commands.is_tested = True
        self._set_status(None if self._commands.in_pipe else status)

    def _set_status(self, status: bool | None) -> None:
        commands = self._commands
        if commands.runs is not False:
            status = negated(status) if commands.is_negated else status
            commands.status = None if commands.is_conditional else status
        commands.is_negated = False

    def _separate(self, separator: str) -> None:
        commands = self._commands
        if separator in ("&&", "||"):
            base = self._frames[-1].state if self._frames else True
            wanted = commands.status if separator == "&&" else negated(commands.status)
            if wanted is None and separator == "&&":
                is_sure = not (commands.is_tested or commands.is_conditional)
            else:
                is_sure = wanted is not None
            commands.is_conditional = not is_sure
            commands.runs = both(base, (wanted is not False) if is_sure else None)
            commands.in_pipe = False
        elif separator.startswith("|"):
            commands.in_pipe = True
        else:
            self._last_status = commands.status
            if self.in_header:
                self._frames[-1].keyword = ""
            self._start_list()

    def read_keyword(self, word: str) -> bool:
        """Read the first word of a command; return True if it is a keyword of the shell."""
        if word == "!":
            self.negate()
        elif word in _OPENINGS:
            kind = "function" if word == "{" and self.next_is_function else _OPENINGS[word]
            self.next_is_function = False
            self.open(kind, word)
        elif word in _CLOSINGS:
            return self.close(_CLOSINGS[word])
        elif word in _PARTS:
            return self._start_part(word)
        else:
            return False
        return True

    def open(self, kind: str, keyword: str = "") -> None:
        """Start a statement that contains other commands."""
        commands = self._commands
        frame = _Frame(kind, commands, commands.runs, keyword)
        is_shallow = len(self._frames) < _DEEPEST
        if kind in ("group", "subshell", "quote") and commands.runs is None and is_shallow:
            frame.is_layered = True
            self._values.enter_branch()
        if kind == "function" and is_shallow:
            frame.has_scope = True
            self._values.enter_body()
        self._frames.append(frame)
        self._start_list()

    def close(self, kind: str) -> bool:
        """End the innermost statement of ``kind``; return False if there is none."""
        kinds = (kind, "function") if kind == "group" else (kind,)
        at = len(self._frames) - 1
        while at >= 0 and self._frames[at].kind not in kinds:
            if self._frames[at].kind == "quote":
                return False
            at -= 1
        if at < 0:
            return False
        while len(self._frames) > at:
            self._pop()
        return True

    def close_all(self) -> None:
        """End all statements at the end of the script."""
        while self._frames:
            self._pop()

    def _pop(self) -> None:
        frame = self._frames[-1]
        self._end_branch(frame)
        is_complete = frame.kind in ("if", "case") and frame.reach is False
        self._values.join_branches(frame.branches, is_complete)
        self._frames.pop()
        self._commands = frame.commands
        self._set_status(None)

    def _end_branch(self, frame: _Frame) -> None:
        if frame.is_layered:
            frame.branches.append(self._values.leave_branch())
            frame.is_layered = False
        if frame.has_scope:
            self._values.leave_body()
        frame.in_body = frame.has_scope = False

    def _start_branch(self, frame: _Frame, status: bool | None) -> None:
        """Start a branch that runs if ``status`` is True and no earlier branch ran."""
        frame.state = both(frame.commands.runs, both(frame.reach, status))
        frame.reach = both(frame.reach, negated(status))
        if frame.state is None and self._is_shallow():
            frame.is_layered = True
            self._values.enter_branch()
        self._start_list()

    def _is_shallow(self) -> bool:
        return len(self._frames) <= _DEEPEST

    def _start_part(self, word: str) -> bool:
        frame = self._frames[-1] if self._frames else None
        if frame is None or frame.kind != _PARTS[word]:
            return False
        if word == "then":
            self._start_branch(frame, self._last_status)
        elif word == "elif":
            self._end_branch(frame)
            frame.state = both(frame.commands.runs, frame.reach)
            self._start_list()
        elif word == "else":
            self._end_branch(frame)
            self._start_branch(frame, True)
        elif not frame.in_body:
            self._start_branch(frame, None)
            frame.in_body = True
            frame.has_scope = self._is_shallow()
            if frame.has_scope:
                self._values.enter_body()
        return True

    def set_subject(self, subject: Operand | None) -> None:
        """Read ``in`` after the word that ``case`` compares."""
        frame = self._frames[-1]
        frame.subject = subject
        frame.in_pattern = True

    def end_line_of_case(self, has_subject: bool) -> None:
        """Read the end of a line before ``in``, or in a pattern.

        A text such as "case by case" has no ``in`` on its line, and no bracket after a pattern.
        """
        if self._frames[-1].patterns or (has_subject and self.in_subject):
            self.close("case")

    def add_pattern(self, pattern: Operand) -> None:
        """Add a pattern to the current branch of ``case``."""
        self._frames[-1].patterns.append(pattern)

    def start_case_branch(self) -> None:
        """Read ``)`` after the patterns of a branch of ``case``."""
        frame = self._frames[-1]
        status: bool | None = False
        for pattern in frame.patterns:
            is_match = matches_pattern(frame.subject, pattern) if frame.subject else None
            if pattern.is_sure and pattern.text == "*":
                is_match = True
            status = either(status, is_match)
        frame.patterns.clear()
        frame.in_pattern, frame.in_body = False, True
        self._start_branch(frame, status)

    def end_case_branch(self, falls_through: bool) -> bool:
        """Read ``;;`` at the end of a branch of ``case``; False if no branch is open."""
        while self._frames and self._frames[-1].kind not in ("case", "quote"):
            self._pop()
        frame = self._frames[-1] if self._frames else None
        if frame is None or frame.kind != "case":
            return False
        self._end_branch(frame)
        frame.in_pattern = True
        frame.state = frame.commands.runs
        frame.reach = None if falls_through and frame.reach is False else frame.reach
        self._start_list()
        return True
