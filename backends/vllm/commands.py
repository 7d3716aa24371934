"""The processes of a plan: which host runs which `vllm serve`, on which GPUs, with which flags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parc.backends.vllm.defaults import DP_RPC_PORT, SUPERVISOR_PORT
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.engine_hosts import engine_hosts


@dataclass(frozen=True, slots=True)
class Address:
    """The name of a host as the value of a flag; known when the job starts at the latest."""

    node: int


Flag = tuple[str, str | int | Address | None]
"""A flag and its value; None: the flag alone."""


@dataclass(frozen=True, slots=True)
class Process:
    """One `vllm serve` on one host."""

    node: int
    """Node rank of its host."""
    replica: int
    devices: tuple[int, ...]
    """GPUs of the host that it may see."""
    flags: tuple[Flag, ...]
    """What differs from host to host."""
    ports: tuple[int, ...]
    """API servers that it starts; empty: none, it only computes."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one process of an engine sits."""

    replica: int
    node: int
    """Of all hosts."""
    head: int
    """Node rank of the engine's first host."""
    hosts: int
    """Hosts of the engine."""
    slot: int
    """Which engine of its host it is, where a host has several."""

    @property
    def part(self) -> int:
        """Which host of the engine it is."""
        return self.node - self.head


def processes(plan: ServingPlan) -> tuple[Process, ...]:
    """All processes, host by host; of one host engine by engine."""
    seats = sorted(_seats(plan), key=lambda seat: (seat.node, seat.slot))
    return tuple(_process(plan, seat) for seat in seats)


def _seats(plan: ServingPlan) -> Iterator[Seat]:
    layout = plan.layout
    hosts = engine_hosts(layout, plan.problem.cluster.node.gpus) or 1
    shared = max(plan.placement.ranks_per_node // layout.engine_gpus, 1)
    for replica in range(layout.replicas):
        head = replica // shared if hosts == 1 else replica * hosts
        for part in range(hosts):
            yield Seat(replica, head + part, head, hosts, replica % shared)


def _process(plan: ServingPlan, seat: Seat) -> Process:
    layout, endpoint = plan.layout, plan.problem.endpoint
    local = layout.engine_gpus // seat.hosts
    first = seat.slot * local
    flags = _flags(plan, seat)
    names = [name for name, _ in flags]
    servers = layout.dp if "--data-parallel-multi-port-external-lb" in names else 1
    if "--data-parallel-size-local" in names and servers > 1:
        servers = layout.dp // seat.hosts
    start = endpoint.port + seat.slot * servers
    ports = () if "--headless" in names else tuple(range(start, start + servers))
    if ports:
        flags = (("--port", ports[0]), *flags)
    return Process(
        node=seat.node,
        replica=seat.replica,
        devices=tuple(range(first, first + local)),
        flags=flags,
        ports=ports,
    )


def _flags(plan: ServingPlan, seat: Seat) -> tuple[Flag, ...]:
    """Flags beyond those that all processes share."""
    layout = plan.layout
    if seat.hosts == 1:
        return _one_host(plan, seat)
    if layout.dp == 1 or layout.rank_gpus > layout.engine_gpus // seat.hosts:
        return _spanning(plan, seat)
    return _whole_ranks(plan, seat)


def _one_host(plan: ServingPlan, seat: Seat) -> tuple[Flag, ...]:
    dp = plan.layout.dp
    if dp == 1:
        return ()
    rpc: Flag = ("--data-parallel-rpc-port", DP_RPC_PORT + seat.slot)
    if plan.problem.endpoint.load_balancer != "external":
        return (rpc,)
    return (*_supervised(dp, seat), rpc)


def _supervised(local: int, seat: Seat) -> tuple[Flag, ...]:
    """One API server for every data-parallel rank of the host, under one supervisor."""
    return (
        ("--data-parallel-multi-port-external-lb", None),
        ("--data-parallel-size-local", local),
        ("--data-parallel-supervisor-port", SUPERVISOR_PORT + seat.slot),
    )


def _spanning(plan: ServingPlan, seat: Seat) -> tuple[Flag, ...]:
    """A data-parallel rank over several hosts: vLLM counts ranks through all of them."""
    layout = plan.layout
    flags: list[Flag] = [
        ("--nnodes", seat.hosts),
        ("--node-rank", seat.part),
        ("--master-addr", Address(seat.head)),
        ("--master-port", plan.problem.launch.master_port),
    ]
    each = seat.hosts // layout.dp
    serves = seat.part == 0
    if layout.dp > 1:
        flags += [
            ("--data-parallel-address", Address(seat.head)),
            ("--data-parallel-rpc-port", DP_RPC_PORT),
        ]
    if layout.dp > 1 and plan.problem.endpoint.load_balancer == "external":
        flags.append(("--data-parallel-external-lb", None))
        serves = seat.part % each == 0
    return tuple(flags) if serves else (*flags, ("--headless", None))


def _whole_ranks(plan: ServingPlan, seat: Seat) -> tuple[Flag, ...]:
    """Whole data-parallel ranks on every host."""
    local = plan.layout.dp // seat.hosts
    start = seat.part * local
    meet: tuple[Flag, ...] = (
        ("--data-parallel-address", Address(seat.head)),
        ("--data-parallel-rpc-port", DP_RPC_PORT),
    )
    balancer = plan.problem.endpoint.load_balancer
    if balancer == "internal":
        flags = (("--data-parallel-size-local", local), *meet)
        if seat.part == 0:
            return flags
        return (*flags, ("--data-parallel-start-rank", start), ("--headless", None))
    if local == 1:  # one rank a host: hybrid and external are the same
        return (("--data-parallel-rank", seat.part), *meet)
    if balancer == "hybrid":
        own: tuple[Flag, ...] = (
            ("--data-parallel-hybrid-lb", None),
            ("--data-parallel-size-local", local),
        )
    else:
        own = _supervised(local, seat)
    return (*own, ("--data-parallel-start-rank", start), *meet)
