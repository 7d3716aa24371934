"""Emission of ``launch.sh``, which starts the ranks of one host."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.registry import framework_of_problem
from parc.backends.shared.launch_environment import launch_environment
from parc.backends.shared.render import render, shell_word
from parc.compiler.ir import AnyPlan, Artifact, JobStart, Plan


def launch_script(
    plan: Plan, folder: str, hosts_file: str, command: LaunchCommand | None = None
) -> Artifact:
    """Return ``<folder>/launch.sh``, the script that starts the ranks of one host.

    Args:
        plan: the plan whose job the script starts.
        folder: folder of the script, below the output folder.
        hosts_file: name of the file in ``folder`` from which the script reads the host names.
        command: command that replaces the framework's launch command. The script then ignores
            words after a host name in the hosts file, such as ``slots=8``.
    """
    # The rendezvous is static, because c10d sorts the nodes by name, which would break the rank
    # map (pytorch issues 137402 and 150660).
    placement, launch = plan.placement, plan.problem.launch
    named = plan.problem.cluster.named
    run = command or launch_command_of_plan(plan)
    values = {
        "nodes": len(placement.hosts),
        "ranks_per_node": placement.ranks_per_node,
        "master": placement.hosts[0].name if named else "",
        "port": launch.master_port,
        "hosts_file": hosts_file,
        "named": named,
        "read_host": "IFS= read -r host" if command is None else "read -r host _",
        "environment": launch_environment(plan),
        "inherited": launch.env_inherited,
        "setup": launch.setup,
        "start": run,
        "mock_data": plan.problem.trains_on_mock_data,
        "preflight": "preflight" in plan.problem.emit,
    }
    text = render("torchrun", "launch.sh.j2", values)
    start = JobStart(hosts=len(placement.hosts), program=run.relative_program)
    return Artifact(f"{folder}/launch.sh", text, True, start)


def launch_command_of_plan(plan: Plan) -> LaunchCommand:
    """Return the launch command of the plan's framework.

    If the spec does not request the files of the framework (``emit``), return the command that runs
    the user's program.
    """
    problem = plan.problem
    if problem.framework in problem.emit:
        return framework_of_problem(problem).launch_command(plan)
    words = " ".join(map(shell_word, problem.launch.args))
    return LaunchCommand(program=shell_word(problem.launch.program), args=words)


def hosts_file_text(plan: AnyPlan) -> str:
    """Return the text of a hosts file: one host name per line, in the order of node ranks."""
    return "".join(f"{host.name}\n" for host in plan.placement.hosts)
