"""Check launch lines and batch directives of a script, and read its numbers of hosts and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import job_size_flags, split_option
from parc.compiler.tools.importers.script_commands import find_program_of_others
from parc.compiler.tools.importers.shell_words import (
    shell_words,
    unexpanded_ranges,
)
from parc.compiler.tools.importers.slurm_time import (
    TIME_FORMS,
    UNLIMITED,
    convert_time_limit,
    time_limit_seconds,
)
from parc.compiler.tools.lint.launch_commands import (
    declared_launchers,
    read_launch_commands,
)
from parc.compiler.tools.lint.launch_directives import check_directive_variables, check_images
from parc.compiler.tools.lint.launch_hosts import lint_hosts
from parc.compiler.tools.lint.launch_network import check_network
from parc.compiler.tools.lint.launch_tasks import (
    SlurmOption,
    check_tasks,
    gpus_per_host,
    parse_count,
)
from parc.compiler.tools.lint.launcher_hosts import check_launcher_hosts
from parc.compiler.tools.lint.script import LintedScript
from parc.compiler.tools.lint.stray_lines import check_stray_lines
from parc.compiler.tools.lint.visible_devices import check_visible_devices

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.*)")
_SHORT = {
    **{"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-c": "--cpus-per-task"},
    "-t": "--time",
}
_SET_BY_SLURM = re.compile(
    r"\$\{?SLURM_(?:NNODES|JOB_NUM_NODES|GPUS_ON_NODE|GPUS_PER_NODE|NTASKS_PER_NODE)\}?"
)
"""Matches a variable whose value follows from the directives of a batch script."""
OF_SLURM = -1
MOST_SEGMENT = 1024
"""Largest segment size that a finding lists."""
_OF_A_TASK = re.compile(
    r"(?i:rank)\w*[= ][\"']?(?P<word>\$\{?(?P<name>SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b)"
)
"""Matches a rank option or variable that is set to a variable which Slurm sets in each task."""
_DYNAMIC_RANKS = re.compile(r"--rdzv[-_]backend[= ]+[\"']?c10d\b")
"""Matches the rendezvous of torchrun that assigns node ranks itself and ignores given ones."""


@frozen
class JobSize:
    """Number of hosts, and of GPUs per host, of a job; None if unknown."""

    nodes: int | None
    gpus_per_node: int | None

    @property
    def gpus(self) -> int | None:
        """Number of GPUs of the job; None if unknown."""
        if self.nodes is None or self.gpus_per_node is None:
            return None
        return self.nodes * self.gpus_per_node


def directive_options(script: LintedScript) -> list[SlurmOption]:
    """Return the options of all ``#SBATCH`` lines of a script; a line can have several options."""
    lines = enumerate(script.lines, start=1)
    return [
        option
        for number, line in lines
        if (match := _DIRECTIVE.match(line)) is not None
        for option in _parse_directive(script, number, match)
    ]


def _parse_directive(
    script: LintedScript, number: int, match: re.Match[str]
) -> Iterator[SlurmOption]:
    words = shell_words(match[1], script.name)
    for index, word in enumerate(words):
        if word.is_flag:
            name, equals, value = split_option(word.text)
            after = words[index + 1 : index + 2]
            if not equals and after and not after[0].is_flag:
                value = after[0].text
            column = word.span.column + match.start(1)
            yield SlurmOption(
                _SHORT.get(name, name), value, Span(script.name, number, column, word.span.length)
            )


def read_job_size(script: LintedScript) -> JobSize:
    """Return the numbers of hosts and GPUs of the job that a script starts.

    Flags of a launcher, such as torchrun's ``--nnodes``, override the ``#SBATCH`` directives.
    """
    options = {option.name: option.value for option in directive_options(script)}
    nodes = parse_count(options.get("--nodes", ""))
    host_flags, process_flags = job_size_flags()
    launched = set(_launcher_values(script, process_flags))
    hosts = set(_launcher_values(script, host_flags))
    gpus = gpus_per_host(options, nodes)
    return JobSize(
        _single_value(hosts) if hosts - {OF_SLURM} else nodes,
        _single_value(launched) if launched - {OF_SLURM} else gpus,
    )


def _single_value(found: set[int | None]) -> int | None:
    """Return the only element of ``found``; None if the set does not have exactly one element."""
    return next(iter(found)) if len(found) == 1 else None


def _launcher_values(script: LintedScript, names: tuple[str, ...]) -> Iterator[int | None]:
    """Yield the value of each occurrence of the flags ``names``; None for an uncertain value.

    A value is uncertain if it is in a branch or is not a number. OF_SLURM is yielded for a variable
    that Slurm sets from the directives.
    """
    for flag in script.flags(names):
        if flag.name in names:
            text = flag.value
            sure = flag.word.span not in script.branches
            if sure and _SET_BY_SLURM.fullmatch(text):
                yield OF_SLURM
            else:
                yield parse_count(text) if sure else None


def starts_job_launcher(script: LintedScript) -> bool:
    """Return True if the script seems to start a job.

    Such a script contains a launcher, ``srun``, ``mpirun``, ``python``, or ``#SBATCH`` directives.
    """
    names = (*declared_launchers(), "srun", "mpirun", "python", "python3")
    return (
        bool(directive_options(script))
        or any(word.text.rpartition("/")[2] in names for word in script.words)
        or find_program_of_others(script.words) is not None
    )


def lint_launch(script: LintedScript, sink: Sink) -> None:
    """Report mistakes in a launch that do not depend on the framework.

    These are flags that bash does not pass to their command (L43), contradictory options of Slurm
    (L04, L05), a time limit that Slurm cannot read (L17), an impossible segment size (L28), a wrong
    number of processes per host (L01, L02, L34), Slurm variables that are expanded too early (L08)
    or never (L44), images without the separator of their registry (L22), launches that cannot work
    on several hosts (``lint_hosts``, ``check_launcher_hosts``), and addresses and interfaces that
    other hosts cannot reach (L09, N01, N02).
    """
    written = directive_options(script)
    options = {option.name: option for option in written}
    commands = read_launch_commands(script)
    check_stray_lines(script, sink)
    check_directive_variables(written, sink)
    check_images(script, written, sink)
    _check_gpu_options(options, sink)
    if options:
        check_tasks(commands, options, sink)
        _check_task_variables(script, sink)
    hosts = read_job_size(script).nodes
    _check_time(options.get("--time"), sink)
    _check_segment(options.get("--segment"), hosts, sink)
    lint_hosts(script, options, hosts, sink)
    check_launcher_hosts(script, commands, options.get("--nodes"), sink)
    check_visible_devices(script, commands, sink)
    # On one host, and possibly if their number is unknown, addresses of the host itself are right.
    if hosts is not None and hosts > 1:
        check_network(script, hosts, sink)


def _check_gpu_options(options: dict[str, SlurmOption], sink: Sink) -> None:
    gres, per_node = options.get("--gres"), options.get("--gpus-per-node")
    if gres and per_node and "gpu" in gres.value:
        finding = Finding(
            "--gres=gpu and --gpus-per-node both set the number of GPUs per host",
            label="Slurm applies only one of the two options",
            fix=f"remove --gres={gres.value}",
            causes=(Cause("", "--gpus-per-node is set here", per_node.span),),
        )
        sink.report("L04", finding, span=gres.span)
    per_gpu = options.get("--ntasks-per-gpu")
    for name in ("--ntasks-per-node", "--gpus-per-task"):
        other = options.get(name)
        if per_gpu and other:
            finding = Finding(
                f"--ntasks-per-gpu and {name} exclude each other",
                label=f"--ntasks-per-gpu and {name} both set the number of GPUs per task",
                fix="remove --ntasks-per-gpu",
                causes=(Cause("", "conflicting option", other.span),),
            )
            sink.report("L05", finding, span=per_gpu.span)


def _check_time(limit: SlurmOption | None, sink: Sink) -> None:
    """Report a time limit that Slurm cannot read (L17)."""
    text = limit.value.strip() if limit is not None else ""
    # A word without a digit is a placeholder.
    is_plain = re.fullmatch(r"(?=.*\d)[\w:.-]+", text) is not None
    if limit is None or not is_plain or text.lower() in UNLIMITED or time_limit_seconds(text):
        return
    if time_limit_seconds(text) == 0:  # Slurm reads 0 as no limit of the job's own
        return
    meant = convert_time_limit(text)
    finding = Finding(
        f"Slurm cannot read the time limit {text!r}",
        help=TIME_FORMS,
        fix=f"--time={meant}" if meant else "",
    )
    sink.report("L17", finding, span=limit.span)


def _check_segment(segment: SlurmOption | None, nodes: int | None, sink: Sink) -> None:
    """Report a segment size that does not divide the number of hosts, which Slurm rejects (L28)."""
    size = parse_count(segment.value) if segment is not None else None
    if segment is None or size is None or nodes is None or nodes % size == 0:
        return
    valid = map(str, divisors(nodes, MOST_SEGMENT))
    finding = Finding(
        f"{nodes} hosts are not divisible into segments of {size}",
        label=f"{nodes} % {size} = {nodes % size}, must be 0",
        help=f"valid segment sizes: {', '.join(valid)}",
    )
    sink.report("L28", finding, span=segment.span)


def _check_task_variables(script: LintedScript, sink: Sink) -> None:
    """Report Slurm's per-task variables that the batch script expands before srun (L08)."""
    if not script.has_srun or read_job_size(script).nodes == 1:
        return
    literal = unexpanded_ranges(script.text)
    for match in _OF_A_TASK.finditer(script.text):
        at = match.start("word")
        line = script.text.count("\n", 0, at) + 1
        column = at - script.text.rfind("\n", 0, at)
        inside = any(start <= at < end for start, end in literal)
        ignored = "_RANK=" not in match[0].upper() and _DYNAMIC_RANKS.search(script.text)
        span = Span(script.name, line, column, len(match["word"]))
        if not (inside or ignored or span in script.branches):
            sink.report("L08", _explain_early_expansion(match["name"]), span=span)


def _explain_early_expansion(name: str) -> Finding:
    return Finding(
        f"${name} has the same value on every host: the batch script expands it before srun",
        label=f"${name} is 0 in the batch script, which runs as task 0",
        fix="quote the command for the tasks: srun bash -c '...'",
    )
