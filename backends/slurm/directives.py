"""The ``#SBATCH`` lines of ``job.sbatch``, one per row of ``flags.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.shared.rack_runs import nvlink_spans_hosts
from parc.backends.shared.versions import is_in_range, parse_version
from parc.backends.slurm.nodelist import fold_hosts
from parc.backends.slurm.quoting import sbatch_directive
from parc.backends.slurm.segment_size import hosts_per_segment
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import AnyPlan

SWITCHES_WAIT = "01:00:00"
"""Time, HH:MM:SS, that Slurm waits for hosts on few leaf switches before it ignores
``--switches``."""
NODELIST_WITH_SEGMENT_SINCE = (26, 5)
"""First Slurm version whose topology/block accepts ``--nodelist`` together with ``--segment``.
Older versions reject the pair ("Requested node configuration is not available"). With
``--segment``, newer versions also accept host lists that they would not choose themselves."""


@cache
def directive_table() -> dict[str, Any]:
    """Return the parsed file ``flags.yaml``.

    The table contains the directives in their order, and the fields of ``launch`` that reach the
    job in another way.
    """
    text = files("parc.backends.slurm").joinpath("flags.yaml").read_text("utf-8")
    table: dict[str, Any] = parse_table(text)
    return table


def slurm_directives(plan: AnyPlan) -> tuple[str, ...]:
    """Return the ``#SBATCH`` lines of a plan, for the Slurm version of the plan.

    Raises:
        ValueError: a value contains a control character; the rules reject such plans earlier.
    """
    version = plan.problem.launch.slurm.version
    values = _directive_values(plan)
    known = [
        row
        for row in directive_table()["directives"]
        if is_in_range(version, row.get("since"), None)
    ]
    lines = [
        sbatch_directive(row["flag"], value)
        for row in known
        if (value := values[row["flag"]]) is not None
    ]
    requeue = "requeue" if plan.problem.launch.slurm.requeue else "no-requeue"
    extra = [extra_directive(text) for text in plan.problem.launch.slurm.extra]
    return (*lines, *extra, "#SBATCH --exclusive", f"#SBATCH --{requeue}")


def extra_directive(text: str) -> str:
    """Return the ``#SBATCH`` line of one entry of ``launch.slurm.extra``.

    Raises:
        ValueError: the value contains a control character; the rules reject such plans earlier.
    """
    flag, equals, value = text.removeprefix("--").partition("=")
    return sbatch_directive(flag, value) if equals else f"#SBATCH --{flag}"


def _segment_value(plan: AnyPlan, version: tuple[int, ...]) -> str | None:
    """Return the value of ``--segment``, the number of hosts per segment; None to omit the option.

    The option is omitted if segments have no effect, or if this version of Slurm does not accept it
    together with named hosts.
    """
    named, size = plan.problem.cluster.named, hosts_per_segment(plan)
    # A segment of one host has no effect, except that Slurm then accepts any host list.
    useful = version >= NODELIST_WITH_SEGMENT_SINCE if named else size != 1
    return str(size) if size is not None and useful else None


def _switches_value(plan: AnyPlan) -> str | None:
    """Return the value of ``--switches``, such as ``2@01:00:00``; None to omit the option.

    The first number is the number of leaf switches that the plan uses. The time after ``@`` is how
    long Slurm waits for hosts on so few switches. After this time Slurm ignores the option, so the
    job itself checks its racks.

    The option is omitted in three cases: the plan uses a single rack; the hosts have names, which
    already determine the leaf switches; or NVLink domains span hosts, for which ``--segment`` is
    more specific.
    """
    cluster = plan.problem.cluster
    leaves = len({host.rack for host in plan.placement.hosts})
    if cluster.named or leaves < 2 or nvlink_spans_hosts(cluster):
        return None
    return f"{leaves}@{SWITCHES_WAIT}"


def _directive_values(plan: AnyPlan) -> dict[str, str | None]:
    """Return directive -> value; the batch script omits a directive whose value is None."""
    slurm = plan.problem.launch.slurm
    return {
        "job-name": plan.problem.name,
        "nodes": str(len(plan.placement.hosts)),
        "ntasks-per-node": "1",
        "gpus-per-node": str(plan.placement.ranks_per_node),
        # 0 requests all memory of each host; --exclusive does not include it.
        "mem": "0",
        "nodelist": planned_nodelist(plan) or slurm.nodelist,
        "exclude": slurm.exclude,
        "constraint": slurm.constraint,
        "array": slurm.array,
        "comment": slurm.comment,
        "mail-user": slurm.mail_user,
        "mail-type": slurm.mail_type,
        "segment": _segment_value(plan, parse_version(slurm.version)),
        "switches": _switches_value(plan),
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "reservation": slurm.reservation,
        "time": slurm.time_limit,
        # B: sends the signal only to the batch shell, which forwards it if the program can save a
        # checkpoint.
        "signal": f"B:USR1@{slurm.signal_seconds}",
        # A requeued job must not overwrite the log of its earlier attempts.
        "open-mode": "append",
        # %j differs between the tasks of an array too, but does not name the array.
        "output": "%x.%j.out" if slurm.array is None else "%x.%A_%a.out",
    }


def planned_nodelist(plan: AnyPlan) -> str | None:
    """Return the hosts of the plan as a Slurm host list; None if they have no names."""
    if not plan.problem.cluster.named:
        return None
    return fold_hosts(host.name for host in plan.placement.hosts)
