"""Processes of a plan: the TensorRT-LLM servers of every host, with their GPUs and flags."""

from __future__ import annotations

from parc.backends.shared.serving.serve_script import (
    EngineHost,
    EngineProcess,
    Flag,
    HostAddress,
    devices_of,
    hosts_of_engines,
)
from parc.compiler.ir import ServingPlan


def plan_processes(plan: ServingPlan) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine."""
    return tuple(_build_process(plan, place) for place in hosts_of_engines(plan))


def _build_process(plan: ServingPlan, place: EngineHost) -> EngineProcess:
    """Return the process that an engine runs on a host, with its GPUs, flags and port."""
    port = plan.problem.endpoint.port + place.slot
    # Only the engine's first host has an API server.
    own: tuple[Flag, ...] = (("--port", port),) if place.index_in_engine == 0 else ()
    # start.sh reads these flags: MPI on the first host starts the ranks of all hosts.
    mpi: tuple[Flag, ...] = (
        ("--nnodes", place.hosts),
        ("--node_rank", place.index_in_engine),
        ("--head", HostAddress(place.head)),
    )
    return EngineProcess(
        node=place.node,
        replica=place.replica,
        devices=devices_of(plan, place),
        flags=(*own, *mpi) if place.hosts > 1 else own,
        ports=(port,) if own else (),
    )
