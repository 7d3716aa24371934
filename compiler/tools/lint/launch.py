"""Launch lines of a script: numbers of hosts and GPUs, and mistakes of batch directives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from parc.backends.registry import all_declared
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.tools.importers.flags import whole_number
from parc.compiler.tools.importers.shell_words import Word, shell_words, unexpanded_ranges
from parc.compiler.tools.lint.script import Script, statements

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.*)")
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-c": "--cpus-per-task"}
MOST = 999_999
"""Largest number of hosts, or of GPUs per host, that is taken for a number."""
_PER_NODE = ("--nproc-per-node", "--nproc_per_node")
_NODES = ("--nnodes",)
_OF_A_TASK = re.compile(
    r"(?i:rank)\w*[= ][\"']?(?P<word>\$\{?(?P<name>SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b)"
)
"""Matches a rank that is set from a variable of a Slurm task."""
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_UNROUTED = ("lo", "docker", "veth", "virbr", "cni")


@dataclass(frozen=True, slots=True)
class Option:
    """Option of an ``#SBATCH`` line."""

    name: str
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class JobSize:
    """Hosts, and GPUs per host, of a job; None: unknown."""

    nodes: int | None
    gpus_per_node: int | None


def directives(script: Script) -> list[Option]:
    """Return the options of all ``#SBATCH`` lines; a line can have several."""
    lines = enumerate(script.text.splitlines(), start=1)
    return [
        option
        for number, line in lines
        if (match := _DIRECTIVE.match(line)) is not None
        for option in _options(script, number, match)
    ]


def _options(script: Script, number: int, match: re.Match[str]) -> Iterator[Option]:
    words = shell_words(match[1], script.name)
    for index, word in enumerate(words):
        if word.is_flag:
            name, equals, value = word.text.partition("=")
            after = words[index + 1 : index + 2]
            if not equals and after and not after[0].is_flag:
                value = after[0].text
            column = word.span.column + match.start(1)
            yield Option(
                _SHORT.get(name, name), value, Span(script.name, number, column, word.span.length)
            )


def read_job_size(script: Script) -> JobSize:
    """Return the size of the job; values of the launcher replace those of the directives."""
    options = {option.name: option.value for option in directives(script)}
    nodes = _number(options.get("--nodes", ""))
    gpus = _number(options.get("--gpus-per-node", "").rpartition(":")[2])
    if gpus is None and options.get("--gres", "").startswith("gpu:"):
        gpus = _number(options["--gres"].rpartition(":")[2])
    launched = set(_values(script, _PER_NODE))
    hosts = set(_values(script, _NODES))
    gpus = _only(launched) if launched else gpus
    return JobSize(_only(hosts) if hosts else nodes, gpus)


def _only(found: set[int | None]) -> int | None:
    """Return the only value; None if there are several."""
    return next(iter(found)) if len(found) == 1 else None


def _number(text: str) -> int | None:
    """Return a number of hosts or GPUs; None if ``text`` is not one, or is 0."""
    number = whole_number(text)
    return number if number and number <= MOST else None


def _values(script: Script, names: tuple[str, ...]) -> Iterator[int | None]:
    """Yield the values of a launcher's flag wherever it is used; None for an unknown value."""
    for flag in script.flags(names):
        if flag.name in names:
            text = flag.values[0].text if flag.values else ""
            sure = flag.word.span.line not in script.branches
            yield _number(text) if sure else None


@cache
def _launchers() -> frozenset[str]:
    """Return the programs and modules that start all processes of a host, as backends declare."""
    return frozenset(name for one in all_declared() for name in one.launchers)


def starts_something(script: Script) -> bool:
    """Return True if a word is a launcher, or if the script has batch directives."""
    names = (*_launchers(), "srun", "mpirun", "python", "python3")
    return bool(directives(script)) or any(
        word.text.rpartition("/")[2] in names for word in script.words
    )


def lint_launch(script: Script, sink: Sink) -> None:
    """Report L01, L02, L04, L05, L08, L09, N01 and N02."""
    options = {option.name: option for option in directives(script)}
    _gpu_options(options, sink)
    if options:
        _tasks(script, options, sink)
        _task_variables(script, sink)
    if (read_job_size(script).nodes or 2) > 1:
        _network(script, sink)


def _gpu_options(options: dict[str, Option], sink: Sink) -> None:
    gres, per_node = options.get("--gres"), options.get("--gpus-per-node")
    if gres and per_node and "gpu" in gres.value:
        finding = Finding(
            "--gres=gpu and --gpus-per-node both set the number of GPUs per host",
            label="Slurm applies only one of them",
            fix=f"remove --gres={gres.value}",
            causes=(Cause("", "also set here", per_node.span),),
        )
        sink.report("L04", finding, span=gres.span)
    per_gpu = options.get("--ntasks-per-gpu")
    for name in ("--ntasks-per-node", "--gpus-per-task"):
        other = options.get(name)
        if per_gpu and other:
            finding = Finding(
                f"--ntasks-per-gpu and {name} exclude each other",
                label="both set the number of GPUs per task",
                fix="remove --ntasks-per-gpu",
                causes=(Cause("", "conflicting option", other.span),),
            )
            sink.report("L05", finding, span=per_gpu.span)


def _tasks(script: Script, options: dict[str, Option], sink: Sink) -> None:
    """Report several launchers per host (L01), and fewer processes than GPUs (L02)."""
    tasks = options.get("--ntasks-per-node")
    count = _number(tasks.value) if tasks else None
    if tasks is None or count is None:
        return
    for words in statements(script.words):
        texts = [word.text for word in words]
        if "srun" not in texts or any(text.startswith("--ntasks") for text in texts):
            continue
        starts = [text for text in texts if text.rpartition("/")[2] in _launchers()]
        if starts and count > 1:
            finding = Finding(
                f"{count} tasks per host each start {starts[0]}, and all listen on one port",
                label=f"must be 1: {starts[0]} itself starts all processes of a host",
                fix="--ntasks-per-node=1",
                causes=(Cause("", "started here", words[0].span),),
            )
            sink.report("L01", finding, span=tasks.span)
            return
        gpus = read_job_size(script).gpus_per_node
        plain = any(re.search(r"(^|/)python[0-9.]*$", text) for text in texts)
        if plain and not starts and count == 1 and gpus and gpus > 1 and _trains(texts):
            finding = Finding(
                f"srun starts 1 process per host, but each host has {gpus} GPUs",
                label=f"must be {gpus}, or a launcher such as torchrun must start the processes",
                fix=f"--ntasks-per-node={gpus}",
                causes=(Cause("", "started here", words[0].span),),
            )
            sink.report("L02", finding, span=tasks.span)
            return


def _trains(texts: list[str]) -> bool:
    return any(re.search(r"(^|/)(pretrain|train|finetune)\w*\.py$", text) for text in texts)


def _task_variables(script: Script, sink: Sink) -> None:
    """Report task variables that the batch script's own shell expands, before any task exists."""
    if "srun" not in {word.text for word in script.words}:
        return
    literal = unexpanded_ranges(script.text)
    for match in _OF_A_TASK.finditer(script.text):
        at = match.start("word")
        line = script.text.count("\n", 0, at) + 1
        column = at - script.text.rfind("\n", 0, at)
        inside = any(start <= at < end for start, end in literal)
        if not (inside or line in script.branches):
            span = Span(script.name, line, column, len(match["word"]))
            sink.report("L08", _explain_early_expansion(match["name"]), span=span)


def _explain_early_expansion(name: str) -> Finding:
    return Finding(
        f"${name} has the same value on every host: the batch script expands it before srun",
        label="expands to 0, the value in the batch script",
        fix="quote the command for the tasks: srun bash -c '...'",
    )


def _network(script: Script, sink: Sink) -> None:
    """Report addresses and interfaces that other hosts cannot reach."""
    found: dict[str, tuple[str, Word]] = {}
    for word in script.words:
        match = re.fullmatch(r"([A-Z_]+)=(\S*)", word.text)
        if match and not word.dynamic and word.span.line not in script.branches:
            found[match[1]] = (match[2], word)
    several = (read_job_size(script).nodes or 1) > 1
    if "MASTER_ADDR" in found and several and found["MASTER_ADDR"][0] in _LOCAL_HOSTS:
        value, word = found["MASTER_ADDR"]
        finding = Finding(
            f"MASTER_ADDR is {value!r}, which is a different machine on every host",
            fix='MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        )
        sink.report("L09", finding, span=word.span)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if name in found and several and found[name][0].lstrip("=").startswith(_UNROUTED):
            value, word = found[name]
            finding = Finding(
                f"the interface {value} does not reach other hosts",
                help="name an interface on a network that connects all hosts",
            )
            sink.report("N01", finding, span=word.span)
    if several and "NCCL_SOCKET_IFNAME" in found and "GLOO_SOCKET_IFNAME" not in script.text:
        value, word = found["NCCL_SOCKET_IFNAME"]
        finding = Finding(
            "NCCL_SOCKET_IFNAME is set, but GLOO_SOCKET_IFNAME is not: Gloo may use 127.0.0.1",
            fix=f"export GLOO_SOCKET_IFNAME={value}",
        )
        sink.report("N02", finding, span=word.span)
