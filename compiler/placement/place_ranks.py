"""Layout -> Placement: which host gets which node rank, and how good that is.

Ranks are contiguous in a host (rank = node rank x ranks per node + local rank) and the framework
fixes what every rank is, so the only freedom is the order of the hosts. docs/placement.md states
the objective, the search and the bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from parc.compiler.ir import (
    Cluster,
    Crossing,
    Estimate,
    GroupFamily,
    Host,
    Layout,
    Mesh,
    Placement,
    Problem,
    Proof,
    Rack,
)
from parc.compiler.ir.placement import HEURISTIC_GAP
from parc.compiler.placement.build_placement_problem import Posed, pose_placement
from parc.compiler.placement.order.choose import (
    THOROUGH,
    Effort,
    Found,
    box_sizes,
    choose,
    meets_bytes,
)
from parc.compiler.placement.order.price import Cost
from parc.compiler.placement.order.sites import Sites
from parc.compiler.topology.arrange import Shape, arrangements, name_order
from parc.compiler.topology.gpu_order import gpu_order
from parc.compiler.topology.node_groups import ranks_per_node


class RankOrder(Protocol):
    """The part of a framework that places ranks."""

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Dense and expert mesh of ``layout``."""

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Groups that the framework creates."""


@dataclass(frozen=True, slots=True)
class _Priced:
    """One order of hosts with its cost."""

    name: str
    hosts: tuple[Host, ...]
    cost: Cost
    moved: int
    """Hosts whose node rank differs from the name order."""

    def order(self, floor_seconds: float) -> tuple[tuple[float, ...], int]:
        """What is chosen first: the cost where ties end at ``floor_seconds``, then hosts moved."""
        return (self.cost.rank(floor_seconds), self.moved)


def place_ranks(
    problem: Problem,
    framework: RankOrder,
    layout: Layout,
    estimate: Estimate,
    effort: Effort = THOROUGH,
) -> Placement:
    """Choose the order of hosts with the fewest bytes over uplinks among those that expose least.

    Total order: exposed seconds over the fullest link of every phase (NICs of a host, uplinks of
    leaf, pod and spine) beyond the least and the tie, then bytes over the busiest uplink, then
    over all uplinks, exposed seconds, fewer hosts moved from the name order, and the order in
    which ``topology/arrange.py`` names them. So the name order is taken wherever nothing costs
    less. The order of hosts in the spec does not matter.

    Raises:
        ValueError: the cluster has too few hosts for the layout, which no legal layout has.
    """
    cluster = problem.cluster
    meshes = framework.meshes(layout)
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    nodes = layout.world // per_node
    if nodes > cluster.nodes:
        raise ValueError(f"{layout.world} ranks need {nodes} hosts of {cluster.nodes}")
    posed = pose_placement(cluster, meshes, per_node, layout, estimate)
    priced = _arranged(cluster, posed, _shape(cluster, meshes, per_node))
    named = [_found(one, posed.question.sites) for one in priced]
    choice = choose(posed.question, posed.bound, named, effort)
    priced = _once(priced, choice.floor_seconds)
    if choice.better is not None:
        priced.append(_seated(cluster, posed, choice.better))
    chosen = min(priced, key=lambda one: one.order(choice.floor_seconds))
    return Placement(
        order=layout.order,
        dense=meshes[0],
        expert=meshes[1],
        families=framework.families(layout),
        hosts=chosen.hosts,
        ranks_per_node=per_node,
        alternatives=tuple(
            Crossing(
                one.name, one.cost.busiest_bytes, one.cost.exposed_seconds, chosen=one is chosen
            )
            for one in priced
        ),
        proof=proof_of(chosen.cost, choice.least, posed.question.tie_seconds),
        devices=gpu_order(cluster.node, meshes, per_node),
    )


def _arranged(cluster: Cluster, posed: Posed, shape: Shape) -> list[_Priced]:
    """The orders that have names; names may come twice."""
    names = name_order(cluster)[: shape.nodes]
    found = []
    for name, hosts in arrangements(_canonical(cluster, posed.hosts), shape):
        place = [posed.question.sites.site_of[host.name] for host in hosts]
        found.append(_Priced(name, hosts, posed.question.cost(place), _moved(hosts, names)))
    return found


def _once(priced: list[_Priced], floor_seconds: float) -> list[_Priced]:
    """The best order of every name."""
    best: dict[str, _Priced] = {}
    for one in priced:
        if one.name not in best or one.order(floor_seconds) < best[one.name].order(floor_seconds):
            best[one.name] = one
    return list(best.values())


def _canonical(cluster: Cluster, hosts: Sequence[Host]) -> Cluster:
    """The same cluster, its racks and hosts in the order of the tree."""
    racks: dict[str, list[Host]] = {}
    for host in hosts:
        racks.setdefault(host.rack, []).append(host)
    return replace(cluster, racks=tuple(Rack(name, tuple(rack)) for name, rack in racks.items()))


def _moved(hosts: Sequence[Host], names: Sequence[Host]) -> int:
    return sum(host.name != other.name for host, other in zip(hosts, names, strict=True))


def _found(one: _Priced, sites: Sites) -> Found:
    return Found(one.name, (), tuple(sites.site_of[host.name] for host in one.hosts), one.cost)


def _seated(cluster: Cluster, posed: Posed, found: Found) -> _Priced:
    """Hosts for the sites of ``found``; a host keeps its place in the name order where it can."""
    names = name_order(cluster)[: len(found.place)]
    sites = posed.question.sites
    free = {site: dict.fromkeys(hosts) for site, hosts in enumerate(sites.hosts)}
    seats: dict[int, Host] = {}
    for node, host in enumerate(names):
        site = found.place[node]
        if sites.site_of[host.name] == site:
            seats[node] = host
            del free[site][host]
    queues = defaultdict(list, {site: list(hosts)[::-1] for site, hosts in free.items()})
    for node, site in enumerate(found.place):
        if node not in seats:
            seats[node] = queues[site].pop()
    hosts = tuple(seats[node] for node in range(len(names)))
    return _Priced(_name(found), hosts, found.cost, _moved(hosts, names))


def _name(found: Found) -> str:
    """``boxes of 4 in 16 hosts``: the narrowest box first; after swaps, ``..., swapped``."""
    sizes = [str(size) for size in box_sizes(found.nested) if size > 1]
    boxes = f"boxes of {' in '.join(sizes)} hosts" if sizes else "tree order"
    return {"boxes": boxes, "swaps": f"{boxes}, swapped", "every order": "best of all"}[found.way]


def proof_of(cost: Cost, least: Cost, tie_seconds: float) -> Proof:
    """What ``least``, which no order can beat, says about an order of ``cost``."""
    proof = Proof(
        quality="heuristic",
        exposed_seconds=cost.exposed_seconds,
        bound_seconds=min(least.exposed_seconds, cost.exposed_seconds),
        tie_seconds=tie_seconds,
        uplink_bytes=cost.busiest_bytes,
        bound_uplink_bytes=min(least.busiest_bytes, cost.busiest_bytes),
        total_bytes=cost.total_bytes,
        bound_total_bytes=min(least.total_bytes, cost.total_bytes),
    )
    if not proof.gap and meets_bytes(cost, least):
        return replace(proof, quality="optimal")
    return replace(proof, quality="bounded") if proof.gap <= HEURISTIC_GAP else proof


def _shape(cluster: Cluster, meshes: tuple[Mesh, Mesh], per_node: int) -> Shape:
    dense = meshes[0]
    nodes = dense.world // per_node
    pipeline = dense.axis("pp")
    aligned = pipeline.stride % per_node == 0
    return Shape(
        nodes=nodes,
        pp=pipeline.size,
        pp_stride=pipeline.stride // per_node if aligned else 0,
        atom=_atom(cluster, meshes, per_node),
    )


def _atom(cluster: Cluster, meshes: tuple[Mesh, Mesh], per_node: int) -> int:
    """Hosts of the largest tensor, context or expert block that fits a domain, else a rack."""
    dense, expert = meshes
    tensor = dense.axis("tp").size
    experts = expert.axis("tp").size * expert.axis("ep").size
    blocks = (tensor, tensor * dense.size("cp"), experts)
    whole = [block // per_node for block in blocks if block % per_node == 0]
    domain = max(1, cluster.node.nvlink_domain // cluster.node.gpus)
    rack = max(len(rack.hosts) for rack in cluster.racks)
    room = domain if domain > 1 else rack
    return max((hosts for hosts in whole if hosts <= room), default=1)
