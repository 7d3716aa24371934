"""Check the tasks per host that srun starts: launchers, and programs with one rank per task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import whole_number
from parc.compiler.tools.lint.launch_commands import LaunchCommand

_PYTHON = re.compile(r"(?:^|/)python[0-9.]*$")
_TRAINING = re.compile(r"(?:^|/)(?:pretrain|train|finetune)(?!\w*(?:token|vocab|bpe))\w*\.py$")
"""Matches a program with one rank per GPU; programs that train a tokenizer use no GPU."""
GPU_OPTIONS = ("--gpus-per-node", "--gres", "--gpus", "--gpus-per-task")

MOST = 999_999
"""Maximum number of hosts, and of GPUs per host; larger numbers count as unknown."""


@frozen
class SlurmOption:
    """Option of sbatch or srun."""

    name: str
    value: str
    span: Span


@frozen
class Tasks:
    """Tasks per host, and the option that sets their number."""

    count: int
    option: SlurmOption
    hosts: int | None
    """Number of hosts; None if unknown and ``option`` is not a total."""

    def option_for(self, count: int) -> str:
        """Return ``option`` with ``count`` tasks per host."""
        total = count * self.hosts if self.hosts and self.option.name == "--ntasks" else count
        return f"{self.option.name}={total}"


def check_tasks(
    commands: Iterable[LaunchCommand], directives: Mapping[str, SlurmOption], sink: Sink
) -> None:
    """Report several launchers per host (L01), and tasks that do not fit the GPUs (L02, L34).

    Args:
        commands: commands of the script that start ranks.
        directives: options of the ``#SBATCH`` lines under their long names.
        sink: receives the findings.
    """
    for command in commands:
        if command.srun is None:
            continue
        given = {
            name: SlurmOption(name, flag.value, flag.word.span)
            for name, flag in command.srun.items()
        }
        options = {**directives, **given}
        if any(name in given for name in GPU_OPTIONS):
            options = {**{n: o for n, o in options.items() if n not in GPU_OPTIONS}, **given}
        tasks = _tasks_per_host(options, given)
        if tasks is not None and _check_command(command, tasks, options, sink):
            return


def _check_command(
    command: LaunchCommand, tasks: Tasks, options: Mapping[str, SlurmOption], sink: Sink
) -> bool:
    """Check one srun; return True if it has a finding."""
    cause = Cause("", "started here", command.start.span)
    if command.launcher is not None:
        if tasks.count < 2:
            return False
        name = command.launcher.text
        finding = Finding(
            f"each of {tasks.count} tasks per host starts {name}, and all listen on one port",
            label=f"a host needs 1 task: {name} starts all processes of a host",
            fix=tasks.option_for(1),
            causes=(cause,),
        )
        sink.report("L01", finding, span=tasks.option.span)
        return True
    texts = [word.text for word in command.words]
    program = next((text for text in texts if _TRAINING.search(text)), None)
    gpus = gpus_per_host({name: one.value for name, one in options.items()}, tasks.hosts)
    if program is None or gpus is None or not any(map(_PYTHON.search, texts)):
        return False
    if tasks.count == 1 < gpus:
        # Some programs start the processes of a single host themselves.
        if tasks.option.name == "--ntasks" and tasks.hosts == 1:
            return False
        finding = Finding(
            f"srun starts 1 process per host, but each host has {gpus} GPUs",
            label=f"a host needs {gpus} tasks, unless torchrun starts the processes",
            fix=tasks.option_for(gpus),
            causes=(cause,),
        )
        sink.report("L02", finding, span=tasks.option.span)
        return True
    if tasks.count <= gpus:
        return False
    wanted = next(one for name in GPU_OPTIONS if (one := options.get(name)) is not None)
    finding = Finding(
        f"srun starts {tasks.count} tasks per host, but each host has {gpus} GPUs",
        label=f"each task is one rank of {program.rpartition('/')[2]}: {tasks.count - gpus} of "
        f"{tasks.count} ranks have no GPU of their own",
        help=f"or request {tasks.count} GPUs per host: {_request(wanted, tasks)}",
        fix=tasks.option_for(gpus),
        causes=(Cause("", "GPUs requested here", wanted.span), cause),
    )
    sink.report("L34", finding, span=tasks.option.span)
    return True


def _request(gpus: SlurmOption, tasks: Tasks) -> str:
    """Return the option ``gpus`` with one GPU per task."""
    if gpus.name == "--gpus" and tasks.hosts is not None:
        return f"--gpus={tasks.count * tasks.hosts}"
    return (
        f"--gres=gpu:{tasks.count}" if gpus.name == "--gres" else f"--gpus-per-node={tasks.count}"
    )


def _tasks_per_host(
    options: Mapping[str, SlurmOption], given: Mapping[str, SlurmOption]
) -> Tasks | None:
    """Return the tasks per host of one srun; None if they are unknown.

    Without ``--ntasks-per-node``, Slurm may distribute the tasks unevenly, so that a host has at
    least the returned number.

    Args:
        options: options of the directives and of srun; those of srun count.
        given: options of srun.
    """
    # With these options, Slurm derives the tasks from GPUs, or starts them on other hosts.
    if {"--ntasks-per-gpu", "--nodelist", "--relative", "--het-group"} & options.keys():
        return None
    nodes = options.get("--nodes")
    hosts = (whole_number(nodes.value) or None) if nodes is not None else None
    per_node, total = options.get("--ntasks-per-node"), options.get("--ntasks")
    per_host = whole_number(per_node.value) if per_node is not None else None
    all_tasks = whole_number(total.value) if total is not None else None
    if per_node is not None and (total is None or (hosts and all_tasks == hosts * (per_host or 0))):
        return Tasks(per_host, per_node, hosts) if per_host else None
    if total is None or per_node is not None or not all_tasks or not hosts:
        return None
    # srun --ntasks starts on as many hosts as it needs, unless srun has --nodes as well.
    if "--ntasks" in given and "--nodes" not in given and all_tasks < hosts:
        return None
    return Tasks(-(-all_tasks // hosts), total, hosts)


def gpus_per_host(options: Mapping[str, str], nodes: int | None) -> int | None:
    """Return the number of GPUs per host that options of Slurm request; None if it is unknown."""
    per_node = _count(options.get("--gpus-per-node", ""))
    found = re.fullmatch(
        r"(?:.*,)?gpu(?::[^:,()]*[^:,()\d][^:,()]*)?:(\d+)(?:\(\S*\))?(?:,.*)?",
        options.get("--gres", ""),
    )
    if per_node is None and found is not None:
        per_node = _count(found[1])
    total = _count(options.get("--gpus", ""))
    if per_node is None and total and nodes and total % nodes == 0:
        per_node = total // nodes
    per_task = _count(options.get("--gpus-per-task", ""))
    tasks = _count(options.get("--ntasks-per-node", ""))
    if per_node is None and per_task and tasks:
        per_node = per_task * tasks
    return per_node


def _count(text: str) -> int | None:
    """Return the number at the end of ``text``, such as ``h100:8``; None if there is none."""
    return parse_count(text.rpartition(":")[2])


def parse_count(text: str) -> int | None:
    """Return ``text`` as a number of hosts or GPUs; None unless it is an integer from 1 to MOST."""
    number = whole_number(text)
    return number if number and number <= MOST else None
