"""Read the variables and commands around the launch in a script.

Variables become ``launch.env``, commands that prepare the shell ``launch.setup``. Other commands,
such as ``pip install``, are reported (I04).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import groupby

from parc.backends.registry import all_declarations
from parc.backends.shared.launch_rules import SET_BY_LAUNCHER, SET_BY_SHELL
from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.exported_variables import find_exports
from parc.compiler.tools.importers.launch_commands import (
    container_command,
    is_python_program,
    read_container_command,
    read_launchers,
    read_srun_flag,
    srun_flags,
)
from parc.compiler.tools.importers.setup_commands import (
    SET_BY_LAUNCHERS,
    SetupLine,
    is_inherited_assignment,
    setup_lines,
)
from parc.compiler.tools.importers.shell_words import (
    ASSIGNMENT,
    Word,
    command_with_separators,
    shell_words,
    split_last_values,
    statements,
)
from parc.compiler.tools.shell.here_documents import HereDocuments
from parc.compiler.topology.readers.reader_state import Reading

_QUIET = frozenset(
    (
        *("echo", "printf", "set", "shopt", "true", ":", "date", "hostname", "wait", "exit", "cat"),
        *("sleep", "trap", "if", "then", "else", "elif", "fi", "for", "do", "done", "while", "{"),
        *("until", "case", "esac", "function", "local", "declare", "readonly", "typeset", "[["),
        *("test", "nvidia-smi", "pwd", "ls", "env", "scontrol", "head", "eval", "export", "return"),
        *("break", "continue", "let", "read", "shift", "exec", "}", "!", "!/bin/bash", "time"),
        *("[", "&&"),
        *("which", "type", "awk", "sed", "grep", "sort", "]]", "fi;", "die", "log"),
    )
)
"""Commands that change nothing about the ranks, and keywords of the shell."""
_NO_COMMAND = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=|[$#\-`*]|\(\(|\d*[<>]")
"""Matches the start of an assignment, such as ``ARGS+=(`` or ``A[1]=x``, or of a redirection."""
_FUNCTION = re.compile(r"\s*(?:function\s+)?[\w-]+\s*\(\s*\)")
_BEFORE_COMMANDS = frozenset(
    ("then", "do", "else", "if", "elif", "while", "until", "{", "!", "eval")
)
"""Words before a command in the same statement."""
_PRINTING = ("echo", "printf", "cat", "sed", "awk", "grep", "env", "scontrol", "head", "sort")
"""Quiet commands that change something if their output goes to a file."""
_REDIRECTION = re.compile(r"(?<![0-9&<>=-])>{1,2}(?![>&=])\s*(?!/dev/)[^\s&>]")
_ALL_HOSTS = ("srun", "mpirun", "mpiexec", "pdsh")
"""Launchers that start the ranks of all hosts from one host."""
_INSTALLERS = frozenset(("pip", "pip3", "install", "venv", "virtualenv"))
"""Words of commands that install a program instead of starting it."""
_CONTAINER = re.compile(
    r"--container-image\b|^[ \t]*[^#\n]*\b(?:singularity|apptainer|docker|podman|enroot|shifter)\s",
    re.M,
)
_CONFIG = re.compile(r"(?:\s*#.*\n)*\s*\{")
"""Matches a config in JSON, which may start with comments."""
_RESERVED = SET_BY_LAUNCHER | SET_BY_SHELL
"""Variables that ``launch.env`` must not contain."""
USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
"""Matches a use of a variable; the group is its name."""


def read_environment(words: list[Word], reading: Reading, carried: Collection[int] = ()) -> None:
    """Set ``launch.env`` from the variables that the script passes to its programs.

    Variables whose values are known only at run time are reported. Variables about hosts and ranks
    are left out, because PARC's launch scripts set them. Variables that statements in ``carried``
    set are left out, because ``launch.setup`` contains these statements.
    """
    environment: dict[str, str | dict[str, str]] = {}
    certain, of_some_runs = find_exports(words, reading.text, launch_statement(words))
    for word in of_some_runs:
        name = word.text.partition("=")[0]
        if not SET_BY_LAUNCHERS.fullmatch(name) and word.statement not in carried:
            hint = f"only some runs set it: set launch.env.{name} if yours do"
            reading.leave_out(f"export {word.text}", word.span, hint)
    for name, word in certain.items():
        value = word.text.partition("=")[2]
        if SET_BY_LAUNCHERS.fullmatch(name) or word.statement in carried:
            continue
        if is_inherited_assignment(word):
            environment[name] = {"from": "environment"}
        # "<path>" is a gap in a template.
        elif word.dynamic or value.startswith("<") or name in _RESERVED:
            command = command_with_separators(reading.text, word)[0]
            reading.leave_out(f"export {command}", word.span, f"set launch.env.{name}")
        else:
            environment[name] = value
        reading.spans[f"launch.env.{name}"] = word.span
    if environment:
        reading.spec.setdefault("launch", {})["env"] = environment


def exported_variables(words: list[Word], text: str) -> dict[str, Word]:
    """Return (name -> assignment) of the environment variables of the launched program.

    Variables that only some runs export are left out.
    """
    return find_exports(words, text, launch_statement(words))[0]


def is_script_from_parc(text: str) -> bool:
    """Return True if PARC wrote the script ``text``."""
    return _OWN_SCRIPTS.search(text) is not None


def commands_for_launch_setup(words: list[Word], launch: int, text: str) -> list[SetupLine]:
    """Return the commands of a script that ``launch.setup`` of the spec will contain.

    ``launch`` is the number of the statement that starts the ranks.

    If the job runs in a container, the result is empty: the commands of the script prepare the
    host, but ``launch.setup`` runs in the container.
    """
    if _CONTAINER.search(text):
        return []
    names = {word.text.rpartition("/")[2] for word in words}
    once = "#SBATCH" in text or not names.isdisjoint(_ALL_HOSTS)
    return setup_lines(words, launch, once, text)


def unlaunched_commands(text: str, name: str, run: Collection[str] = ()) -> list[tuple[int, str]]:
    """Return (line, command) of every command that PARC's launch scripts do not run.

    Args:
        text: script.
        name: file name of the script.
        run: entries of ``launch.setup``; PARC's launch scripts run these commands.
    """
    if is_script_from_parc(text) or _CONFIG.match(text):
        return []
    words = shell_words(text, name)
    launch = launch_statement(words)
    lines = [one for one in commands_for_launch_setup(words, launch, text) if one.text in run]
    covered = {launch, *(one.word.statement for one in lines)}
    found = _other_commands(words, text, name, covered)
    return [(span.line, command) for span, command in found]


def _other_commands(
    words: list[Word], text: str, name: str, covered: Collection[int]
) -> Iterator[tuple[Span, str]]:
    """Yield (position, command) of every command that PARC's launch scripts do not run.

    Examples are ``pip install`` and a download of data. Statements in ``covered`` are left out,
    namely the launch command and the commands in ``launch.setup``. Assignments, messages and
    keywords of the shell are left out unless they write a file.
    """
    lines = text.split("\n")
    seen = set()
    for statement in statements(words):
        while statement[0].text in _BEFORE_COMMANDS and len(statement) > 1:
            statement = statement[1:]
        first = statement[0]
        line = first.span.line
        source = lines[line - 1] if line <= len(lines) else ""
        command = " ".join(word.text for word in statement)
        if first.statement in covered or (line, command) in seen:
            continue
        # In A=1 program, the assignment holds for the program only.
        name = next((w.text for w in statement if not _sets_value(w)), first.text)
        if _is_quiet(name, source):
            command = source.strip() if _writes_file(name, source) else ""
        before = source[: first.span.column - 1]
        if first.variable and not any(word.is_flag or _starts_ranks(word) for word in statement):
            before = before.partition("=")[2]
        if command and _begins_command(before):
            seen.add((line, command))
            yield first.span, command
    for here in HereDocuments(text):
        command = here.command.strip()
        if not here.is_script and (">" in command or not command.startswith(("cat", "echo"))):
            yield Span(name, text.count("\n", 0, here.start) + 1, 1, len(command)), command


def _sets_value(word: Word) -> bool:
    """Return True for ``A=1``; False for ``A=``, which also starts an array."""
    match = ASSIGNMENT.fullmatch(word.text)
    return match is not None and match[2] != ""


def _is_quiet(first: str, line: str) -> bool:
    """Return True for a statement that is not reported if PARC's launch scripts do not run it.

    Such statements are messages, keywords of the shell, assignments, and the first line of a
    function.
    """
    no_command = first in _QUIET or _NO_COMMAND.match(first) is not None
    label = line.rstrip().endswith(")") and "(" not in line
    function = label or _FUNCTION.match(line) is not None
    return no_command or function


def _writes_file(first: str, line: str) -> bool:
    """Return True if a command such as ``echo`` writes to a file, or if ``sed`` edits a file."""
    return first in _PRINTING and (_REDIRECTION.search(line) is not None or "sed -i" in line)


def _begins_command(before: str) -> bool:
    """Return True if a new command begins after ``before``, the start of a line.

    Later commands of a pipe and command substitutions are parts of the command before them, so they
    are not new commands.
    """
    text = before.rstrip()
    if "$(" in text or "`" in text or ASSIGNMENT.match(text.lstrip()):
        return False
    ends = (";", "&&", "||", '"', "'", " then", " do", " else", "then", "do", "(", "{", "eval")
    return not text or text.endswith(ends)


def launch_words(reading: Reading) -> list[Word]:
    """Return the words of a script without the values that its launch does not use.

    These unused values of variables are reported.
    """
    words, replaced = words_used_by_launch(reading.text, reading.file)
    for _, group in groupby(replaced, key=lambda word: (word.variable, word.statement)):
        value = list(group)
        text = " ".join(word.text for word in value)
        name = value[0].variable.rstrip("+")
        reading.leave_out(f'{name}="{text}"', value[0].span, "the launch does not use it")
    return words


def words_used_by_launch(text: str, name: str) -> tuple[list[Word], list[Word]]:
    """Return (words that the launch of a script uses, words of quoted values that it does not use).

    If the file contains no launch, the values of all variables count as used, because another
    script might use them.
    """
    words = shell_words(text, name)
    used = None if launch_statement(words) < 0 else set(USED.findall(text))
    return split_last_values(words, used)


def launch_statement(words: list[Word]) -> int:
    """Return the number of the statement that starts the ranks; -1 if there is none.

    This is the last statement with a launcher such as torchrun. If no statement has a launcher, it
    is the last statement with a program.
    """
    started = [one for one in statements(words) if not _INSTALLERS & {word.text for word in one}]
    for starts in (_is_launcher, _starts_ranks):
        found = [one[0].statement for one in started if any(map(starts, one))]
        if found:
            return found[-1]
    return -1


def launch_command(text: str, name: str) -> tuple[str, int]:
    """Return (command that starts the ranks, line of this command).

    If the script starts no ranks, the result is ``("", 1)``.
    """
    words = [] if _CONFIG.match(text) else shell_words(text, name)
    launch = launch_statement(words)
    first = next((word for word in words if word.statement == launch), None)
    if first is None or first.text.endswith(":"):  # a key of YAML
        return "", 1
    return command_with_separators(text, first)[0], first.span.line


def starts_program(words: Iterable[Word]) -> bool:
    """Return True if ``words`` contain a program, an interpreter or a launcher."""
    return any(map(_starts_ranks, words))


def _starts_ranks(word: Word) -> bool:
    """Return True if ``word`` is a program, an interpreter, or a launcher.

    Launchers are the programs that backends declare as such.
    """
    name = word.text.rpartition("/")[2]
    return name in ("python", "python3") or is_python_program(word) or _is_launcher(word)


def find_program_of_others(words: Iterable[Word]) -> Word | None:
    """Return the first word that names a program which a backend declares as unreadable."""
    names = {name for one in all_declarations() for name in one.programs_of_others}
    return next((word for word in words if word.text.rpartition("/")[2] in names), None)


def _is_launcher(word: Word) -> bool:
    """Return True if ``word`` names a program that starts all ranks."""
    return word.text.rpartition("/")[2] in _known_launchers()


@cache
def _known_launchers() -> frozenset[str]:
    declared = {
        name
        for one in all_declarations()
        for name in (*one.launchers, *one.programs_of_others, one.name)
    }
    return frozenset((*_ALL_HOSTS, "torchrun", *declared))


_SUBMIT = r"Submit from the working folder of the program\b.*: sbatch OUTPUT_FOLDER"
_OWN_SCRIPT = re.compile(f"^# {_SUBMIT}", re.M)
_OWN_SCRIPTS = re.compile(
    rf"^# (?:{_SUBMIT}|"
    r"Sourced by job\.sbatch: checks that the job has the hosts and GPUs of the plan|"
    r"Starts the ranks of one host; run it once on each|"
    r"Starts all ranks on the host of the plan:$|.*Rank map: rankmap\.csv\.$)",
    re.M,
)
"""Matches the batch script of PARC, and the scripts that it sources or runs on each host."""
_OWN_LOGS = re.compile(r"^logs=\$SLURM_SUBMIT_DIR/(\S+)$", re.M)


def read_script(words: list[Word], reading: Reading) -> None:
    """Read the launchers, variables and commands of a script into a spec fragment.

    Flags of the framework are not read here. Commands of a batch script that PARC wrote are not
    reported, because every compile writes them.
    """
    if _OWN_SCRIPT.search(reading.text) is None:
        launch = launch_statement(words)
        lines = commands_for_launch_setup(words, launch, reading.text)
        carried = {one.word.statement for one in lines}
        if lines:
            reading.spec.setdefault("launch", {})["setup"] = [one.text for one in lines]
            reading.spans["launch.setup"] = lines[0].word.span
        for one in lines:
            reading.account(one.word.span)
        read_environment(words, reading, carried)
        read_launchers(words, launch, reading)
        for span, command in _other_commands(words, reading.text, reading.file, {launch, *carried}):
            reading.leave_out(command, span, "run it before PARC's launch script")
        return
    reading.notes.append("PARC wrote this file: import its folder to get the complete spec")
    for flag in srun_flags(words):
        if flag.name.startswith("--container-"):
            read_srun_flag(flag, reading)
    for statement in statements(words):
        if (container := container_command(statement)) is not None:
            read_container_command(container, reading)
    logs = _OWN_LOGS.search(reading.text)
    if logs is not None and logs[1] != "logs":
        reading.spec.setdefault("launch", {}).setdefault("slurm", {})["log_dir"] = logs[1]
