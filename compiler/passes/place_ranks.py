"""Layout -> Placement: which host gets which node rank.

Ranks are contiguous in a host (rank = node rank x ranks per node + local rank) and the framework
fixes what every rank is, so the only freedom is the order of the hosts. A few orders are priced
by what they send over rack uplinks, and the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
)
from parc.compiler.topology.arrange import NAMES, Shape, arrangements, name_order
from parc.compiler.topology.node_groups import node_groups, ranks_per_node
from parc.compiler.topology.uplinks import Flow, Pattern, flow, host_egress, zone_egress

FAMILIES: dict[str, tuple[str, tuple[str, ...], Pattern]] = {
    "tp": ("dense", ("tp",), "ring"),
    "cp": ("dense", ("cp",), "ring"),
    "dp_cp": ("dense", ("dp", "cp"), "ring"),
    "pp": ("dense", ("pp",), "line"),
    "ep": ("expert", ("ep",), "all-to-all"),
    "edp": ("expert", ("dp",), "ring"),
    "dp_shard_cp": ("dense", ("dp_shard", "cp"), "ring"),
    "edp_shard": ("expert", ("dp_shard",), "ring"),
    "dp_replicate": ("dense", ("dp_replicate",), "ring"),
}
"""Traffic axis of the estimate -> mesh, axes of its groups, who sends to whom."""

DATA = ("dp_cp", "edp", "dp_shard_cp", "edp_shard", "dp_replicate")
"""Those of gradients and weights; the estimate has one term for all of them."""


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
    exposed_seconds: float
    uplink_bytes: float
    moved: int
    """Hosts whose node rank differs from the name order."""

    @property
    def cost(self) -> tuple[float, float]:
        """Exposed seconds, then bytes over the busiest uplink."""
        return (self.exposed_seconds, self.uplink_bytes)

    @property
    def order(self) -> tuple[float, float, int]:
        """Cost, then hosts moved."""
        return (*self.cost, self.moved)


def place_ranks(
    problem: Problem, framework: RankOrder, layout: Layout, estimate: Estimate
) -> Placement:
    """Choose the order of hosts with the least exposed time over rack uplinks.

    Ties: fewer bytes over the busiest uplink, then fewer hosts moved from the name order, then
    the order in which ``topology/arrange.py`` names them. Bare name order is a reference, for it
    may cut tensor and expert blocks; it is taken where it costs the same as the best.

    Raises:
        ValueError: the cluster has too few hosts for the layout, which no legal layout has.
    """
    cluster = problem.cluster
    dense, expert = framework.meshes(layout)
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    nodes = layout.world // per_node
    if nodes > cluster.nodes:
        raise ValueError(f"{layout.world} ranks need {nodes} hosts of {cluster.nodes}")
    shape = _shape(cluster, (dense, expert), per_node)
    flows = tuple(_flows({"dense": dense, "expert": expert}, per_node, layout, estimate))
    names = name_order(cluster)[:nodes]
    best: dict[str, _Priced] = {}
    for name, hosts in arrangements(cluster, shape):
        priced = _price(name, hosts, names, cluster, flows)
        if name not in best or priced.order < best[name].order:
            best[name] = priced
    chosen = _chosen(list(best.values()))
    return Placement(
        order=layout.order,
        dense=dense,
        expert=expert,
        families=framework.families(layout),
        hosts=chosen.hosts,
        ranks_per_node=per_node,
        alternatives=tuple(
            Crossing(priced.name, priced.uplink_bytes, priced.exposed_seconds, priced is chosen)
            for priced in best.values()
        ),
    )


def _chosen(priced: list[_Priced]) -> _Priced:
    """The cheapest arrangement, or the name order where that costs the same and moves less."""
    best = min((one for one in priced if one.name != NAMES), key=lambda one: one.order)
    names = next(one for one in priced if one.name == NAMES)
    return names if names.cost == best.cost and best.moved else best


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


def _flows(
    meshes: dict[str, Mesh], per_node: int, layout: Layout, estimate: Estimate
) -> Iterator[Flow]:
    """One flow for every axis of the estimate that leaves a host."""
    exposure = _exposure(estimate)
    for traffic in estimate.traffic:
        if traffic.axis not in FAMILIES or not traffic.bytes_per_rank:
            continue
        mesh, axes, pattern = FAMILIES[traffic.axis]
        groups = node_groups(meshes[mesh], axes, per_node)
        if pattern == "line" and layout.vpp > 1:
            # Interleaving closes the line: the last rank hands chunks back to the first.
            pattern = "ring"
        if traffic.axis == "cp" and layout.cp_comm == "a2a":
            pattern = "all-to-all"
        if groups.visits:
            yield flow(groups, pattern, traffic.bytes_per_rank, exposure[traffic.axis])


def _exposure(estimate: Estimate) -> dict[str, float]:
    """Share of each axis' traffic that the estimate leaves on the critical path, at most 1."""
    full = dict.fromkeys(FAMILIES, 0.0)
    for traffic in estimate.traffic:
        if traffic.axis in full and traffic.gb_per_s:
            full[traffic.axis] += traffic.bytes_per_rank / (traffic.gb_per_s * 1e9)
    time = estimate.time
    data = _share(time.dp_seconds, sum(full[axis] for axis in DATA))
    return dict.fromkeys(DATA, data) | {
        "tp": _share(time.tp_seconds, full["tp"]),
        "cp": _share(time.cp_seconds, full["cp"]),
        "pp": _share(time.pp_seconds, full["pp"]),
        "ep": _share(time.ep_seconds, full["ep"]),
    }


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 1.0


def _price(
    name: str,
    hosts: tuple[Host, ...],
    names: tuple[Host, ...],
    cluster: Cluster,
    flows: tuple[Flow, ...],
) -> _Priced:
    """Price one order; families run one after the other, each as slow as its fullest link."""
    number = {rack.name: index for index, rack in enumerate(cluster.racks)}
    racks = [number[host.rack] for host in hosts]
    nic_bytes_per_s = cluster.node.nics * cluster.node.nic_gbps / 8 * 1e9
    uplinks = [
        len(rack.hosts) * nic_bytes_per_s / cluster.fabric.oversubscription
        for rack in cluster.racks
    ]
    domains = [host.nvlink_domain for host in hosts]
    seconds, total = 0.0, [0.0] * len(uplinks)
    for one in flows:
        leaving = zone_egress(one, racks)
        for rack, messages in leaving.items():
            total[rack] += messages * one.unit_bytes
        busiest = [messages / uplinks[rack] for rack, messages in leaving.items() if uplinks[rack]]
        if cluster.node.nvlink_domain > cluster.node.gpus and nic_bytes_per_s:
            ids = _numbered(domains)
            busiest += [count / nic_bytes_per_s for count in host_egress(one, ids).values()]
        seconds += one.exposure * one.unit_bytes * max(busiest, default=0.0)
    moved = sum(host.name != other.name for host, other in zip(hosts, names, strict=True))
    return _Priced(name, hosts, seconds, max(total), moved)


def _numbered(names: list[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
