"""Commands of a launch script that prepare its shell, such as ``module load`` and ``source``.

They become ``launch.setup``, whose lines run first on each host. A command is carried over only if
it means the same there: it runs in every run of the script, before the launch, and its variables
have known values or come from the environment of the job.
"""

from __future__ import annotations

import re
import shlex

from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.script_branches import Branches
from parc.compiler.tools.importers.shell_words import (
    Word,
    command_with_separators,
    shell_assignments,
    statements,
)

SET_BY_LAUNCHERS = re.compile(
    r"(?:.*_)?(?:MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|WORLD_SIZE|LOCAL_RANK|NNODES|NUM_NODES|"
    r"GPUS_PER_NODE|NPROC_PER_NODE|PROC_PER_NODE|HOSTFILE|PARC_DIR|PARC_HOSTS)"
)
"""Variables about hosts and ranks, which PARC's launch scripts set themselves."""
_SET_LATER = re.compile(
    r"OMP_NUM_THREADS|PYTHONUNBUFFERED|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|"
    r"CUDA_DEVICE_MAX_CONNECTIONS|(?:TORCH_NCCL|NCCL|GLOO|NVTE|PYTORCH|SLURM|SRUN)_.*"
)
"""Variables that the launch script may set after ``launch.setup``."""
_PREPARING = frozenset(
    (
        *("module", "ml", "source", ".", "conda", "mamba", "micromamba", "spack", "ulimit"),
        *("umask", "cd", "export", "unset", "eval", "mkdir"),
    )
)
"""Commands that change only the shell of the launch, so that each host can run them."""
_ONCE = re.compile(r"^\s*(?:mkdir\s+(?!-p\b)|conda\s+(?!activate|deactivate))")
"""Matches commands in ``_PREPARING`` that do something else than prepare a shell."""
_HOOK = re.compile(r"\$\(\s*(?:\S*/)?(?:conda|mamba|micromamba|pyenv|spack)\b[^()]*\)")
"""Matches a command substitution that gives the same text on every host."""
_HOOK_ONLY = re.compile(r"eval\s+\"?\$\(\s*(?:\S*/)?(?:conda|mamba|micromamba|pyenv)\b")
_NAME = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*|[0-9@*#?!$-]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFAULT = re.compile(r"([A-Za-z_]\w*):?[-+][^$`]*")
_OF_THE_SCRIPT = re.compile(
    r"BASH_SOURCE.*|[0-9@*#?!$-]|SLURM_(?:PROCID|LOCALID|NODEID)|PWD|OLDPWD|RANDOM|SECONDS|LINENO"
)
"""Variables that have another value in the launch script of PARC."""
_SAFE = re.compile(r"[\w@%+=:,./${}-]+")
"""Matches a value that the shell reads as one word."""
_FALLBACK = re.compile(r"\|\|\s*(exit(?:\s+[0-9]+)?|true|:)\s*(?:$|[;#])")
"""Matches the end of a command that ends the script, or ignores the failure."""
_FUNCTION = re.compile(r"^\s*(?:function\s+[\w-]+|[\w-]+\s*\(\s*\))")


@frozen
class SetupLine:
    """Command that becomes an entry of ``launch.setup``."""

    text: str
    word: Word
    """First word of the command."""


def setup_lines(words: list[Word], launch: int, once: bool, text: str) -> list[SetupLine]:
    """Return the commands of a script that ``launch.setup`` of the spec will contain, in order.

    Args:
        words: words of the script.
        launch: number of the statement that starts the ranks. Only commands before this statement
            are returned.
        once: True if the script runs on one host only, such as a batch script.
        text: the script.
    """
    known = _Variables(words, text)
    branches, inside = Branches(text), lines_inside_functions(text)
    found: list[SetupLine] = []
    moved = False
    before_launch = (one for one in statements(words) if one[0].statement < launch)
    for statement in before_launch:
        first = statement[0]
        if first.text not in _PREPARING:
            continue
        after_carried = bool(found) and found[-1].word.statement == first.statement - 1
        line = None
        if first.span.line not in inside and first.span not in branches:
            line = _setup_entry(text, first, after_carried, known, once)
        # Without an earlier change of the folder, a relative path has another meaning.
        relative = line and re.match(r"(?:cd|source|\.)\s+[\"']?[^/$~\"']", line)
        if line is None or (moved and relative):
            moved |= first.text == "cd"
        elif first.text != "export" or any(
            word.dynamic and not is_inherited_assignment(word) for word in statement
        ):
            found.append(SetupLine(line, first))
            known.set_by_setup |= {name for name, _ in shell_assignments(statement)}
    return found


def is_inherited_assignment(word: Word) -> bool:
    """Return True for an assignment such as ``A=$A``.

    Such an assignment passes a variable of the calling environment to the launched program.
    """
    name, _, value = word.text.partition("=")
    return value in (f"${name}", f"${{{name}}}")


def _setup_entry(
    text: str, first: Word, after_carried: bool, known: _Variables, once: bool
) -> str | None:
    """Return the entry of ``launch.setup`` for the command that starts with ``first``.

    None if the command depends on the result of another command, or uses values that are not known.
    """
    command, before, after = command_with_separators(text, first)
    start = text.split("\n")[first.span.line - 1][first.span.column - 1 :]
    if before not in ("", ";") and not (before == "&&" and after_carried):
        return None
    fallback = ""
    if after == "||":
        match = _FALLBACK.search(start)
        if match is None:
            return None
        fallback = f" || {match[1]}"
    elif after not in ("", ";", "&&"):
        return None
    line = _with_variable_values(command, known, once)
    return None if line is None else line + fallback


class _Variables:
    """Variables that the script assigns, and their values."""

    def __init__(self, words: list[Word], text: str) -> None:
        self.set_by_setup: set[str] = set()
        branches = Branches(text)
        self._values: dict[str, set[str | None]] = {}
        for word in words:
            for name, value in shell_assignments([word]):
                # The rest of ``$(command)`` is not part of the word.
                sure = _SAFE.fullmatch(value) and not re.search(r"\$(?![{\w])", value)
                sure = sure and word.span not in branches
                self._values.setdefault(name, set()).add(value if sure else None)

    def value(self, name: str) -> str | None:
        """Return the text that replaces ``$name`` in a set-up command; None if it is unknown."""
        if _OF_THE_SCRIPT.fullmatch(name) or SET_BY_LAUNCHERS.fullmatch(name):
            return None
        if name not in self._values or name in self.set_by_setup:
            return f"${{{name}}}"  # from the environment of the job, or from an earlier command
        values = self._values[name]
        value = next(iter(values)) if len(values) == 1 else None
        if value is None or any(self._is_unknown(match) for match in _NAME.finditer(value)):
            return None
        return value

    def _is_unknown(self, match: re.Match[str]) -> bool:
        name = match[1] or match[2]
        known = _PLAIN_NAME.fullmatch(name) and name not in self._values
        return not known or _OF_THE_SCRIPT.fullmatch(name) is not None


def _with_variable_values(command: str, known: _Variables, once: bool) -> str | None:
    """Return ``command`` with the variables of the script replaced by their values.

    None if the command would have a different effect in ``launch.setup``, which runs on every host.
    """
    rest = _HOOK.sub("", command)
    if _ONCE.match(command) or (command.startswith("eval") and not _HOOK_ONLY.match(command)):
        return None
    if re.search(r"[`<>|]|\$\(\(", rest) or (once and "$(" in rest):
        return None
    own = set(re.findall(r"([A-Za-z_]\w*)=", command)) if command.startswith("export") else set()
    if any(SET_BY_LAUNCHERS.fullmatch(name) or _SET_LATER.fullmatch(name) for name in own):
        return None
    unknown = False

    def replaced(match: re.Match[str]) -> str:
        nonlocal unknown
        inner = match[1] if match[1] is not None else match[2]
        default = _DEFAULT.fullmatch(inner)
        name = default[1] if default else inner
        value = match[0] if name in own else known.value(name)
        unknown |= value is None or not (_PLAIN_NAME.fullmatch(name))
        # A default stays as it is, if the environment of the job sets the variable.
        if default and value != f"${{{name}}}" and name not in own:
            unknown = True
        return match[0] if value is None or default or value == f"${{{name}}}" else value

    line = _NAME.sub(replaced, command)
    try:
        shlex.split(line)
    except ValueError:
        return None
    return None if unknown else line


def lines_inside_functions(text: str) -> frozenset[int]:
    """Return the numbers of the lines inside functions, whose end is a brace at the same indent."""
    found: set[int] = set()
    indent: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if indent is None and _FUNCTION.match(line) and not line.rstrip().endswith("}"):
            indent = line[: len(line) - len(line.lstrip())]
        elif indent is not None:
            found.add(number)
            if line.rstrip() == f"{indent}}}":
                indent = None
    return frozenset(found)
