"""Processes of a plan: the ``vllm serve`` commands of every host, with their GPUs and flags."""

from __future__ import annotations

from parc.backends.shared.serving.serve_script import (
    EngineHost,
    EngineProcess,
    Flag,
    HostAddress,
    Ports,
    engine_processes,
)
from parc.backends.vllm.defaults import DP_RPC_PORT, SUPERVISOR_PORT
from parc.compiler.ir import ServingPlan


def plan_processes(plan: ServingPlan) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine."""
    return engine_processes(plan, _own_flags_and_ports)


def _own_flags_and_ports(plan: ServingPlan, place: EngineHost) -> tuple[tuple[Flag, ...], Ports]:
    """Return the flags and API ports of the process that an engine runs on a host."""
    layout, endpoint = plan.layout, plan.problem.endpoint
    flags = _process_flags(plan, place)
    names = [name for name, _ in flags]
    # The supervisor starts one API server per data-parallel rank, on consecutive ports.
    servers = layout.dp if "--data-parallel-multi-port-external-lb" in names else 1
    if "--data-parallel-size-local" in names and servers > 1:
        servers = layout.dp // place.hosts
    start = endpoint.port + place.slot * servers
    ports = () if "--headless" in names else tuple(range(start, start + servers))
    if ports:
        flags = (("--port", ports[0]), *flags)
    return flags, ports


def _process_flags(plan: ServingPlan, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags of the process at ``place`` that other processes do not share."""
    layout = plan.layout
    if place.hosts == 1:
        return _single_host_flags(plan, place)
    if layout.dp == 1 or layout.rank_gpus > layout.engine_gpus // place.hosts:
        return _spanning_rank_flags(plan, place)
    return _unsplit_rank_flags(plan, place)


def _single_host_flags(plan: ServingPlan, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags of the process of an engine that has all its ranks on one host."""
    dp = plan.layout.dp
    if dp == 1:
        return ()
    # Engines on one host need different ports: two engines with one rpc port hang.
    rpc: Flag = ("--data-parallel-rpc-port", DP_RPC_PORT + place.slot)
    if plan.problem.endpoint.load_balancer != "external":
        return (rpc,)
    return (*_supervisor_process_flags(dp, place), rpc)


def _supervisor_process_flags(local: int, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags that make a supervisor start one API server per data-parallel rank.

    ``local`` is the number of data-parallel ranks on the host.
    """
    return (
        ("--data-parallel-multi-port-external-lb", None),
        ("--data-parallel-size-local", local),
        ("--data-parallel-supervisor-port", SUPERVISOR_PORT + place.slot),
    )


def _spanning_rank_flags(plan: ServingPlan, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags of a process that runs a part of a data-parallel rank.

    Such a rank spans several hosts, so vLLM needs the index of the host within the engine.
    """
    layout = plan.layout
    flags: list[Flag] = [
        ("--nnodes", place.hosts),
        # Host k of the engine runs ranks k L to (k + 1) L - 1 (v1/executor/multiproc_executor.py).
        ("--node-rank", place.index_in_engine),
        ("--master-addr", HostAddress(place.head)),
        ("--master-port", plan.problem.launch.master_port),
    ]
    each = place.hosts // layout.dp
    serves = place.index_in_engine == 0
    if layout.dp > 1:
        flags += [
            ("--data-parallel-address", HostAddress(place.head)),
            ("--data-parallel-rpc-port", DP_RPC_PORT),
        ]
    if layout.dp > 1 and plan.problem.endpoint.load_balancer == "external":
        flags.append(("--data-parallel-external-lb", None))
        serves = place.index_in_engine % each == 0
    return tuple(flags) if serves else (*flags, ("--headless", None))


def _unsplit_rank_flags(plan: ServingPlan, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags of a process that runs one or more complete data-parallel ranks.

    The engine has several hosts.
    """
    local = plan.layout.dp // place.hosts
    start = place.index_in_engine * local
    meet: tuple[Flag, ...] = (
        ("--data-parallel-address", HostAddress(place.head)),
        ("--data-parallel-rpc-port", DP_RPC_PORT),
    )
    balancer = plan.problem.endpoint.load_balancer
    if balancer == "internal":
        flags = (("--data-parallel-size-local", local), *meet)
        if place.index_in_engine == 0:
            return flags
        return (*flags, ("--data-parallel-start-rank", start), ("--headless", None))
    if local == 1:  # with one rank per host, hybrid and external are the same
        return (("--data-parallel-rank", place.index_in_engine), *meet)
    if balancer == "hybrid":
        own: tuple[Flag, ...] = (
            ("--data-parallel-hybrid-lb", None),
            ("--data-parallel-size-local", local),
        )
    else:
        own = _supervisor_process_flags(local, place)
    return (*own, ("--data-parallel-start-rank", start), *meet)
