"""GPUs that a script makes visible to a command, with ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.setup_commands import lines_inside_functions
from parc.compiler.tools.importers.shell_words import ASSIGNMENT, Word, statements
from parc.compiler.tools.lint.launch_commands import LaunchCommand
from parc.compiler.tools.lint.script import LintedScript

DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LIST = re.compile(r"(?:[0-9]+|(?:GPU|MIG)-[\w/-]+)(?:,(?:[0-9]+|(?:GPU|MIG)-[\w/-]+))*")
"""Matches a list of GPUs; an empty list, or one with -1, selects the CPU."""
_LOCAL = re.compile(
    r"(?:\S*/)?(?:nohup|setsid|exec|time|env|numactl|python[0-9.]*|-u|-m)|--\w+=\S+|\w+=.*", re.S
)
"""Matches a word before a program that keeps the environment of the script."""
_EXPORTS = frozenset(("export", "declare", "typeset"))


@frozen
class VisibleDevices:
    """GPUs that a command can see."""

    name: str
    """Environment variable that lists them."""
    count: int
    span: Span
    """Position of the assignment."""

    @property
    def text(self) -> str:
        """Clause of a finding, such as ``CUDA_VISIBLE_DEVICES lists 4 GPUs``."""
        return f"{self.name} lists {self.count} GPUs"

    @property
    def more_advice(self) -> str:
        """Format string of the advice to list more GPUs; its placeholder is their number."""
        return f"list {{}} GPUs in {self.name}"


class DeviceLists:
    """Lists of visible GPUs that a script sets."""

    def __init__(self, script: LintedScript) -> None:
        """Read no list yet; the exports of ``script`` are read when a command needs them."""
        self._script = script

    def find(self, words: Iterable[Word], program: Word) -> VisibleDevices | None:
        """Return the GPUs that a command can see; None if the script does not determine them.

        An assignment before the program counts. Otherwise the last ``export`` before the command
        does, if the command runs in the environment of the script: Slurm and containers set the
        variable themselves.

        Args:
            words: words of the command.
            program: word of the launcher or the server.
        """
        before = [word for word in words if word.span < program.span]
        own = [word for word in before if _variable(word)]
        if own:
            texts = [word.text.rpartition("/")[2] for word in before]
            start = texts.index("srun") if "srun" in texts else -1
            return self._read_list(own[-1]) if before.index(own[-1]) > start else None
        local = all(_LOCAL.fullmatch(word.text) for word in before)
        if not local or self._script.has_srun:
            return None
        return self._exported(program)

    def _exported(self, program: Word) -> VisibleDevices | None:
        """Return the GPUs of the last export before ``program``; None if another may replace it.

        If the command is stored in a variable, it runs later, so a later export may also apply.
        """
        exports = self._exports or []
        found = next((one for start, one in reversed(exports) if start < program.span), None)
        is_late = program.variable and any(start >= program.span for start, _ in exports)
        if found is None or is_late or self._is_conditional(program.span):
            return None
        return self._read_list(found)

    def _is_conditional(self, span: Span) -> bool:
        """Return True if the command at ``span`` may run never, or more than once."""
        return span in self._script.branches or span.line in self._lines_of_functions

    @cached_property
    def _lines_of_functions(self) -> frozenset[int]:
        return lines_inside_functions(self._script.text)

    @cached_property
    def _exports(self) -> list[tuple[Span, Word]] | None:
        """(start of the command, its last assignment) of each export; None if one is uncertain."""
        if re.search(r"\bunset\s[^\n]*VISIBLE_DEVICES", self._script.text):
            return None
        found = []
        for words in statements(self._script.words):
            assigned = [word for word in words if _variable(word)]
            exports = words[0].text in _EXPORTS
            # An assignment before another command holds for this command only.
            prefix = not exports and any(not ASSIGNMENT.fullmatch(word.text) for word in words)
            if not assigned or prefix:
                continue
            unsure = any(word.variable or self._is_conditional(word.span) for word in assigned)
            if not exports or unsure:
                return None
            found.append((words[0].span, assigned[-1]))
        return found

    def _read_list(self, word: Word) -> VisibleDevices | None:
        """Return the GPUs that ``word`` lists; None if the list is not known."""
        name, _, value = word.text.partition("=")
        count = count_devices(value)
        if count is None or self._script.may_be_overridden(word):
            return None
        return VisibleDevices(name, count, word.span)


def count_devices(text: str) -> int | None:
    """Return the number of GPUs in a list; None if ``text`` is not a list of GPUs."""
    return len(set(text.split(","))) if _LIST.fullmatch(text) else None


def _variable(word: Word) -> str:
    """Return the variable in DEVICES that ``word`` assigns; empty if it assigns none."""
    match = ASSIGNMENT.fullmatch(word.text)
    return match[1] if match is not None and match[1] in DEVICES else ""


def check_visible_devices(
    script: LintedScript, commands: Iterable[LaunchCommand], sink: Sink
) -> None:
    """Report a launcher that starts more processes than the GPUs that it can see (L34)."""
    if not any(name in script.text for name in DEVICES) or script.is_manifest:
        return
    lists = DeviceLists(script)
    for command in commands:
        declared, launcher = command.declaration, command.launcher
        if declared is None or launcher is None or not declared.uses_visible_devices:
            continue
        started = _processes(script, command)
        seen = lists.find(command.words, _place(command, launcher))
        if started is None or seen is None or started[1] <= seen.count:
            continue
        flag, count = started
        finding = Finding(
            f"{launcher.text.rpartition('/')[2]} starts {count} processes, but {seen.text}",
            label=f"local ranks {seen.count} to {count - 1} have no GPU and stop with "
            '"invalid device ordinal"',
            help=f"or list {count} GPUs in {seen.name}",
            fix=f"{flag} {seen.count}",
            causes=(Cause("", "visible GPUs", seen.span),),
        )
        option = command.options[flag.replace("_", "-")]
        assert option is not None
        sink.report("L34", finding, span=option.word.span)


def _place(command: LaunchCommand, launcher: Word) -> Word:
    """Return the launcher, or the first word of the command if the launcher is in a variable."""
    return launcher if launcher in command.words else command.start


def _processes(script: LintedScript, command: LaunchCommand) -> tuple[str, int] | None:
    """Return (flag as written, processes per host) of a launcher; None if the number is unknown."""
    declared = command.declaration
    assert declared is not None
    name = (declared.size_flags or declared.total_flags or ("", ""))[1].replace("_", "-")
    flag, count = command.options.get(name), command.number(name)
    if flag is None or count is None or script.may_be_overridden(flag.values[0]):
        return None
    if declared.total_flags is not None:
        hosts = declared.total_flags[0].replace("_", "-")
        # The config file of the launcher can set the number of hosts and start on the CPU.
        number = command.number(hosts) if hosts in command.options else 1
        if "--config-file" in command.options or "--cpu" in command.options or not number:
            return None
        count = count // number
    return flag.name, count
