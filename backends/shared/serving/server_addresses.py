"""Addresses of the hosts of API servers, as a router in front of the engines reaches them."""

from __future__ import annotations

from parc.backends.base import ServerNaming
from parc.backends.registry import backend_declaration, serving_backend
from parc.compiler.ir import ServingPlan


def server_addresses(plan: ServingPlan) -> tuple[str, ...]:
    """Return the address of each host by node rank; empty if it is unknown until the start.

    Without a launcher that gives the servers names of its own, these are the names of the hosts. If
    the plan can also be started with another launcher, the names of the hosts are used too.
    """
    launchers = [
        serving_backend(name)
        for name in plan.problem.emit
        if backend_declaration(name).needs_framework
    ]
    naming = [one for one in launchers if isinstance(one, ServerNaming)]
    if naming and len(naming) == len(launchers):
        return naming[0].server_addresses(plan)
    if plan.problem.cluster.named:
        return tuple(host.name for host in plan.placement.hosts)
    return ()
