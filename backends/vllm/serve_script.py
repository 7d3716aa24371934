"""Emission of ``vllm/serve.sh``, the one script that starts the processes of every host."""

from __future__ import annotations

from itertools import groupby

from parc.backends.shared.render import render, shell_word
from parc.backends.vllm.arguments import shared_arguments
from parc.backends.vllm.environment import serving_environment
from parc.backends.vllm.processes import Flag, HostAddress, VllmProcess, plan_processes
from parc.compiler.ir import Artifact, ServingPlan

PATH = "vllm/serve.sh"
_DEVICE_VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
"""GPU vendor -> variable with the GPUs that are visible to a process."""


def serve_script(plan: ServingPlan) -> Artifact:
    """Return ``vllm/serve.sh``, the script that starts the vLLM processes of every host.

    All hosts run the same script. A table at its end contains everything that differs between
    hosts.
    """
    problem, placement = plan.problem, plan.placement
    running = plan_processes(plan)
    # groupby needs sorted input, and processes() sorts by host
    by_host = groupby(running, key=lambda process: process.node)
    values = {
        "model": problem.service.checkpoint,
        "version": problem.version("vllm"),
        "engines": _describe_engines(plan),
        "nodes": len(placement.hosts),
        "named": problem.cluster.named,
        "hosts": [host.name for host in placement.hosts],
        "visible": _DEVICE_VARIABLES[problem.cluster.gpu.vendor],
        "interface": problem.launch.network_interface or "",
        "environment": serving_environment(plan),
        "inherited": problem.launch.env_inherited,
        "setup": problem.launch.setup,
        "groups": _shared_arguments(plan),
        "table": [_host_row(plan, node, list(group)) for node, group in by_host],
    }
    return Artifact(PATH, render("vllm", "serve.sh.j2", values), True)


def _describe_engines(plan: ServingPlan) -> str:
    """Return a text with the number and the parallel sizes of the engines."""
    layout = plan.layout
    degrees = [f"tp {layout.tp}", f"pp {layout.pp}"]
    degrees += [f"dp {layout.dp}"] if layout.dp > 1 else []
    degrees += [f"ep {layout.ep}"] if layout.ep > 1 else []
    many = f"{layout.replicas} engines" if layout.replicas > 1 else "one engine"
    return f"{many} of {', '.join(degrees)}"


def _shared_arguments(plan: ServingPlan) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return (name of a group, flags of this group) for the flags that all processes share.

    A flag is a tuple of shell words. ``launch.args`` is the last group, because vLLM's parser uses
    the last value of a repeated flag.
    """
    by_group = groupby(shared_arguments(plan), key=lambda argument: argument.group)
    groups = [(name, [one.words for one in group]) for name, group in by_group]
    extra = plan.problem.launch.args
    return [*groups, ("launch.args of the spec", [extra])] if extra else groups


def _host_row(plan: ServingPlan, node: int, running: list[VllmProcess]) -> dict[str, object]:
    """Return the values for the table row of host ``node``, which starts ``running``."""
    host = plan.placement.hosts[node].name if plan.problem.cluster.named else f"host {node}"
    each = plan.placement.ranks_per_node
    ports = [port for process in running for port in process.ports]
    serves = "API on " + ", ".join(map(str, ports)) if ports else "no API server"
    return {
        "number": node,
        "about": f"{host}: ranks {node * each}-{node * each + each - 1}, {serves}",
        "processes": [
            {"devices": ",".join(map(str, one.devices)), "words": shell_flags(one.flags)}
            for one in running
        ],
    }


def shell_flags(flags: tuple[Flag, ...]) -> str:
    """Return the flags as shell text, with a space before each flag.

    The value of an ``HostAddress`` is an element of the script's array ``hosts``.
    """
    return "".join(f" {name}{_shell_value(value)}" for name, value in flags)


def _shell_value(value: str | int | HostAddress | None) -> str:
    """Return ``value`` as shell text with a leading space; empty if ``value`` is None."""
    if value is None:
        return ""
    if isinstance(value, HostAddress):
        return f' "${{hosts[{value.node}]}}"'
    return f" {shell_word(value)}"
