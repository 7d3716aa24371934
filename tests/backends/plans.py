"""Plans for the tests of launch scripts: named, nameless, NVL72, one host, hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parc.compiler.ir import Cluster, Host, Plan, SlurmJob
from tests.placement.placement_plans import NODE, NVL72, cluster, layout, plan

HOSTILE = "x y\"'`;#$(touch pwned)\\&|*"
"""Text in which every part has a special meaning to a shell."""
SLURM = SlurmJob(
    version="24.11",
    partition=None,
    account=None,
    qos=None,
    time_limit="01:00:00",
    reservation=None,
    constraint=None,
    exclude=None,
    nodelist=None,
    array=None,
    comment=None,
    mail_user=None,
    mail_type=None,
    extra=(),
    container_image=None,
    container_mounts=(),
    container_runtime=None,
    requeue=True,
    signal_seconds=300,
    log_dir="logs",
)


def launch_plan(on: Cluster, *, emit: tuple[str, ...] = ("megatron", "slurm", "torchrun")) -> Plan:
    """Return a plan over all hosts of ``on``, with tp inside hosts and dp across them."""
    hosts, gpus = on.nodes, on.node.gpus
    made = plan(on, layout(tp=gpus, dp=hosts))
    launch = replace(made.problem.launch, slurm=SLURM)
    versions = (("megatron", "0.19"), ("slurm", SLURM.version), ("torchrun", "2.13"))
    problem = replace(made.problem, launch=launch, emit=emit, versions=versions)
    # in the order of the racks, whatever the placement pass would choose
    placement = replace(made.placement, hosts=on.hosts)
    return replace(made, problem=problem, placement=placement)


def named_plan() -> Plan:
    """Return a plan for two racks of two DGX hosts, with names."""
    return launch_plan(cluster(2, 2))


def nameless_plan(*sizes: int) -> Plan:
    """Return a plan for racks of DGX hosts without names."""
    return launch_plan(replace(cluster(*sizes), named=False))


def nvl72_plan(*sizes: int, named: bool = True) -> Plan:
    """Return a plan for NVL72 racks, one domain per rack, with the given hosts in use."""
    return launch_plan(replace(cluster(*sizes, node=NVL72), named=named))


def small_plan(gpus: int = 4) -> Plan:
    """Return a plan for fewer GPUs than a host has."""
    made = launch_plan(cluster(1))
    few = layout(tp=gpus)
    placement = replace(made.placement, ranks_per_node=gpus)
    return replace(made, layout=few, placement=placement)


def with_launch(made: Plan, **changes: Any) -> Plan:
    """Return the plan with changed fields of ``launch``."""
    launch = replace(made.problem.launch, **changes)
    return replace(made, problem=replace(made.problem, launch=launch))


def with_slurm(made: Plan, **changes: Any) -> Plan:
    """Return the plan with changed fields of ``launch.slurm``."""
    return with_launch(made, slurm=replace(made.problem.launch.slurm, **changes))


def with_names(made: Plan, *names: str) -> Plan:
    """Return the plan with renamed hosts, in node-rank order."""
    hosts = tuple(
        Host(name, host.rack, host.nvlink_domain, ())
        for name, host in zip(names, made.placement.hosts, strict=True)
    )
    return replace(made, placement=replace(made.placement, hosts=hosts))


def with_fabric(made: Plan, kind: str) -> Plan:
    """Return the plan on another type of fabric."""
    on = made.problem.cluster
    changed = replace(on, fabric=replace(on.fabric, kind=kind))
    return replace(made, problem=replace(made.problem, cluster=changed))


PLANS = {
    "named": named_plan(),
    "nameless": nameless_plan(2, 2),
    "nameless, one rack": nameless_plan(4),
    "NVL72, named": nvl72_plan(4, 4),
    "NVL72, nameless": nvl72_plan(4, 2, named=False),
    "part of a host": small_plan(),
    "without torchrun": launch_plan(cluster(2, 2), emit=("megatron", "slurm")),
    "without megatron": with_launch(launch_plan(cluster(2), emit=("torchrun",)), args=("--a b",)),
    "inherited": with_launch(named_plan(), env_inherited=("HF_TOKEN",)),
    "container": with_slurm(
        named_plan(), container_image="a b.sqsh", container_mounts=("/data:/data", "/x y:/z")
    ),
    "Apptainer": with_slurm(
        named_plan(),
        container_image="a b.sif",
        container_mounts=("/data:/data", "/x y:/z"),
        container_runtime="apptainer",
    ),
    "old Slurm": with_slurm(nvl72_plan(4, 4, named=False), version="22.05"),
}
__all__ = ["HOSTILE", "NODE", "PLANS", "SLURM"]
