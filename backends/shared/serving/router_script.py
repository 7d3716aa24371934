"""``router.sh``, the emitted script with the router between the two pools of a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parc.backends.shared.render import render
from parc.compiler.ir import Artifact, ServingPlan


@dataclass(frozen=True, slots=True)
class RouterProgram:
    """Router of an engine, and how its command line starts."""

    package: str
    """Python package of the router."""
    program: str
    """Words of the command."""
    flag: str
    """Flag that turns on two pools."""


@dataclass(frozen=True, slots=True)
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
    values = {
        "package": router.package,
        "program": router.program,
        "flag": router.flag,
        "port": plans[0].problem.endpoint.router_port,
        "pools": [
            {
                "name": name,
                "variable": f"PARC_{name.upper()}_HOSTS",
                "hosts": [host.name for host in plan.placement.hosts]
                if plan.problem.cluster.named
                else [],
                "nodes": len(plan.placement.hosts),
                "servers": own,
            }
            for name, plan, own in zip(("prefill", "decode"), plans, servers, strict=True)
        ],
    }
    return Artifact("router.sh", render("serving", "router.sh.j2", values), True)
