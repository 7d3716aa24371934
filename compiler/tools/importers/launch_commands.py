"""Read the parts of a launch script that do not depend on the framework.

These are the launchers (torchrun, srun), exported variables and other commands. What a spec cannot
contain is reported with its line (I04).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby

from parc.backends.registry import all_declared
from parc.compiler.tools.importers.flags import (
    Flag,
    set_spec_field,
    whole_number,
)
from parc.compiler.tools.importers.shell_words import HERE_DOCUMENT, Word
from parc.compiler.topology.readers.reader_state import Reading

_STARTERS = ("srun", "mpirun", "mpiexec", "pdsh", "python", "python3")
"""Programs that run a program on all hosts, and the interpreter."""
ARRAY = re.compile(r"^\s*(?:(?:local|declare|export|readonly)\s+(?:-\w+\s+)?)?(\w+)\+?=\(", re.M)
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
_SET_BY_LAUNCHERS = re.compile(
    r"(?:.*_)?(?:MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|WORLD_SIZE|LOCAL_RANK|NNODES|NUM_NODES|"
    r"GPUS_PER_NODE|NPROC_PER_NODE|PROC_PER_NODE|HOSTFILE|PARC_DIR|PARC_HOSTS)"
)
"""Variables about hosts and ranks, which PARC's launch scripts set themselves."""
_TORCHRUN_SET = {
    *("--node-rank", "--master-addr", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"),
    *("--rdzv-conf", "--local-addr", "--standalone", "--module", "-m"),
}
"""Flags of torchrun without a field, because PARC's launch scripts set the rendezvous."""
_SRUN_SET = {
    *("--nodes", "--ntasks", "--ntasks-per-node", "--gpus-per-node", "--gpus", "--gres", "--label"),
    *("--kill-on-bad-exit", "--mpi", "--distribution", "--cpu-bind", "--wait", "--cpus-per-task"),
    *("--output", "--error", "--nodelist", "--job-name", "--unbuffered", "--exclusive", "--jobid"),
    *("--no-container-mount-home", "--container-writable", "--open-mode"),
}
"""Flags of srun that PARC's batch script sets itself, or that describe the same hosts and tasks."""
_SRUN_SHORT = {
    **{"-N": "--nodes", "-n": "--ntasks", "-l": "--label", "-u": "--unbuffered"},
    **{"-w": "--nodelist", "-o": "--output", "-e": "--error", "-J": "--job-name"},
    **{"-c": "--cpus-per-task", "-G": "--gpus", "-m": "--distribution", "-K": "--kill-on-bad-exit"},
    **{"-D": "--chdir", "-p": "--partition", "-A": "--account", "-x": "--exclude", "-t": "--time"},
    **{"-W": "--wait"},
}
_SRUN_SWITCHES = {
    *("--label", "--unbuffered", "--exclusive", "--overlap", "--quiet", "--verbose", "--pty", "-v"),
    *("--no-container-mount-home", "--container-mount-home", "--container-writable", "-Q", "-O"),
    *("--container-remap-root", "--no-container-remap-root", "--container-readonly", "--no-kill"),
    *("--kill-on-bad-exit", "--contiguous", "--overcommit", "--oversubscribe", "-s", "-k", "-E"),
    *("--no-container-entrypoint", "--container-entrypoint", "--multi-prog", "--spread-job"),
}
"""Flags of srun (and of its plugin pyxis) without a separate word for a value (srun(1))."""


def is_program(word: Word) -> bool:
    """Return True if ``word`` names a Python program."""
    return word.text.endswith(".py") and not word.is_flag and "=" not in word.text


def framework_words(words: list[Word]) -> list[Word]:
    """Return ``words`` without launchers and their flags.

    In a statement that starts a program, these are all words before the program. In other
    statements with srun, they are srun and its flags.
    """
    kept: list[Word] = []
    for statement in _statements(words):
        start = next((at for at, word in enumerate(statement) if is_program(word)), None)
        if start is None:
            _, start = _srun_flags(statement)
        kept += statement[start:]
    return kept


def _statements(words: Iterable[Word]) -> Iterator[list[Word]]:
    for _, group in groupby(words, key=lambda word: word.statement):
        yield list(group)


def read_launchers(words: list[Word], reading: Reading) -> None:
    """Set fields from the flags of srun and torchrun and from the program; report other flags."""
    for statement in _statements(words):
        flags, after = _srun_flags(statement)
        for flag in flags:
            _read_srun_flag(flag, reading)
        _read_torchrun_flags(statement[after:], reading)
        for word in statement[after:]:
            if is_program(word) and not word.dynamic:
                reading.spec.setdefault("launch", {}).setdefault("program", word.text)


def _srun_flags(statement: list[Word]) -> tuple[list[Flag], int]:
    """Return (flags of srun, index of the first word after them); no flags without srun."""
    texts = [word.text.rpartition("/")[2] for word in statement]
    if "srun" not in texts:
        return [], 0
    at = texts.index("srun") + 1
    flags = []
    while at < len(statement) and (statement[at].text.startswith(("-", "$"))):
        word = statement[at]
        name, equals, rest = word.text.partition("=")
        name = _SRUN_SHORT.get(name, name)
        at += 1
        values: tuple[Word, ...] = (Word(rest, word.span, word.statement),) if equals else ()
        plain = not equals and name not in _SRUN_SWITCHES and not word.text.startswith("$")
        if plain and at < len(statement) and not statement[at].text.startswith("-"):
            values = (statement[at],)
            at += 1
        flags.append(Flag(name, word, values))
    return flags, at


def _read_srun_flag(flag: Flag, reading: Reading) -> None:
    value = flag.values[0].text if flag.values else ""
    if flag.name in _SRUN_SET or flag.name.startswith("$"):
        return
    if flag.name == "--container-image" and value and "$" not in value:
        set_spec_field(reading, "launch.slurm.container_image", value, flag)
    elif flag.name == "--container-mounts" and value:
        read_mounts(flag, value, reading)
    else:
        reading.leave_out(f"srun {_flag_text(flag)}", flag.word.span)


def read_mounts(flag: Flag, text: str, reading: Reading) -> None:
    """Set the container mounts in ``text``; report those whose paths are known only at run time."""
    mounts = [one for one in text.split(",") if one]
    for mount in mounts:
        # The batch script of PARC mounts the output folder in addition to the user's folders.
        if ("$" in mount or "`" in mount) and "PARC_DIR" not in mount:
            reading.leave_out(f"--container-mounts {mount}", flag.word.span)
    known = [mount for mount in mounts if not ("$" in mount or "`" in mount)]
    if known:
        set_spec_field(reading, "launch.slurm.container_mounts", known, flag)


def _flag_text(flag: Flag) -> str:
    if "=" in flag.word.text:
        return flag.word.text
    return " ".join([flag.word.text, *(value.text for value in flag.values[:4])])


def _read_torchrun_flags(words: list[Word], reading: Reading) -> None:
    """Read the flags of torchrun, up to the program."""
    known: dict[str, Callable[[Flag, str, Reading], None]] = {
        "--nproc-per-node": _read_processes,
        "--nnodes": _read_nodes,
        "--master-port": _read_port,
        "--max-restarts": _report_unless_zero,
    }
    for at, word in enumerate(words):
        if is_program(word):
            return
        name, equals, value = word.text.partition("=")
        read = known.get(name.replace("_", "-")) if word.is_flag else None
        if read is None:
            continue
        following = words[at + 1 : at + 2]
        if not equals and following and not following[0].is_flag:
            value = following[0].text
        read(Flag(name, word, tuple(following)), value, reading)


def _read_processes(flag: Flag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if number and number < 1000:
        set_spec_field(reading, "cluster.node.gpus_per_node", number, flag)
    else:
        reading.leave_out(f"{flag.name} {text}", flag.word.span, "set cluster.node.gpus_per_node")


def _read_nodes(flag: Flag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if reading.hosts or "nodes" in reading.spec.get("cluster", {}) or "SLURM" in text:
        return
    if number:
        set_spec_field(reading, "cluster.nodes", number, flag)
    else:
        reading.leave_out(f"{flag.name} {text}", flag.word.span, "set cluster.nodes")


def _read_port(flag: Flag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if number and number < 65536:
        set_spec_field(reading, "launch.master_port", number, flag)


def _report_unless_zero(flag: Flag, text: str, reading: Reading) -> None:
    if text != "0":
        reading.leave_out(f"{flag.name} {text}", flag.word.span)


_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read_environment(words: list[Word], reading: Reading) -> None:
    """Set ``launch.env`` from the variables that the script exports or sets for one command.

    Report variables whose values are known only at run time. Variables about hosts and ranks are
    left out, because PARC's launch scripts set them.
    """
    arrays = set(ARRAY.findall(reading.text))
    values: dict[str, Word] = {}
    exported: dict[str, Word] = {}
    for statement in _statements(words):
        prefix = dict(_leading_assignments(statement))
        if prefix.keys() & arrays:
            continue
        if statement[0].text in ("export", "declare", "env", "typeset"):
            exported |= _exported_variables(statement[1:], values)
            values |= exported
        elif len(prefix) < len(statement):
            # Assignments before a command are exported to this command only.
            exported |= prefix
        else:
            values |= prefix
            # An assignment to an exported variable changes the exported value.
            exported |= {name: word for name, word in prefix.items() if name in exported}
    environment = {}
    for name, word in exported.items():
        value = word.text.partition("=")[2]
        if _SET_BY_LAUNCHERS.fullmatch(name):
            continue
        if word.dynamic:
            reading.leave_out(f"export {word.text}", word.span, f"set launch.env.{name}")
        else:
            environment[name] = value
            reading.spans[f"launch.env.{name}"] = word.span
    if environment:
        reading.spec.setdefault("launch", {})["env"] = environment


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
    lines = reading.text.split("\n")
    hidden = _here_document_lines(reading.text)
    statements = list(_statements(words))
    last = max(
        (at for at, one in enumerate(statements) if any(map(_starts_ranks, one))), default=-1
    )
    seen = set()
    for at, statement in enumerate(statements):
        first = statement[0]
        line = lines[first.span.line - 1] if first.span.line <= len(lines) else ""
        text = " ".join(word.text for word in statement)
        shown = at == last or first.span.line in hidden or (first.span.line, text) in seen
        if shown or _is_quiet(first.text, line) or not _begins(line[: first.span.column - 1]):
            continue
        seen.add((first.span.line, text))
        reading.leave_out(text, first.span, "run it before PARC's launch script")


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
    for match in HERE_DOCUMENT.finditer(text):
        first = text.count("\n", 0, match.start()) + 2
        found.update(range(first, first + match[0].count("\n")))
    return found


_OWN_SCRIPT = re.compile(r"^# Submit from the working folder of the program: sbatch OUTPUT", re.M)
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
    for statement in _statements(words):
        for flag in _srun_flags(statement)[0]:
            if flag.name.startswith("--container-"):
                _read_srun_flag(flag, reading)
    logs = _OWN_LOGS.search(reading.text)
    if logs is not None and logs[1] != "logs":
        reading.spec.setdefault("launch", {}).setdefault("slurm", {})["log_dir"] = logs[1]
