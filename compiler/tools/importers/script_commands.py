"""Read the variables and the commands of a launch script that no launcher or framework defines.

A spec has a field for variables. Other commands, such as ``module load``, are reported (I04).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from parc.backends.registry import all_declared
from parc.compiler.tools.importers.launch_commands import (
    is_program,
    read_launchers,
    read_srun_flag,
    srun_flags,
)
from parc.compiler.tools.importers.shell_words import (
    HereDocuments,
    Word,
    shell_words,
    statements,
)
from parc.compiler.topology.readers.reader_state import Reading

_STARTERS = ("srun", "mpirun", "mpiexec", "pdsh", "python", "python3")
"""Programs that run a program on all hosts, and the interpreter."""
# Blanks without line breaks: otherwise each of thousands of empty lines would be scanned to the end
# of all of them.
ARRAY = re.compile(
    r"^[ \t]*(?:(?:local|declare|export|readonly)[ \t]+(?:-\w+[ \t]+)?)?(\w+)\+?=\(", re.M
)
"""Matches an assignment to an array; the group is its name."""
_QUIET = frozenset(
    (
        *("echo", "printf", "set", "shopt", "true", ":", "date", "hostname", "wait", "exit", "cat"),
        *("sleep", "trap", "if", "then", "else", "elif", "fi", "for", "do", "done", "while", "{"),
        *(
            "until",
            "case",
            "esac",
            "function",
            "local",
            "declare",
            "readonly",
            "typeset",
            "[[",
            "[",
        ),
        *("test", "nvidia-smi", "pwd", "ls", "env", "scontrol", "head", "eval", "export", "return"),
        *(
            "break",
            "continue",
            "let",
            "read",
            "shift",
            "exec",
            "}",
            "!",
            "!/bin/bash",
            "time",
            "&&",
        ),
        *(
            "mkdir",
            "which",
            "type",
            "local",
            "awk",
            "sed",
            "grep",
            "sort",
            "]]",
            "fi;",
            "die",
            "log",
        ),
    )
)
"""Commands that change nothing about the ranks, and keywords of the shell."""
SET_BY_LAUNCHERS = re.compile(
    r"(?:.*_)?(?:MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|WORLD_SIZE|LOCAL_RANK|NNODES|NUM_NODES|"
    r"GPUS_PER_NODE|NPROC_PER_NODE|PROC_PER_NODE|HOSTFILE|PARC_DIR|PARC_HOSTS)"
)
"""Variables about hosts and ranks, which PARC's launch scripts set themselves."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read_environment(words: list[Word], reading: Reading) -> None:
    """Set ``launch.env`` from the variables that the script exports or sets for one command.

    Report variables whose values are known only at run time. Variables about hosts and ranks are
    left out, because PARC's launch scripts set them.
    """
    environment = {}
    for name, word in exported_variables(words, reading.text).items():
        value = word.text.partition("=")[2]
        if SET_BY_LAUNCHERS.fullmatch(name):
            continue
        if word.dynamic:
            reading.leave_out(f"export {word.text}", word.span, f"set launch.env.{name}")
        else:
            environment[name] = value
            reading.spans[f"launch.env.{name}"] = word.span
    if environment:
        reading.spec.setdefault("launch", {})["env"] = environment


def exported_variables(words: list[Word], text: str) -> dict[str, Word]:
    """Return name -> assignment of the variables that the program of the script ``text`` gets."""
    arrays = set(ARRAY.findall(text))
    values: dict[str, Word] = {}
    exported: dict[str, Word] = {}
    for statement in statements(words):
        prefix = dict(_leading_assignments(statement))
        if prefix.keys() & arrays:
            continue
        if statement[0].text in ("export", "declare", "env", "typeset"):
            exported |= _exported_variables(statement[1:], values)
            values |= exported
        elif len(prefix) < len(statement) and not _is_substitution(prefix):
            # Assignments before a command are exported to this command only.
            exported |= prefix
        else:
            values |= prefix
            # An assignment to an exported variable changes the exported value.
            exported |= {name: word for name, word in prefix.items() if name in exported}
    return exported


def _is_substitution(prefix: Mapping[str, Word]) -> bool:
    """Return True if the words after the assignments are a command substitution: ``A=$(cmd)``."""
    return any(word.text.endswith("$") for word in prefix.values())


def _exported_variables(words: list[Word], values: dict[str, Word]) -> dict[str, Word]:
    """Return name -> assignment of the variables that ``export`` names or assigns."""
    found = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match:
            found[match[1]] = word
        elif word.text in values:
            found[word.text] = values[word.text]
    return found


def _leading_assignments(statement: list[Word]) -> Iterator[tuple[str, Word]]:
    for word in statement:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is None:
            return
        yield match[1], word


def report_other_commands(words: list[Word], reading: Reading) -> None:
    """Report every command of the script that PARC's launch scripts do not run (I04).

    Examples are ``module load``, ``source venv/bin/activate`` and a download of data. Assignments,
    the launch command, messages and keywords of the shell are not reported.
    """
    for first, text in _other_commands(words, reading.text):
        reading.leave_out(text, first.span, "run it before PARC's launch script")


def is_own_script(text: str) -> bool:
    """Return True if PARC wrote the script ``text``."""
    return _OWN_SCRIPTS.search(text) is not None


def other_commands(text: str, name: str) -> list[tuple[int, str]]:
    """Return (line, command) of every command that ``report_other_commands`` reports."""
    if is_own_script(text) or text.lstrip().startswith("{"):
        return []
    found = _other_commands(shell_words(text, name), text)
    return [(first.span.line, command) for first, command in found]


def _other_commands(words: list[Word], text: str) -> Iterator[tuple[Word, str]]:
    lines = text.split("\n")
    hidden = _here_document_lines(text)
    commands = statements(words)
    last = max((at for at, one in enumerate(commands) if any(map(_starts_ranks, one))), default=-1)
    seen = set()
    for at, statement in enumerate(commands):
        first = statement[0]
        line = lines[first.span.line - 1] if first.span.line <= len(lines) else ""
        command = " ".join(word.text for word in statement)
        shown = at == last or first.span.line in hidden or (first.span.line, command) in seen
        if shown or _is_quiet(first.text, line) or not _begins(line[: first.span.column - 1]):
            continue
        seen.add((first.span.line, command))
        yield first, command


def _is_quiet(first: str, line: str) -> bool:
    """Return True for messages, keywords, assignments and the start of a function."""
    no_command = first in _QUIET or first.startswith(("$", "#", "-", "((", "<", ">", "`", "*"))
    function = line.rstrip().endswith(("()", "() {", "){", ")", "(", ") {"))
    return no_command or function or _ASSIGNMENT.match(first) is not None


def _begins(before: str) -> bool:
    """Return True if a command begins after the text ``before`` of its line.

    Parts of a pipe and command substitutions do not count.
    """
    text = before.rstrip()
    if "$(" in text or "`" in text or _ASSIGNMENT.match(text.lstrip()):
        return False
    return not text or text.endswith((";", "&&", '"', "'", " then", " do", " else", "then", "do"))


def starts_program(words: Iterable[Word]) -> bool:
    """Return True if a program or a launcher is among ``words``."""
    return any(map(_starts_ranks, words))


def _starts_ranks(word: Word) -> bool:
    """Return True for a program, an interpreter, or a launcher that a backend declares."""
    return word.text.rpartition("/")[2] in _starters() or is_program(word)


@cache
def _starters() -> frozenset[str]:
    declared = {name for one in all_declared() for name in (*one.launchers, one.name)}
    return frozenset((*_STARTERS, *declared))


def _here_document_lines(text: str) -> set[int]:
    """Return the numbers of the lines inside here-documents."""
    found: set[int] = set()
    line, counted = 1, 0
    for start, end in HereDocuments(text).ranges():
        line += text.count("\n", counted, start)
        last = line + text.count("\n", start, end)
        found.update(range(line + 1, last + 1))
        line, counted = last, end
    return found


_OWN_SCRIPT = re.compile(r"^# Submit from the working folder of the program: sbatch OUTPUT", re.M)
_OWN_SCRIPTS = re.compile(
    r"^# (?:Submit from the working folder of the program: sbatch OUTPUT|"
    r"Starts the ranks of one host; run it once on each|.*Rank map: rankmap\.csv\.$)",
    re.M,
)
"""Matches the batch script of PARC, and the scripts that it runs on each host."""
_OWN_LOGS = re.compile(r"^logs=\$SLURM_SUBMIT_DIR/(\S+)$", re.M)


def read_script(words: list[Word], reading: Reading) -> None:
    """Read everything in a script except the flags of the framework.

    The commands of PARC's own batch script are not reported, because every compile writes them.
    """
    if _OWN_SCRIPT.search(reading.text) is None:
        read_environment(words, reading)
        read_launchers(words, reading)
        report_other_commands(words, reading)
        return
    reading.notes.append("PARC wrote this file: import its folder to get the complete spec")
    for flag in srun_flags(words):
        if flag.name.startswith("--container-"):
            read_srun_flag(flag, reading)
    logs = _OWN_LOGS.search(reading.text)
    if logs is not None and logs[1] != "logs":
        reading.spec.setdefault("launch", {}).setdefault("slurm", {})["log_dir"] = logs[1]
