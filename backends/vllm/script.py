"""Emit ``vllm/serve.sh``, one script that starts the processes of every host."""

from __future__ import annotations

from itertools import groupby

from parc.backends.shared.render import render, shell_word
from parc.backends.vllm.arguments import arguments
from parc.backends.vllm.commands import Address, Flag, Process, processes
from parc.backends.vllm.environment import serving_environment
from parc.compiler.ir import Artifact, ServingPlan

PATH = "vllm/serve.sh"
_DEVICE_VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
"""GPU vendor -> variable with the GPUs that are visible to a process."""


def serve_script(plan: ServingPlan) -> Artifact:
    """Return the script; a table at its end contains everything that differs between hosts."""
    problem, placement = plan.problem, plan.placement
    running = processes(plan)
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
        "groups": _shared_arguments(plan),
        "table": [_host_row(plan, node, list(group)) for node, group in by_host],
    }
    return Artifact(PATH, render("vllm", "serve.sh.j2", values), True)


def _describe_engines(plan: ServingPlan) -> str:
    layout = plan.layout
    degrees = [f"tp {layout.tp}", f"pp {layout.pp}"]
    degrees += [f"dp {layout.dp}"] if layout.dp > 1 else []
    degrees += [f"ep {layout.ep}"] if layout.ep > 1 else []
    many = f"{layout.replicas} engines" if layout.replicas > 1 else "one engine"
    return f"{many} of {', '.join(degrees)}"


def _shared_arguments(plan: ServingPlan) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return (group, words per flag) of the shared arguments, with those of the user last.

    For a repeated flag the parser uses the last value, so the user's arguments win.
    """
    by_group = groupby(arguments(plan), key=lambda argument: argument.group)
    groups = [(name, [one.words for one in group]) for name, group in by_group]
    extra = plan.problem.launch.args
    return [*groups, ("launch.args of the spec", [extra])] if extra else groups


def _host_row(plan: ServingPlan, node: int, running: list[Process]) -> dict[str, object]:
    host = plan.placement.hosts[node].name if plan.problem.cluster.named else f"host {node}"
    each = plan.placement.ranks_per_node
    ports = [port for process in running for port in process.ports]
    serves = "API on " + ", ".join(map(str, ports)) if ports else "no API server"
    return {
        "number": node,
        "about": f"{host}: ranks {node * each}-{node * each + each - 1}, {serves}",
        "processes": [
            {"devices": ",".join(map(str, one.devices)), "words": words(one.flags)}
            for one in running
        ],
    }


def words(flags: tuple[Flag, ...]) -> str:
    """Return flags as shell text with leading blanks; addresses expand the array ``hosts``."""
    return "".join(f" {name}{_value(value)}" for name, value in flags)


def _value(value: str | int | Address | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Address):
        return f' "${{hosts[{value.node}]}}"'
    return f" {shell_word(value)}"
