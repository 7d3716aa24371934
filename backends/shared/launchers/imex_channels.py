"""Channels through which pods of an NVLink domain reach the memory of each other."""

from __future__ import annotations

from parc.backends.shared.network import network_environment
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan

MNNVL = "NCCL_MNNVL_ENABLE"
"""Variable with which NCCL fails if it cannot use NVLink between hosts."""


def check_imex_channels(plan: AnyPlan, sink: Sink) -> None:
    """Report pods that use NVLink between hosts, but claim no IMEX channel (L40).

    Nothing is reported if the spec sets the variable that requires NVLink between hosts.
    """
    problem, hosts = plan.problem, len(plan.placement.hosts)
    own = {*dict(problem.launch.env), *problem.launch.env_inherited}
    names = {name for name, _, _ in network_environment(problem.cluster, problem.launch)}
    if hosts == 1 or MNNVL in own or MNNVL not in names:
        return
    gpus = problem.cluster.node.nvlink_domain
    finding = Finding(
        "the pods claim no IMEX channel, so that NCCL cannot use NVLink between hosts",
        label=f"NVLink domains of {gpus} GPUs connect the {hosts} pods, and {MNNVL} is 1",
        help="add a claim of a ComputeDomain to the pods as docs/kubernetes.md shows, then set "
        f'launch.env.{MNNVL}: "1" to turn this warning off',
        causes=(Cause("cluster", f"{gpus} GPUs per NVLink domain"),),
        targets=("kubernetes",),
    )
    sink.report("L40", finding, at="emit")
