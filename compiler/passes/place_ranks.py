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
    Family,
    Host,
    Layout,
    Mesh,
    Placement,
    Problem,
    Proof,
    Rack,
)
from parc.compiler.passes.pose_placement import Posed, pose_placement
from parc.compiler.topology.arrange import Shape, arrangements, name_order
from parc.compiler.topology.gpu_order import gpu_order
from parc.compiler.topology.node_groups import ranks_per_node
from parc.compiler.topology.placing.choose import (
    THOROUGH,
    Choice,
    Effort,
    Found,
    box_sizes,
    choose,
)
from parc.compiler.topology.placing.price import Cost
from parc.compiler.topology.placing.sites import Sites

HEURISTIC_GAP = 0.5
"""A bound that is further away than this share says nothing about the order."""


class RankOrder(Protocol):
    """The part of a framework that places ranks."""

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Dense and expert mesh of ``layout``."""

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Groups that the framework creates."""


@dataclass(frozen=True, slots=True)
class _Priced:
    """One order of hosts with its cost; sorts by what is chosen first."""

    name: str
    hosts: tuple[Host, ...]
    cost: Cost
    moved: int
    """Hosts whose node rank differs from the name order."""

    @property
    def order(self) -> tuple[Cost, int]:
        """Cost, then hosts moved."""
        return (self.cost, self.moved)


def place_ranks(
    problem: Problem,
    framework: RankOrder,
    layout: Layout,
    estimate: Estimate,
    effort: Effort = THOROUGH,
) -> Placement:
    """Choose the order of hosts with the least exposed time over shared links.

    Total order: exposed seconds over the fullest link of every phase (NICs of a host, uplinks of
    leaf, pod and spine), then bytes over the busiest uplink, then bytes over all uplinks, then
    fewer hosts moved from the name order, then the order in which ``topology/arrange.py`` names
    them. So the name order is taken wherever nothing costs less. The order of hosts in the spec
    does not matter.

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
    if choice.better is not None:
        priced.append(_seated(cluster, posed, choice.better))
    chosen = min(priced, key=lambda one: one.order)
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
        proof=proof_of(chosen.cost.exposed_seconds, choice),
        devices=gpu_order(cluster.node, meshes, per_node),
    )


def _arranged(cluster: Cluster, posed: Posed, shape: Shape) -> list[_Priced]:
    """The orders that have names, each name once, the cheapest of it."""
    names = name_order(cluster)[: shape.nodes]
    best: dict[str, _Priced] = {}
    for name, hosts in arrangements(_canonical(cluster, posed.hosts), shape):
        place = [posed.question.sites.site_of[host.name] for host in hosts]
        priced = _Priced(name, hosts, posed.question.cost(place), _moved(hosts, names))
        if name not in best or priced.order < best[name].order:
            best[name] = priced
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


def proof_of(exposed_seconds: float, choice: Choice) -> Proof:
    """What the bound, or having seen every order, says about ``exposed_seconds``."""
    bound = exposed_seconds if choice.every else min(choice.bound_seconds, exposed_seconds)
    if exposed_seconds <= bound:
        return Proof("optimal", exposed_seconds, bound)
    near = exposed_seconds <= bound * (1 + HEURISTIC_GAP)
    return Proof("bounded" if near else "heuristic", exposed_seconds, bound)


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
    blocks = (tensor, tensor * dense.axis("cp").size, experts)
    whole = [block // per_node for block in blocks if block % per_node == 0]
    domain = max(1, cluster.node.nvlink_domain // cluster.node.gpus)
    rack = max(len(rack.hosts) for rack in cluster.racks)
    room = domain if domain > 1 else rack
    return max((hosts for hosts in whole if hosts <= room), default=1)
