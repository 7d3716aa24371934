"""``launch.sh``: one script that starts any node of the job, under Slurm or by hand."""

from __future__ import annotations

from parc.backends.base import Start
from parc.backends.registry import framework_of
from parc.backends.shared.launch_environment import launch_environment
from parc.backends.shared.render import render, shell_word
from parc.compiler.ir import AnyPlan, Artifact, Plan


def launch_script(plan: Plan, folder: str, hosts_file: str, start: Start | None = None) -> Artifact:
    """The script as ``<folder>/launch.sh``; it looks for ``hosts_file`` next to itself.

    ``start``: in place of what the framework starts, with a launcher of its own whose hosts file
    has more words behind each name.

    The rendezvous is static: c10d would sort the nodes by name and break the rank map
    (pytorch issues 137402 and 150660).
    """
    placement, launch = plan.placement, plan.problem.launch
    named = plan.problem.cluster.named
    values = {
        "nodes": len(placement.hosts),
        "ranks_per_node": placement.ranks_per_node,
        "master": placement.hosts[0].name if named else "",
        "port": launch.master_port,
        "hosts_file": hosts_file,
        "named": named,
        "read_host": "IFS= read -r host" if start is None else "read -r host _",
        "environment": launch_environment(plan),
        "start": start or start_of(plan),
        "preflight": "preflight" in plan.problem.emit,
    }
    return Artifact(f"{folder}/launch.sh", render("torchrun", "launch.sh.j2", values), True)


def start_of(plan: Plan) -> Start:
    """What the framework starts where its files are emitted, else the user's program alone."""
    problem = plan.problem
    if problem.framework in problem.emit:
        return framework_of(problem).start(plan)
    words = " ".join(map(shell_word, problem.launch.args))
    return Start(program=shell_word(problem.launch.program), args=words)


def host_lines(plan: AnyPlan) -> str:
    """One host a line, line n+1 is node rank n."""
    return "".join(f"{host.name}\n" for host in plan.placement.hosts)
