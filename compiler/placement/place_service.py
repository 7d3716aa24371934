"""ServingLayout -> Placement: which host gets which engine, and which part of it.

An engine numbers its ranks itself and fills its hosts in order, so what is left is the order of
the hosts: those of one engine share a rack wherever a rack holds enough of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from parc.backends.base import Engine
from parc.compiler.ir import Cluster, Host, Placement, ServingLayout, ServingProblem
from parc.compiler.topology.arrange import NAMES, NodeNumbering, arrangements
from parc.compiler.topology.engine_hosts import engine_hosts, local_ranks

ORDER = "tp-cp-pp-dp"
"""vLLM's rank grid, fastest axis first (distributed/parallel_state.py)."""


def place_service(
    problem: ServingProblem, engine: Engine, layout: ServingLayout, kept: Sequence[Host] = ()
) -> Placement:
    """Engines on hosts. Ties between orders: fewest engines over two racks, then the spec's order.

    ``kept``: hosts by node rank that are not to be moved; taken as they are if they are as many
    as the layout needs.

    Raises:
        ValueError: the cluster has too few hosts for the layout, which no legal layout has.
    """
    mesh, gpus = engine.mesh(layout), problem.cluster.node.gpus
    per_node = local_ranks(layout, gpus)
    nodes = layout.gpus // per_node
    return Placement(
        order=ORDER,
        dense=mesh,
        expert=mesh,
        families=engine.families(problem, layout),
        hosts=tuple(kept) if len(kept) == nodes else _ordered(problem.cluster, layout, nodes),
        ranks_per_node=per_node,
        alternatives=(),
    )


def _ordered(cluster: Cluster, layout: ServingLayout, nodes: int) -> tuple[Host, ...]:
    """The order that cuts the fewest engines."""
    if nodes > cluster.nodes:
        raise ValueError(f"{layout.gpus} ranks need {nodes} hosts of {cluster.nodes}")
    each = engine_hosts(layout, cluster.node.gpus) or 1
    numbering = NodeNumbering(nodes=nodes, pp=1, pp_stride=0, atom=each)
    orders = [hosts for name, hosts in arrangements(cluster, numbering) if name != NAMES]
    return min(orders, key=lambda hosts: _cut(hosts, each))


def _cut(hosts: tuple[Host, ...], each: int) -> int:
    """Racks that engines touch beyond the first, all engines together."""
    starts = range(0, len(hosts), each)
    return sum(len({host.rack for host in hosts[start : start + each]}) - 1 for start in starts)
