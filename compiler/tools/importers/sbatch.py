"""Import Slurm batch scripts: directives as cluster and launch, then the flags of the launch."""

from __future__ import annotations

import re
from collections.abc import Callable

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.flags import Flag, Row, put, take_flags
from parc.compiler.tools.importers.formats import importers
from parc.compiler.tools.importers.shell_words import Word, assignments, shell_words
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Line, Reading

_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
_SHORT = {
    **{"-N": "--nodes", "-w": "--nodelist", "-p": "--partition", "-A": "--account"},
    **{"-q": "--qos", "-t": "--time", "-J": "--job-name", "-x": "--exclude", "-n": "--ntasks"},
    **{"-o": "--output", "-e": "--error", "-C": "--constraint", "-c": "--cpus-per-task"},
}
TABLE: dict[str, Row] = {
    "--partition": Row("launch.slurm.partition", "text"),
    "--account": Row("launch.slurm.account", "text"),
    "--qos": Row("launch.slurm.qos", "text"),
    "--time": Row("launch.slurm.time_limit", "text"),
    "--reservation": Row("launch.slurm.reservation", "text"),
    "--container-image": Row("launch.slurm.container_image", "text"),
    "--requeue": Row("launch.slurm.requeue", "set", True),
    "--no-requeue": Row("launch.slurm.requeue", "set", False),
    "--job-name": Row("name", "text"),
}
_WRITTEN = {"--ntasks-per-node", "--exclusive", "--mem", "--output", "--error", "--open-mode"}
"""Directives that PARC writes."""
_TORCHRUN = {"--nproc-per-node": "gpus_per_node", "--nproc_per_node": "gpus_per_node"}
_ENVIRONMENT = re.compile(r"(NCCL|TORCH|PYTORCH|CUDA|NVTE|GLOO|FI|UCX|OMP)_[A-Z0-9_]+")


def read_sbatch(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts and limits from ``#SBATCH``, and pins from the launch line if it is known."""
    reading = Reading(text, name, sink)
    for line in reading.lines():
        match = _DIRECTIVE.match(line.text)
        if match:
            _directive(line, match.start(1), reading)
    words = shell_words(text, name)
    _environment(words, reading)
    _launcher(words, reading)
    lines = [one.launch_lines for one in importers() if one.launch_lines is not None]
    launch = next((one for one in lines if one.recognizes(words)), None)
    if launch is not None:
        launch.read(words, reading)
    if not reading.spec and not reading.hosts and reading.sound:
        reading.refuse(
            "I02", "this file contains no #SBATCH line and no known launch line", reading.span()
        )
    return reading.fragment()


def _directive(line: Line, start: int, reading: Reading) -> None:
    """Read one ``#SBATCH`` line, which can have several options."""
    words = shell_words(line.text[start:], reading.file)
    moved = [
        Word(word.text, reading.span(line.number, word.span.column + start, word.span.length), 0)
        for word in words
    ]
    if not moved or not moved[0].is_flag:
        reading.say("I04", "this directive contains no option", reading.span(line.number))
        return
    for index, word in enumerate(moved):
        if word.is_flag:
            option, equals, rest = word.text.partition("=")
            values = [Word(rest, word.span, 0)] if equals else moved[index + 1 : index + 2]
            plain = tuple(value for value in values if equals or not value.is_flag)
            _option(Flag(_SHORT.get(option, option), word, plain), reading)


def _option(flag: Flag, reading: Reading) -> None:
    special = _SPECIAL.get(flag.name)
    if special is not None and flag.values:
        special(flag, flag.values[0].text, reading)
    elif flag.name in _WRITTEN:
        reading.notes.append(f"set by PARC: {flag.name}")
    elif take_flags([flag], TABLE, reading):
        _ignored(flag, reading)


def _ignored(flag: Flag, reading: Reading) -> None:
    words = " ".join([flag.name, *(value.text for value in flag.values)])
    reading.say("I04", Finding(f"not carried over: {words[:80]}"), flag.word.span)


def _nodes(flag: Flag, text: str, reading: Reading) -> None:
    if re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0:
        if not reading.hosts:
            put(reading, "cluster.nodes", int(text), flag)
    else:
        finding = Finding(f"--nodes {text[:40]} is not a number of hosts", help="set cluster.nodes")
        reading.say("I04", finding, flag.word.span)


def _nodelist(flag: Flag, text: str, reading: Reading) -> None:
    span = flag.values[0].span
    offset = flag.word.text.find("=") + 1 if flag.values[0].span == flag.word.span else 0
    for host in reading.names(text, Span(span.file, span.line, span.column + offset, len(text))):
        reading.place(Located(host, (), None, span))
    reading.spec.get("cluster", {}).pop("nodes", None)


def _exclude(flag: Flag, text: str, reading: Reading) -> None:
    finding = Finding(
        f"not carried over: --exclude {text[:60]}", help="add the hosts to cluster.unavailable"
    )
    reading.say("I04", finding, flag.word.span)


def _gpus(flag: Flag, text: str, reading: Reading) -> None:
    count = text.rpartition(":")[2] if ":" in text or flag.name == "--gpus-per-node" else ""
    if re.fullmatch(r"[0-9]{1,3}", count) and ("gpu" in text or flag.name == "--gpus-per-node"):
        put(reading, "cluster.node.gpus_per_node", int(count), flag)
    else:
        _ignored(flag, reading)


def _signal(flag: Flag, text: str, reading: Reading) -> None:
    match = re.fullmatch(r"(?:[BR]{1,2}:)?\w{1,12}@([0-9]{1,6})", text)
    if match:
        put(reading, "launch.slurm.signal", f"{match[1]}s", flag)
    else:
        _ignored(flag, reading)


def _mounts(flag: Flag, text: str, reading: Reading) -> None:
    put(reading, "launch.slurm.container_mounts", text.split(","), flag)


_SPECIAL: dict[str, Callable[[Flag, str, Reading], None]] = {
    "--nodes": _nodes,
    "--nodelist": _nodelist,
    "--exclude": _exclude,
    "--gpus-per-node": _gpus,
    "--gres": _gpus,
    "--signal": _signal,
    "--container-mounts": _mounts,
}


def _environment(words: list[Word], reading: Reading) -> None:
    """Read ``export NCCL_...=`` lines with plain values."""
    values = {}
    for name, value in assignments(words):
        if _ENVIRONMENT.fullmatch(name) and "$" not in value:
            values[name] = value
    if values:
        reading.spec.setdefault("launch", {})["env"] = values


def _launcher(words: list[Word], reading: Reading) -> None:
    """Read the GPUs per host and the program from the command of ``torchrun``."""
    for index, word in enumerate(words):
        name, _, value = word.text.partition("=")
        if name in _TORCHRUN:
            value = value or (words[index + 1].text if index + 1 < len(words) else "")
            if re.fullmatch(r"[0-9]{1,3}", value):
                put(reading, "cluster.node.gpus_per_node", int(value), Flag(name, word, ()))
        if word.text.endswith(".py") and not word.dynamic and not word.is_flag:
            reading.spec.setdefault("launch", {}).setdefault("program", word.text)
