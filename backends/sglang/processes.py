"""Processes of a plan: the SGLang servers of every host, with their GPUs and flags."""

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

RENDEZVOUS_PORTS = 8
"""Consecutive ports that an engine uses from its rendezvous port on (server_args.py, PortArgs)."""

BOOTSTRAP, BOOTSTRAP_PORT = "--disaggregation-bootstrap-port", 8998
"""Flag and default of the port at which decode engines learn where a prefill engine offers its KV
cache (server_args.py). Each prefill engine on a host needs another port."""


def plan_processes(plan: ServingPlan) -> tuple[EngineProcess, ...]:
    """Return the processes that all hosts run, sorted by host and then by engine."""
    return engine_processes(plan, _own_flags_and_ports)


def rendezvous_port(plan: ServingPlan, slot: int) -> int:
    """Return the first rendezvous port of the engine with the index ``slot`` on its host."""
    return plan.problem.launch.master_port + slot * RENDEZVOUS_PORTS


def _own_flags_and_ports(plan: ServingPlan, place: EngineHost) -> tuple[tuple[Flag, ...], Ports]:
    """Return the flags and API ports of the process that an engine runs on a host."""
    port = plan.problem.endpoint.port + place.slot
    # Only the engine's first host has an API server.
    own: tuple[Flag, ...] = (("--port", port),) if place.index_in_engine == 0 else ()
    if plan.problem.service.setup.pool == "prefill":
        own = (*own, (BOOTSTRAP, BOOTSTRAP_PORT + place.slot))
    ports = (port,) if place.index_in_engine == 0 else ()
    return (*own, *_rendezvous_flags(plan, place)), ports


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
