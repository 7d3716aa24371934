"""Processes of an engine, and the emitted scripts that start them and the router between two pools.

``serve.sh`` starts the processes of engines on every host; ``router.sh`` starts the router between
the prefill pool and the decode pool of a service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from parc.backends.shared.network import Variable
from parc.backends.shared.render import render, shell_word
from parc.backends.shared.serving.server_addresses import server_addresses
from parc.compiler.ir import Artifact, JobStart, ServingPlan
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import POOLS
from parc.compiler.topology.arrange_hosts import engine_hosts

_DEVICE_VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
"""GPU vendor -> variable with the GPUs that are visible to a process."""


@frozen
class HostAddress:
    """Address of the host with node rank ``node``, as the value of a flag.

    The name may be unknown until the job starts, so the script inserts it.
    """

    node: int
    port: int | None = None
    """Port after the host name and a colon; None if the flag needs only the host name."""


Flag = tuple[str, str | int | HostAddress | None]
"""Flag and value; None for a flag without value."""
Ports = tuple[int, ...]
"""Ports of the API servers that a process starts; empty for a process without a server."""


@frozen
class Argument:
    """A flag with its value: None for a flag without a value, a tuple for several values."""

    flag: str
    value: str | tuple[str, ...] | None
    group: str

    @property
    def words(self) -> tuple[str, ...]:
        """Words on the command line: the flag, and its value if the flag has a value."""
        if self.value is None:
            return (self.flag,)
        values = (self.value,) if isinstance(self.value, str) else self.value
        return (self.flag, *values)


@frozen
class EngineProcess:
    """A process of an engine on a host."""

    node: int
    """Node rank of the host that runs the process."""
    replica: int
    devices: tuple[int, ...]
    """GPUs of the host that are visible to the process."""
    flags: tuple[Flag, ...]
    """Flags that differ between processes."""
    ports: Ports


@frozen
class EngineHost:
    """A host that runs one process of an engine."""

    replica: int
    node: int
    """Node rank among all hosts."""
    head: int
    """Node rank of the engine's first host."""
    hosts: int
    """Number of hosts of the engine."""
    slot: int
    """Index of the engine on its host, if a host runs several."""

    @property
    def index_in_engine(self) -> int:
        """Position of this host among the hosts of its engine, counted from 0."""
        return self.node - self.head


def engine_processes(
    plan: ServingPlan, own: Callable[[ServingPlan, EngineHost], tuple[tuple[Flag, ...], Ports]]
) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine.

    ``own`` returns the flags of a process that other processes do not share, and the ports of its
    API servers.
    """
    places = sorted(_engine_hosts(plan), key=lambda place: (place.node, place.slot))
    return tuple(
        EngineProcess(place.node, place.replica, _devices(plan, place), *own(plan, place))
        for place in places
    )


def _devices(plan: ServingPlan, place: EngineHost) -> tuple[int, ...]:
    """Return the GPUs of the host that the process at ``place`` uses."""
    local = plan.layout.engine_gpus // place.hosts
    return tuple(range(place.slot * local, (place.slot + 1) * local))


def _engine_hosts(plan: ServingPlan) -> Iterator[EngineHost]:
    """Yield an ``EngineHost`` for each engine and each host that runs a process of this engine."""
    layout = plan.layout
    hosts = engine_hosts(layout, plan.problem.cluster.node.gpus) or 1
    # Engines that share a host have the same node rank and differ in their slot.
    shared = max(plan.placement.ranks_per_node // layout.engine_gpus, 1)
    for replica in range(layout.replicas):
        head = replica // shared if hosts == 1 else replica * hosts
        for part in range(hosts):
            yield EngineHost(replica, head + part, head, hosts, replica % shared)


@frozen
class SideChannel:
    """Variables with the address at which an engine offers its KV cache to other engines."""

    host: str
    """Variable with the address of the host."""
    port: str
    """Variable with the first port of the process."""
    first: int
    """First port of the first process on a host."""
    step: int
    """Distance between the first ports of two processes on a host."""


@frozen
class ServeProgram:
    """Engine that the script starts, and everything about it that the script contains."""

    backend: str
    """Name of the backend, which is the folder of the script."""
    title: str
    """Name of the engine in comments."""
    program: str
    """Name of the program in comments: ``vllm serve``."""
    command: str
    """Shell text of the command; the checkpoint is its next word."""
    address_variable: str
    """Environment variable with the address of the host that the engine uses; empty if the engine
    has none."""
    environment: tuple[Variable, ...]
    arguments: tuple[Argument, ...]
    """Arguments that all processes share."""
    side_channel: SideChannel | None = None
    """Variables for the transfer of KV caches; None if the processes need none."""
    exports_hosts: bool = False
    """True if the command reads the node rank and the names of all hosts from the environment."""


def serve_script(
    plan: ServingPlan, engine: ServeProgram, running: Sequence[EngineProcess]
) -> Artifact:
    """Return ``<backend>/serve.sh``, which starts the processes ``running`` of an engine.

    All hosts run the same script. A table at its end contains everything that differs between
    hosts. ``running`` is sorted by host.
    """
    problem, placement = plan.problem, plan.placement
    # groupby needs sorted input
    by_host = groupby(running, key=lambda process: process.node)
    values = {
        "engine": engine.title,
        "program": engine.program,
        "rank_map": " Rank map: rankmap.csv." if "rankmap" in problem.emit else "",
        "command": engine.command,
        "address": engine.address_variable,
        "model": problem.service.checkpoint,
        "version": problem.version(engine.backend),
        "engines": _describe_engines(plan),
        "nodes": len(placement.hosts),
        "named": problem.cluster.named,
        "hosts": [host.name for host in placement.hosts],
        "visible": _DEVICE_VARIABLES[problem.cluster.gpu.vendor],
        "channel": engine.side_channel,
        "interface": (engine.address_variable and problem.launch.network_interface) or "",
        "exports_hosts": engine.exports_hosts,
        "environment": engine.environment,
        "inherited": problem.launch.env_inherited,
        "setup": problem.launch.setup,
        "groups": _grouped_arguments(plan, engine.arguments),
        "table": [_host_row(plan, node, list(group)) for node, group in by_host],
    }
    text = render("serving", "serve.sh.j2", values)
    return Artifact(f"{engine.backend}/serve.sh", text, True, JobStart(hosts=len(placement.hosts)))


def _describe_engines(plan: ServingPlan) -> str:
    """Return a text with the number and the parallel sizes of the engines."""
    layout = plan.layout
    degrees = [f"tp {layout.tp}", f"pp {layout.pp}"]
    degrees += [f"dp {layout.dp}"] if layout.dp > 1 else []
    degrees += [f"ep {layout.ep}"] if layout.ep > 1 else []
    many = f"{layout.replicas} engines" if layout.replicas > 1 else "one engine"
    return f"{many} of {', '.join(degrees)}"


def _grouped_arguments(
    plan: ServingPlan, arguments: tuple[Argument, ...]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return (name of a group, flags of this group) for the flags that all processes share.

    A flag is a tuple of shell words. ``launch.args`` is the last group, because parsers use the
    last value of a repeated flag.
    """
    by_group = groupby(arguments, key=lambda argument: argument.group)
    groups = [(name, [one.words for one in group]) for name, group in by_group]
    extra = plan.problem.launch.args
    return [*groups, ("launch.args of the spec", [extra])] if extra else groups


def _host_row(plan: ServingPlan, node: int, running: list[EngineProcess]) -> dict[str, object]:
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

    The value of a ``HostAddress`` is an element of the script's array ``hosts``.
    """
    return "".join(f" {name}{_shell_value(value)}" for name, value in flags)


def _shell_value(value: str | int | HostAddress | None) -> str:
    """Return ``value`` as shell text with a leading space; empty if ``value`` is None."""
    if value is None:
        return ""
    if isinstance(value, HostAddress):
        port = "" if value.port is None else f":{value.port}"
        return f' "${{hosts[{value.node}]}}"{port}'
    return f" {shell_word(value)}"


@frozen
class RouterProgram:
    """Router of an engine, and how its command line starts."""

    package: str
    """Python package of the router."""
    program: str
    """Words of the command."""
    flag: str
    """Flag that turns on two pools."""


@frozen
class Server:
    """API server of an engine."""

    node: int
    """Node rank of its host in its pool."""
    port: int
    bootstrap: int | None = None
    """Port at which other engines learn where this engine offers its KV cache; None if the engine
    has no such port."""


def router_script(
    router: RouterProgram,
    plans: tuple[ServingPlan, ServingPlan],
    servers: tuple[Sequence[Server], Sequence[Server]],
) -> Artifact:
    """Return ``router.sh`` for the ``plans`` and ``servers`` of the prefill and decode pools."""
    hosts = [server_addresses(plan) for plan in plans]
    own_names = all(
        set(found) <= {host.name for host in plan.placement.hosts}
        for plan, found in zip(plans, hosts, strict=True)
    )
    # The names of pods are known only in their cluster.
    place = "" if own_names else "in a pod of the cluster"
    values = {
        "package": router.package,
        "program": router.program,
        "flag": router.flag,
        "port": plans[0].problem.endpoint.router_port,
        "pools": [
            {
                "name": name,
                "variable": f"PARC_{name.upper()}_HOSTS",
                "hosts": found,
                "nodes": len(plan.placement.hosts),
                "servers": own,
            }
            for name, plan, found, own in zip(POOLS, plans, hosts, servers, strict=True)
        ],
    }
    text = render("serving", "router.sh.j2", values)
    return Artifact("router.sh", text, True, JobStart(hosts=1, beside=True, place=place))
