"""Placement of a layout: the host of every node rank, and the distance from the best order.

Ranks are contiguous within a host (rank = node rank x ranks per node + local rank), and the
framework determines the mesh coordinates of every rank, so placement can only choose the order of
the hosts. docs/placement.md describes the objective, the search and the bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from parc.compiler.ir import (
    Cluster,
    GroupFamily,
    Host,
    Layout,
    Mesh,
    Placement,
    PlacementAlternative,
    PlacementProof,
    Problem,
    Rack,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import HEURISTIC_GAP, relative_excess
from parc.compiler.placement.build_placement_problem import (
    TimedTraffic,
    build_placement_problem,
    placement_tie_seconds,
)
from parc.compiler.placement.order.equivalent_hosts import HostSites
from parc.compiler.placement.order.placement_problem import PlacementCost, PlacementProblem
from parc.compiler.placement.order.search_orders import (
    ALL_ORDERS,
    BOXES,
    SWAPS,
    THOROUGH,
    EvaluatedOrder,
    SearchBudget,
    box_sizes,
    meets_byte_bounds,
    search_orders,
)
from parc.compiler.topology.arrange_hosts import (
    NAMES,
    NodeNumbering,
    gpu_order,
    hosts_by_name,
    named_host_orders,
)
from parc.compiler.topology.node_groups import ranks_per_node


class RankOrder(Protocol):
    """Protocol for the parts of a framework that placement needs: meshes and process groups."""

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return the dense and the expert mesh of ``layout``, in this order."""

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of process groups that the framework creates (tp, dp, ep, ...)."""


@frozen
class _HostOrder:
    """Named order of hosts with its cost."""

    name: str
    hosts: tuple[Host, ...]
    """Host of every node rank."""
    cost: PlacementCost
    moved: int
    """Number of hosts whose node rank differs from the name order."""

    def cost_sort_key(self, floor_seconds: float) -> tuple[tuple[float, ...], int]:
        """Return the sort key of this order of hosts: its cost, then the number of moved hosts.

        The order with the smallest key is chosen. Exposed times up to ``floor_seconds`` count as
        equal.
        """
        return (self.cost.cost_sort_key(floor_seconds), self.moved)


def place_ranks(
    problem: Problem,
    framework: RankOrder,
    layout: Layout,
    estimate: TimedTraffic,
    budget: SearchBudget = THOROUGH,
) -> Placement:
    """Return the placement of ``layout`` on the best order of hosts that the search finds.

    Orders of hosts are compared by these criteria. A criterion counts only if all criteria before
    it are equal:

    - exposed seconds; all orders within the tolerance of the best order count as equal,
    - weighted bytes over the busiest uplink; if the placement policy lets some traffic cross racks
      first, the bytes of this traffic have almost no weight,
    - weighted bytes over all uplinks,
    - exposed seconds without the tolerance,
    - number of hosts that are not in name order,
    - position among the named orders of ``topology/arrange_hosts.py``.

    If ``layout.placement`` of the spec is not ``auto``, the first criterion is dropped. If it is
    ``names``, the name order is always used. The order of hosts in the spec has no effect.

    Raises:
        ValueError: the cluster has too few hosts for the layout. A valid layout never needs more.
    """
    cluster = problem.cluster
    meshes = framework.device_meshes(layout)
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    nodes = layout.world // per_node
    if nodes > cluster.nodes:
        raise ValueError(
            f"{layout.world} ranks need {nodes} hosts; the cluster has {cluster.nodes}"
        )
    policy = problem.pins.placement or "auto"
    links = build_placement_problem(cluster, meshes, layout, estimate, policy)
    orders = _evaluate_named_orders(cluster, links, _number_nodes(cluster, meshes, per_node))
    named = [_order_of_sites(one, links.sites) for one in orders]
    result = search_orders(links, named, budget)
    orders = _best_order_per_name(orders, result.floor_seconds)
    if result.better is not None:
        orders.append(_assign_hosts(cluster, links, result.better))
    allowed = [one for one in orders if one.name == NAMES] if policy == "names" else orders
    chosen = min(allowed, key=lambda one: one.cost_sort_key(result.floor_seconds))
    return Placement(
        order=layout.order,
        dense=meshes[0],
        expert=meshes[1],
        families=framework.group_families(layout),
        hosts=chosen.hosts,
        ranks_per_node=per_node,
        alternatives=tuple(_placement_alternative(one, one is chosen) for one in orders),
        proof=build_proof(chosen.cost, result.least, placement_tie_seconds(estimate)),
        devices=gpu_order(cluster.node, meshes, per_node),
    )


def _placement_alternative(order: _HostOrder, chosen: bool) -> PlacementAlternative:
    """Return the row for one order of hosts in the table of alternatives of the plan."""
    return PlacementAlternative(
        order.name, order.cost.busiest_bytes, order.cost.exposed_seconds, chosen=chosen
    )


def _evaluate_named_orders(
    cluster: Cluster, problem: PlacementProblem, numbering: NodeNumbering
) -> list[_HostOrder]:
    """Return all orders of hosts that have a name, such as "rack by rack", with their cost.

    The same name might appear several times, with different orders.
    """
    names = hosts_by_name(cluster)[: numbering.nodes]
    found = []
    # In tree order, so that the order of hosts in the spec cannot decide between equal orders.
    for name, hosts in named_host_orders(_cluster_in_host_order(cluster, problem.hosts), numbering):
        place = [problem.sites.site_by_host[host.name] for host in hosts]
        found.append(
            _HostOrder(name, hosts, problem.cost(place), _count_moved_node_ranks(hosts, names))
        )
    return found


def _best_order_per_name(orders: list[_HostOrder], floor_seconds: float) -> list[_HostOrder]:
    """Return the best order of hosts per name, in the order in which the names first appear."""
    best: dict[str, _HostOrder] = {}
    for one in orders:
        if one.name not in best or one.cost_sort_key(floor_seconds) < best[one.name].cost_sort_key(
            floor_seconds
        ):
            best[one.name] = one
    return list(best.values())


def _cluster_in_host_order(cluster: Cluster, hosts: Sequence[Host]) -> Cluster:
    """Return ``cluster`` with its racks and hosts in the order of ``hosts``.

    ``hosts`` must list the hosts of a switch one after another.
    """
    racks: dict[str, list[Host]] = {}
    for host in hosts:
        racks.setdefault(host.rack, []).append(host)
    return replace(cluster, racks=tuple(Rack(name, tuple(rack)) for name, rack in racks.items()))


def _count_moved_node_ranks(hosts: Sequence[Host], names: Sequence[Host]) -> int:
    """Return the number of node ranks whose host differs between ``hosts`` and ``names``."""
    return sum(host.name != other.name for host, other in zip(hosts, names, strict=True))


def _order_of_sites(order: _HostOrder, sites: HostSites) -> EvaluatedOrder:
    """Return the order of hosts ``order`` as an order of sites (sets of equivalent hosts)."""
    place = tuple(sites.site_by_host[host.name] for host in order.hosts)
    return EvaluatedOrder(order.name, (), place, order.cost)


def _assign_hosts(cluster: Cluster, problem: PlacementProblem, order: EvaluatedOrder) -> _HostOrder:
    """Return the order of hosts in which each node rank gets a host of its site in ``order``.

    A site is a set of equivalent hosts. If the host of a node rank in the name order belongs to its
    site, the node rank keeps this host. All other node ranks get the remaining hosts of their site,
    sorted by name.
    """
    names = hosts_by_name(cluster)[: len(order.place)]
    sites = problem.sites
    free = {site: dict.fromkeys(hosts) for site, hosts in enumerate(sites.hosts)}
    assigned: dict[int, Host] = {}
    for node, host in enumerate(names):
        site = order.place[node]
        if sites.site_by_host[host.name] == site:
            assigned[node] = host
            del free[site][host]
    # Reversed, so that pop() returns the hosts of a site by name.
    queues = defaultdict(list, {site: list(hosts)[::-1] for site, hosts in free.items()})
    for node, site in enumerate(order.place):
        if node not in assigned:
            assigned[node] = queues[site].pop()
    hosts = tuple(assigned[node] for node in range(len(names)))
    return _HostOrder(
        _describe_order(order), hosts, order.cost, _count_moved_node_ranks(hosts, names)
    )


def _describe_order(order: EvaluatedOrder) -> str:
    """Return the name of an order of hosts for reports, such as ``boxes of 4 in 16 hosts``.

    A box is a set of node ranks that share a switch. In the example, boxes of 4 node ranks form
    boxes of 16. If swaps improved the order, ``, improved by swaps`` is appended.
    """
    sizes = [str(size) for size in box_sizes(order.nested) if size > 1]
    boxes = f"boxes of {' in '.join(sizes)} hosts" if sizes else "tree order"
    return {BOXES: boxes, SWAPS: f"{boxes}, improved by swaps", ALL_ORDERS: "best of all"}[
        order.method
    ]


def build_proof(cost: PlacementCost, least: PlacementCost, tie_seconds: float) -> PlacementProof:
    """Return the proof of how close ``cost`` is to the lower bounds ``least``.

    The quality of the proof is optimal (no gap), bounded (small gap of the exposed time) or
    heuristic.
    """
    proof = PlacementProof(
        quality="heuristic",
        exposed_seconds=cost.exposed_seconds,
        # A bound may exceed the cost by a rounding error, but never by more.
        bound_seconds=min(least.exposed_seconds, cost.exposed_seconds),
        tie_seconds=tie_seconds,
        uplink_bytes=cost.busiest_bytes,
        total_bytes=cost.total_bytes,
        bytes_gap=_gap_to_byte_bounds(cost, least),
    )
    if not proof.exposed_gap and meets_byte_bounds(cost, least):
        return replace(proof, quality="optimal")
    return replace(proof, quality="bounded") if proof.exposed_gap <= HEURISTIC_GAP else proof


def _gap_to_byte_bounds(cost: PlacementCost, least: PlacementCost) -> float | None:
    """Return by how much the weighted bytes exceed their lower bounds, as a fraction of the bound.

    Returns None if a bound is 0 bytes and the order sends some bytes.
    """
    busiest = relative_excess(cost.busiest_weighted, least.busiest_weighted)
    found = busiest or relative_excess(cost.total_weighted, least.total_weighted)
    return None if found == inf else found


def _number_nodes(cluster: Cluster, meshes: tuple[Mesh, Mesh], per_node: int) -> NodeNumbering:
    """Return the numbering of the node ranks of a job with ``per_node`` ranks per host."""
    dense = meshes[0]
    pipeline = dense.axis_by_name("pp")
    # If not aligned, a host has ranks of several stages, so stages cannot be placed separately.
    aligned = pipeline.stride % per_node == 0
    return NodeNumbering(
        nodes=dense.world // per_node,
        pp=pipeline.size,
        pp_stride=pipeline.stride // per_node if aligned else 0,
        hosts_together=_hosts_kept_together(cluster, meshes, per_node),
    )


def _hosts_kept_together(cluster: Cluster, meshes: tuple[Mesh, Mesh], per_node: int) -> int:
    """Return the number of consecutive hosts that named orders keep together.

    These hosts contain the largest block of tensor, context or expert parallel ranks that fits into
    one NVLink domain. If NVLink domains end at the host, the block must fit into one rack. The
    result is 1 if no block fits.
    """
    dense, expert = meshes
    tensor = dense.axis_by_name("tp").size
    experts = expert.axis_by_name("tp").size * expert.axis_by_name("ep").size
    blocks = (tensor, tensor * dense.group_size("cp"), experts)
    whole = [block // per_node for block in blocks if block % per_node == 0]
    domain = max(1, cluster.node.nvlink_domain // cluster.node.gpus)
    rack = max(len(rack.hosts) for rack in cluster.racks)
    largest = domain if domain > 1 else rack
    return max((hosts for hosts in whole if hosts <= largest), default=1)
