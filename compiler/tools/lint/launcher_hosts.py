"""Check the number of hosts that a launcher joins, and the ranks of these hosts."""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.importers.launch_commands import is_python_program
from parc.compiler.tools.lint.launch_commands import LaunchCommand
from parc.compiler.tools.lint.launch_tasks import SlurmOption
from parc.compiler.tools.lint.script import LintedScript

HOST_FLAG = "--nnodes"
"""Flag with the number of hosts of torchrun and of launchers with the same rendezvous."""
RENDEZVOUS = ("--master-addr", "--master-port", "--rdzv-endpoint", "--rdzv-id")
_RANKED = re.compile(r"--node[-_]rank\b|--rdzv[-_]backend\b|--standalone\b|\bPET_[A-Z]+")
"""Matches an option that sets node ranks or lets the rendezvous assign them, and the variables from
which torchrun takes missing options (torch/distributed/argparse_util.py)."""
_CHOOSES_HOSTS = frozenset(
    (
        *("--nodes", "--nodelist", "--exclude", "--ntasks", "--relative", "--het-group"),
        *("--nodefile", "-r", "-F"),
    )
)
"""Options of srun that may restrict its tasks to some hosts of the job."""
_RANK = re.compile(
    r"(?i:(?:--)?(?:node|machine)[-_]rank)[= ][\\\"']*\$\{?SLURM_(?:PROCID|NODEID)\b\}?"
)
"""Matches an option that sets the node rank to the number that Slurm gives each host or task."""
_HOST_SPECIFIC = re.compile(r"SLURM_(?:PROCID|NODEID)|\bhetjob\b|\bpackjob\b")
"""Matches variables that give each host another part of the work, and heterogeneous jobs."""
_TASKS = re.compile(r"--ntasks(?!-)|^#SBATCH.*\s-n", re.M)
"""Matches an option with the number of all tasks, which may be fewer than the hosts."""
_BACKGROUND = re.compile(r"^(?>[^#\n]*?\bsrun\b)[^\n]*[^&>]&\s*$", re.M)
"""Matches a line with srun that runs in the background."""
_JOB_HOSTS = re.compile(r"\$\{?SLURM_(?:JOB_NUM_)?N?NODES\}?")
"""Matches the variable in which Slurm states the number of hosts of the job."""
_RANK_VARIABLE = re.compile(r"\b((?:NODE|MACHINE|HOST)_RANK|RANK)=")
_TRAINS = re.compile(r"(?:^|[/.])(?:pretrain|train|finetune|sft)\w*(?:\.py)?$")


def check_launcher_hosts(
    script: LintedScript,
    commands: list[LaunchCommand],
    nodes: SlurmOption | None,
    sink: Sink,
) -> None:
    """Report a launcher that does not match the hosts of the job.

    The launcher waits for more hosts than the job has (L35), joins fewer (L36), or gives all hosts
    node rank 0 (L08).

    Args:
        script: the script.
        commands: its commands that start ranks.
        nodes: directive with the number of hosts; None if there is none.
        sink: receives the findings.
    """
    allocated = whole_number(nodes.value) if nodes is not None else None
    # Operators of Kubernetes set the node rank.
    if not script.is_manifest and not _RANKED.search(script.text):
        known = _RANK_VARIABLE.search(script.text)
        variable = known[1] if known else "NODE_RANK"
        for command in commands:
            _check_missing_rank(script, command, allocated, variable, sink)
    if nodes is None or not allocated:
        return
    alone = sum(one.launcher is not None for one in commands) == 1 and not _divides_hosts(script)
    for command in commands:
        if command.srun is None or _CHOOSES_HOSTS & command.srun.keys():
            continue
        flag, least, most = _hosts(command)
        if flag is None or script.may_be_overridden(flag.values[0]):
            continue
        cause = (Cause("", "hosts of the job", nodes.span),)
        if least > allocated:
            finding = Finding(
                f"the launcher waits for {least} hosts, but the job has {allocated}",
                label=f"srun starts it on {allocated} hosts, so the rendezvous never completes",
                fix=f'{flag.name} "$SLURM_NNODES"',
                causes=cause,
            )
            sink.report("L35", finding, span=flag.word.span)
        elif most < allocated and alone and _trains_on(command, most):
            sink.report("L36", _explain_idle(flag, most, allocated, cause), span=flag.word.span)


def _explain_idle(
    flag: LaunchFlag, joined: int, allocated: int, causes: tuple[Cause, ...]
) -> Finding:
    rest = allocated - joined
    alone = "every host trains a model of its own, and none of them communicates with another"
    return Finding(
        f"the launcher joins {joined} hosts, but the job has {allocated}",
        label=alone if joined == 1 else f"{rest} hosts of the job wait without work",
        help=f"or request fewer hosts: #SBATCH --nodes={joined}",
        fix=f'{flag.name} "$SLURM_NNODES"',
        causes=causes,
    )


def _hosts(command: LaunchCommand) -> tuple[LaunchFlag | None, int, int]:
    """Return (flag with the number of hosts, minimum, maximum); the flag is None if unknown."""
    declared = command.declaration
    flags = (declared.total_flags or declared.size_flags) if declared is not None else None
    flag = command.options.get((flags[0] if flags else HOST_FLAG).replace("_", "-"))
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", flag.value) if flag is not None else None
    if flag is None or match is None:
        return None, 0, 0
    return flag, int(match[1]), int(match[2] or match[1])


def _divides_hosts(script: LintedScript) -> bool:
    """Return True if several commands may divide the hosts of the job among them."""
    return bool(
        _HOST_SPECIFIC.search(_RANK.sub("", script.text))
        or _BACKGROUND.search(script.text)
        or _TASKS.search(script.text)
    )


def _trains_on(command: LaunchCommand, hosts: int) -> bool:
    """Return True if ``command`` starts ranks of one job on ``hosts`` hosts.

    A launcher for one host can also start an independent program on each host.
    """
    declared = command.declaration
    if declared is None or not declared.uses_visible_devices:
        return False
    if hosts > 1:
        return True
    trains = any(_TRAINS.search(word.text) for word in command.words)
    return trains and "--standalone" not in command.options


def _check_missing_rank(
    script: LintedScript,
    command: LaunchCommand,
    allocated: int | None,
    variable: str,
    sink: Sink,
) -> None:
    """Report a launcher with a fixed rendezvous whose hosts all have node rank 0 (L08).

    ``variable`` is the usual variable of the script for the rank of a host.
    """
    declared, launcher = command.declaration, command.launcher
    if declared is None or launcher is None or command.is_open:
        return
    if not declared.size_flags or declared.size_flags[0] != HOST_FLAG:
        return
    flag, hosts, _ = _hosts(command)
    given = command.options.get(HOST_FLAG)
    if flag is None and given is not None and _JOB_HOSTS.fullmatch(given.value):
        flag, hosts = given, allocated or 0
    if flag is None or hosts < 2 or script.may_be_overridden(flag.values[0]):
        return
    fixed = any(name in command.options for name in RENDEZVOUS)
    # Without an address, only a complete command of a batch script is certainly wrong.
    if not fixed and (command.srun is None or not any(map(is_python_program, command.words))):
        return
    name = "SLURM_NODEID" if command.srun is not None else variable
    inside = " inside srun bash -c '...'" if command.srun is not None else ""
    finding = Finding(
        f"all {hosts} hosts take node rank 0: {launcher.text} has no --node-rank",
        label="without this option and a rendezvous backend, every host is node rank 0",
        help=f"{name} must differ between the hosts: 0 to {hosts - 1}",
        fix=f'add --node-rank "${name}"{inside}',
    )
    sink.report("L08", finding, span=flag.word.span)
