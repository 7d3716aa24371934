"""Commands of a script that start ranks, with the options of srun and of the launcher.

A script can keep a launcher, or its options, in variables: ``torchrun $ARGS train.py``. A command
therefore has the words of all variables that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from parc.backends.declaration import Declaration
from parc.backends.registry import all_declarations
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import (
    TORCHRUN,
    LaunchFlag,
    split_flags,
    whole_number,
)
from parc.compiler.tools.importers.launch_commands import is_python_program, srun_flags
from parc.compiler.tools.importers.shell_words import ASSIGNMENT, Word, statements
from parc.compiler.tools.lint.script import LintedScript
from parc.compiler.tools.lint.script_variables import VARIABLE

_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=([^\s=][^\n]*)")
_ARRAY = re.compile(r"(\w+)\+?=")
"""Matches the first word of ``NAME=(...)``."""
MOST_WORDS = 200_000
"""Maximum number of words of all commands that are read; each can use all variables again."""
_STARTED = re.compile(r"^[ \t]*\$\{?([A-Za-z_]\w*)(?:\[@\])?\}?(?=\s|$)", re.M)
"""Matches a command that is the value of a variable."""
_NO_STARTS = frozenset(
    (
        *("echo", "printf", "tee", "cat", "log", "info", "grep", "sed", "awk", "test", "[", "[["),
        *("export", "declare", "typeset", "local", "readonly", "unset", "mkdir", "cd", "if"),
    )
)
"""Commands that start none of their arguments."""


@frozen
class LaunchCommand:
    """Command that starts ranks."""

    words: tuple[Word, ...]
    """Words of the command itself, without those of its variables."""
    launcher: Word | None
    """Word that names the launcher, such as torchrun; None if the command has no launcher."""
    declaration: Declaration | None
    """Declaration of the backend whose launcher this is."""
    options: Mapping[str, LaunchFlag | None]
    """Option of the launcher, with dashes -> its flag; None if its value differs between runs."""
    srun: Mapping[str, LaunchFlag] | None
    """Option of srun under its long name -> its flag; None if the command has no srun."""
    is_open: bool
    """True if a variable that the script does not set may add options."""

    @property
    def start(self) -> Word:
        """First word of the command."""
        return self.words[0]

    def number(self, option: str) -> int | None:
        """Return the whole number that an option of the launcher sets; None if it is unknown."""
        flag = self.options.get(option.replace("_", "-"))
        return whole_number(flag.value) if flag is not None else None


def read_launch_commands(script: LintedScript) -> list[LaunchCommand]:
    """Return the commands of ``script`` that have a launcher or srun, in the order of the script.

    Commands whose launcher is in a variable are listed where the script uses this variable.
    """
    names = {"srun", *declared_launchers()}
    if not any(_first_part(word) in names or word.text == "srun" for word in script.words):
        return []
    groups = statements(script.words)
    values = _values_of_variables(groups)
    lines = script.lines
    written = [[word for word in words if not word.variable] for words in groups]
    commands = [
        (words, _names_in_command(lines, words, after))
        for words, after in zip(written, [*written[1:], []], strict=True)
        if words and not _starts_nothing(words)
    ]
    # A line with variables only has no words of its own: $LAUNCHER $ARGS.
    # Each variable counts once: many lines can start the same one.
    started = dict.fromkeys(_STARTED.findall(script.text))
    commands += [(values[name], [name]) for name in started if values.get(name)]
    named = _names_in_values(script.text, lines, values)
    tasks = {words[0].statement: words for words in written if _has_srun(words)}
    found, left = [], MOST_WORDS
    for words, used_names in commands:
        # The words of the variable whose value is the command are the command itself.
        own = words[0].variable.rstrip("+")
        used = [name for name in _reachable(used_names, named) if name != own]
        inside = [word for name in used for word in values.get(name, ())]
        left -= len(words) + len(used) + len(inside)
        if left < 0:
            break
        command = _read_command(script, words, inside, values, tasks.get(words[0].outer, words))
        if command is not None:
            found.append(command)
    return found


def _values_of_variables(groups: Iterable[list[Word]]) -> dict[str, list[Word]]:
    """Return variable -> words of its value, for values that contain several words or flags."""
    found: dict[str, list[Word]] = {}
    for words in groups:
        for word in words:
            if word.variable:
                found.setdefault(word.variable.rstrip("+"), []).append(word)
        array = _ARRAY.fullmatch(words[0].text)
        if array is not None and not words[0].variable:
            found.setdefault(array[1], []).extend(words[1:])
    return found


def _names_in_values(
    text: str, lines: Sequence[str], values: Mapping[str, list[Word]]
) -> dict[str, list[str]]:
    """Return variable -> names of the variables in its value.

    The words of variables inside of variables are not repeated, but their lines name them.
    """
    found = {
        name: [
            used
            for line in sorted({word.span.line for word in words})
            for used in VARIABLE.findall(lines[line - 1])
        ]
        for name, words in values.items()
    }
    for name, value in _ASSIGNED.findall(text):
        found.setdefault(name, []).extend(VARIABLE.findall(value))
    return found


def _starts_nothing(words: Sequence[Word]) -> bool:
    """Return True for assignments, and for commands that only print or export their arguments."""
    if words[0].text in _NO_STARTS or _ARRAY.fullmatch(words[0].text):
        return True
    return all(ASSIGNMENT.fullmatch(word.text) for word in words)


def _names_in_command(
    lines: Sequence[str], words: Sequence[Word], after: Sequence[Word]
) -> list[str]:
    """Return the names of the variables in the text of a command, up to the next one, ``after``."""
    if not words:
        return []
    first, last = words[0].span, words[-1].span.line
    while last < len(lines) and lines[last - 1].rstrip().endswith("\\"):
        last += 1
    text = list(lines[first.line - 1 : last])
    # Cut the end first: both can be on one line.
    if after and after[0].span.line <= last and after[0].span > first:
        text = text[: after[0].span.line - first.line + 1]
        text[-1] = text[-1][: after[0].span.column - 1]
    text[0] = text[0][first.column - 1 :]
    return [name for line in text for name in VARIABLE.findall(line)]


def _reachable(names: Iterable[str], named: Mapping[str, list[str]]) -> list[str]:
    """Return ``names`` and the variables in their values, each once."""
    todo = list(dict.fromkeys(names))
    seen = dict.fromkeys(todo)
    while todo:
        new = dict.fromkeys(one for one in named.get(todo.pop(), ()) if one not in seen)
        seen |= new
        todo += new
    return list(seen)


def _read_command(
    script: LintedScript,
    words: list[Word],
    used: list[Word],
    known: Collection[str],
    start: list[Word],
) -> LaunchCommand | None:
    """Return the command in ``words``; None if it starts no ranks.

    ``used`` are the words of its variables, which are among those in ``known``. ``start`` are the
    words of the command that starts it: ``words``, or an srun with this command in quotes.
    """
    declared = declared_launchers()
    # A variable can contain the launcher and its options: "torchrun --nnodes 2".
    words = [
        replace(word, text=part)
        for word in words
        for part in (word.text.split() if _first_part(word) in declared else [word.text])
    ]
    names = [word.text.rpartition("/")[2] for word in (*words, *used)]
    launcher = next((at for at, name in enumerate(names) if name in declared), None)
    has_srun = _has_srun(start)
    if launcher is None and not has_srun:
        return None
    first = 0 if launcher is None or launcher >= len(words) else launcher + 1
    end = next((at for at, word in enumerate(words) if is_python_program(word)), len(words))
    return LaunchCommand(
        tuple(words),
        (*words, *used)[launcher] if launcher is not None else None,
        declared[names[launcher]] if launcher is not None else None,
        _options(script, [*split_flags(words), *split_flags(used)]),
        {flag.name: flag for flag in srun_flags(start)} if has_srun else None,
        _may_get_options(words[first:end], known) or _may_get_options(_of_launcher(used), known),
    )


def _has_srun(words: Iterable[Word]) -> bool:
    return any(word.text.rpartition("/")[2] == "srun" for word in words)


def _of_launcher(words: list[Word]) -> list[Word]:
    """Return the words of the values that contain a launcher or its options, up to a program."""
    found: list[Word] = []
    for value in statements(words):
        names = {word.text.partition("=")[0].replace("_", "-") for word in value}
        if names & TORCHRUN or any(_first_part(word) in declared_launchers() for word in value):
            end = (at for at, word in enumerate(value) if is_python_program(word))
            found += value[: next(end, len(value))]
    return found


def _first_part(word: Word) -> str:
    return next(iter(word.text.split()), "").rpartition("/")[2]


@cache
def declared_launchers() -> dict[str, Declaration]:
    """Return launcher -> backend that declares it; a launcher starts all processes of a host."""
    return {name: one for one in all_declarations() for name in one.launchers}


def _options(script: LintedScript, flags: Iterable[LaunchFlag]) -> dict[str, LaunchFlag | None]:
    """Return name with dashes -> flag; None if the flag has several values or is in a branch."""
    found: dict[str, LaunchFlag | None] = {}
    for flag in flags:
        name = flag.name.replace("_", "-")
        given = found.get(name, flag)
        same = given is not None and given.value == flag.value
        found[name] = flag if same and flag.word.span not in script.branches else None
    return found


def _may_get_options(words: list[Word], known: Collection[str]) -> bool:
    """Return True if ``words`` contain a variable that is not ``known`` and no value of a flag."""
    before: Word | None = None
    for word in words:
        is_value = before is not None and before.is_flag and "=" not in before.text
        names = VARIABLE.findall(word.text)
        is_known = bool(names) and all(name in known for name in names)
        if word.text.startswith(("$", "`")) and not is_value and not is_known:
            return True
        before = word
    return False
