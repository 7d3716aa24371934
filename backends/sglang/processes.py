"""Processes of a plan: the SGLang servers of every host, with their GPUs and flags."""

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

RENDEZVOUS_PORTS = 8
"""Consecutive ports that an engine uses from its rendezvous port on (server_args.py, PortArgs)."""

BOOTSTRAP, BOOTSTRAP_PORT = "--disaggregation-bootstrap-port", 8998
"""Flag and default of the port at which decode engines learn where a prefill engine offers its KV
cache (server_args.py). Each prefill engine on a host needs another port."""


def plan_processes(plan: ServingPlan) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine."""
    return tuple(_build_process(plan, place) for place in hosts_of_engines(plan))


def rendezvous_port(plan: ServingPlan, slot: int) -> int:
    """Return the first rendezvous port of the engine with the index ``slot`` on its host."""
    return plan.problem.launch.master_port + slot * RENDEZVOUS_PORTS


def _build_process(plan: ServingPlan, place: EngineHost) -> EngineProcess:
    """Return the process that an engine runs on a host, with its GPUs, flags and port."""
    port = plan.problem.endpoint.port + place.slot
    # Only the engine's first host has an API server.
    own: tuple[Flag, ...] = (("--port", port),) if place.index_in_engine == 0 else ()
    if plan.problem.service.setup.pool == "prefill":
        own = (*own, (BOOTSTRAP, BOOTSTRAP_PORT + place.slot))
    return EngineProcess(
        node=place.node,
        replica=place.replica,
        devices=devices_of(plan, place),
        flags=(*own, *_rendezvous_flags(plan, place)),
        ports=(port,) if place.index_in_engine == 0 else (),
    )


def bootstrap_port(process: EngineProcess) -> int:
    """Return the port at which decode engines learn about the KV cache of a prefill engine."""
    return next(int(str(value)) for flag, value in process.flags if flag == BOOTSTRAP)


def _rendezvous_flags(plan: ServingPlan, place: EngineHost) -> tuple[Flag, ...]:
    """Return the flags that let the processes of an engine find each other."""
    port = rendezvous_port(plan, place.slot)
    if place.hosts > 1:
        return (
            ("--nnodes", place.hosts),
            ("--node-rank", place.index_in_engine),
            ("--dist-init-addr", HostAddress(place.head, port)),
        )
    # With attention data parallelism, SGLang otherwise derives internal ports from the API port, so
    # that engines with neighboring API ports would use the same ports (server_args.py,
    # PortArgs.init_new).
    return (("--dist-init-addr", f"127.0.0.1:{port}"),) if plan.layout.dp > 1 else ()
