"""The head of ``job.sbatch``: one ``#SBATCH`` line a row of ``flags.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.shared.rack_runs import nvlink_spans_hosts
from parc.backends.shared.versions import is_in_range, parse_version
from parc.backends.slurm.nodelist import fold_hosts
from parc.backends.slurm.quoting import directive
from parc.backends.slurm.shape import segment
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import AnyPlan

SWITCHES_WAIT = "01:00:00"
"""How long a job waits for so few leaves before it takes others."""
NODELIST_WITH_SEGMENT_SINCE = (26, 5)
"""Before, topology/block answers both with "Requested node configuration is not available"; from
then on the segment makes it accept hosts that it would not have chosen itself."""


@cache
def flag_table() -> dict[str, Any]:
    """``flags.yaml``: directives in order, and the plan fields that go elsewhere."""
    text = files("parc.backends.slurm").joinpath("flags.yaml").read_text("utf-8")
    table: dict[str, Any] = parse_table(text)
    return table


def directives(plan: AnyPlan) -> tuple[str, ...]:
    """The ``#SBATCH`` lines for the plan's Slurm version.

    Raises:
        ValueError: a value holds a control character; the rules refuse it before.
    """
    version = plan.problem.launch.slurm.version
    values = _values(plan)
    known = [
        row for row in flag_table()["directives"] if is_in_range(version, row.get("since"), None)
    ]
    lines = [
        directive(row["flag"], value) for row in known if (value := values[row["flag"]]) is not None
    ]
    requeue = "requeue" if plan.problem.launch.slurm.requeue else "no-requeue"
    return (*lines, "#SBATCH --exclusive", f"#SBATCH --{requeue}")


def _segment(plan: AnyPlan, version: tuple[int, ...]) -> str | None:
    named, size = plan.problem.cluster.named, segment(plan)
    # a segment of one host says nothing, save that any list of names is welcome
    useful = version >= NODELIST_WITH_SEGMENT_SINCE if named else size != 1
    return str(size) if size is not None and useful else None


def _switches(plan: AnyPlan) -> str | None:
    """Leaf switches that the plan was priced for, where Slurm chooses the hosts.

    A wish with a deadline: the job checks the shape that it got. Named hosts are on their leaves
    already, and where NVLink domains span hosts the segment says more.
    """
    cluster = plan.problem.cluster
    leaves = len({host.rack for host in plan.placement.hosts})
    if cluster.named or leaves < 2 or nvlink_spans_hosts(cluster):
        return None
    return f"{leaves}@{SWITCHES_WAIT}"


def _values(plan: AnyPlan) -> dict[str, str | None]:
    """Value per directive; None: not written."""
    slurm = plan.problem.launch.slurm
    return {
        "job-name": plan.problem.name,
        "nodes": str(len(plan.placement.hosts)),
        "ntasks-per-node": "1",
        "gpus-per-node": str(plan.placement.ranks_per_node),
        "mem": "0",
        "nodelist": nodelist(plan),
        "segment": _segment(plan, parse_version(slurm.version)),
        "switches": _switches(plan),
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "reservation": slurm.reservation,
        "time": slurm.time_limit,
        "signal": f"B:USR1@{slurm.signal_seconds}",
        "open-mode": "append",
        "output": "%x.%j.out",
    }


def nodelist(plan: AnyPlan) -> str | None:
    """The hosts of the plan, folded; None where they have no names."""
    if not plan.problem.cluster.named:
        return None
    return fold_hosts(host.name for host in plan.placement.hosts)
