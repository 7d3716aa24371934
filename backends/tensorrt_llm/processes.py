"""Processes of a plan: the TensorRT-LLM servers of every host, with their GPUs and flags."""

from __future__ import annotations

from parc.backends.shared.serving.serve_script import (
    EngineHost,
    EngineProcess,
    Flag,
    HostAddress,
    Ports,
    engine_processes,
)
from parc.compiler.ir import ServingPlan


def plan_processes(plan: ServingPlan) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine."""
    return engine_processes(plan, _own_flags_and_ports)


def _own_flags_and_ports(plan: ServingPlan, place: EngineHost) -> tuple[tuple[Flag, ...], Ports]:
    """Return the flags and API ports of the process that an engine runs on a host."""
    port = plan.problem.endpoint.port + place.slot
    # Only the engine's first host has an API server.
    own: tuple[Flag, ...] = (("--port", port),) if place.index_in_engine == 0 else ()
    # start.sh reads these flags: MPI on the first host starts the ranks of all hosts.
    mpi: tuple[Flag, ...] = (
        ("--nnodes", place.hosts),
        ("--node_rank", place.index_in_engine),
        ("--head", HostAddress(place.head)),
    )
    return (*own, *mpi) if place.hosts > 1 else own, (port,) if own else ()
