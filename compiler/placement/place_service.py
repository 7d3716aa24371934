"""Placement of a serving layout: the hosts of each engine, and the ranks on each host.

An engine numbers its ranks itself and fills its hosts one after another, so placement only chooses
the order of the hosts: an engine gets hosts of one rack if a rack has enough of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from parc.backends.base import Engine
from parc.compiler.ir import Cluster, Host, LockedPlan, Placement, ServingLayout, ServingProblem
from parc.compiler.topology.arrange_hosts import (
    NAMES,
    NodeNumbering,
    engine_hosts,
    named_host_orders,
    serving_ranks_per_host,
)


def place_service(
    problem: ServingProblem, engine: Engine, layout: ServingLayout, kept: Sequence[Host] = ()
) -> Placement:
    """Return the placement in which the engines span as few racks as possible.

    If several orders of hosts are equally good, the order in the spec is used.

    Args:
        problem: cluster and model.
        engine: source of the mesh and of the process groups.
        layout: parallel sizes of an engine and number of replicas.
        kept: hosts by node rank, if the hosts are already known; ignored if the number of hosts
            does not match the layout.

    Raises:
        ValueError: the cluster has too few hosts; the rules exclude such layouts.
    """
    mesh, gpus = engine.mesh(layout), problem.cluster.node.gpus
    per_node = serving_ranks_per_host(layout, gpus)
    nodes = layout.gpus // per_node
    return Placement(
        order="-".join(axis.name for axis in mesh.axes if axis.name != "replica"),
        dense=mesh,
        expert=mesh,
        families=engine.group_families(problem, layout),
        hosts=tuple(kept) if len(kept) == nodes else _choose_hosts(problem.cluster, layout, nodes),
        ranks_per_node=per_node,
        alternatives=(),
    )


def reusable_hosts(
    problem: ServingProblem, layout: ServingLayout, locked: LockedPlan | None
) -> tuple[Host, ...]:
    """Return the hosts of the lock file by node rank, to be used again.

    The result is empty if there is no lock, if the lock has a different layout, or if one of its
    hosts is no longer available.
    """
    if locked is None or locked.layout != layout:
        return ()
    available = {host.name: host for host in problem.cluster.hosts}
    if not available.keys() >= set(locked.hosts):
        return ()
    return tuple(available[name] for name in locked.hosts)


def _choose_hosts(cluster: Cluster, layout: ServingLayout, nodes: int) -> tuple[Host, ...]:
    """Return the hosts by node rank, ordered such that engines span as few racks as possible."""
    if nodes > cluster.nodes:
        raise ValueError(f"{layout.gpus} ranks need {nodes} hosts; the cluster has {cluster.nodes}")
    per_engine = engine_hosts(layout, cluster.node.gpus) or 1
    numbering = NodeNumbering(nodes=nodes, pp=1, pp_stride=0, hosts_together=per_engine)
    # Without the name order, because ties go to the order of the hosts in the spec.
    orders = [hosts for name, hosts in named_host_orders(cluster, numbering) if name != NAMES]
    return min(orders, key=lambda hosts: _additional_racks(hosts, per_engine))


def _additional_racks(hosts: tuple[Host, ...], per_engine: int) -> int:
    """Return the number of racks per engine beyond the first one, summed over all engines."""
    starts = range(0, len(hosts), per_engine)
    return sum(
        len({host.rack for host in hosts[start : start + per_engine]}) - 1 for start in starts
    )
