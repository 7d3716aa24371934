"""Layout and estimate -> the question that placement answers: who sends what to whom, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from parc.compiler.ir import Cluster, Estimate, Host, Layout, Mesh
from parc.compiler.placement.order.bound import Bound
from parc.compiler.placement.order.cuts import Kind, kind_of
from parc.compiler.placement.order.price import Question
from parc.compiler.placement.order.rank_boxes import digits_of, node_digits
from parc.compiler.placement.order.sites import canonical_hosts, sites_of
from parc.compiler.topology.node_groups import node_groups
from parc.compiler.topology.uplinks import Flow, Pattern, flow

FAMILIES: dict[str, tuple[str, tuple[str, ...], Pattern]] = {
    "tp": ("dense", ("tp",), "ring"),
    "cp": ("dense", ("cp",), "ring"),
    "cp_a2a": ("dense", ("cp_a2a",), "all-to-all"),
    "cp_p2p": ("dense", ("cp_p2p",), "ring"),
    "dp_cp": ("dense", ("dp", "cp"), "ring"),
    "pp": ("dense", ("pp",), "line"),
    "ep": ("expert", ("ep",), "all-to-all"),
    "etp": ("expert", ("tp",), "ring"),
    "edp": ("expert", ("dp",), "ring"),
    "dp_shard_cp": ("dense", ("dp_shard", "cp"), "ring"),
    "edp_shard": ("expert", ("dp_shard",), "ring"),
    "dp_replicate": ("dense", ("dp_replicate",), "ring"),
}
"""Traffic axis of the estimate -> mesh, axes of its groups, who sends to whom."""

TIE = 0.002
"""Share of the step by which two orders of hosts may differ in what they expose and be tied; the
estimate itself is no better than a few per cent."""

TERMS = {
    axis: "dp_seconds" if axis.startswith(("dp", "edp")) else f"{axis.partition('_')[0]}_seconds"
    for axis in FAMILIES
} | {"etp": "tp_seconds"}
"""Traffic axis -> the term of the estimate that has its seconds; several axes share one."""


@dataclass(frozen=True, slots=True)
class Posed:
    """One question, with what bounds its answer."""

    question: Question
    bound: Bound
    hosts: tuple[Host, ...]
    """All usable hosts, in the order of the tree."""


def pose_placement(
    cluster: Cluster, meshes: tuple[Mesh, Mesh], per_node: int, layout: Layout, estimate: Estimate
) -> Posed:
    """Messages between node ranks in one step, and the sites and links of ``cluster``.

    Every axis of the estimate that leaves a host is a phase with the seconds that the estimate
    leaves exposed.
    """
    hosts = canonical_hosts(cluster)
    nodes = meshes[0].world // per_node
    digits = node_digits(meshes, per_node)
    flows = _flows(meshes, per_node, layout, estimate)
    tie = TIE * estimate.time.total_seconds
    question = Question(nodes, tuple(one for _, one, _ in flows), sites_of(cluster, hosts), tie)
    return Posed(question, Bound(question, tuple(kind for *_, kind in flows), digits), tuple(hosts))


def traffic_flows(
    meshes: tuple[Mesh, Mesh], per_node: int, layout: Layout, estimate: Estimate
) -> Iterator[tuple[str, Flow]]:
    """(axis, flow) for every axis of the estimate that leaves a host."""
    for axis, one, _ in _flows(meshes, per_node, layout, estimate):
        yield axis, one


@lru_cache(maxsize=1)
def _flows(
    meshes: tuple[Mesh, Mesh], per_node: int, layout: Layout, estimate: Estimate
) -> tuple[tuple[str, Flow, Kind], ...]:
    """The same with what the bound needs of it; kept, for a plan is placed, replanned and shown."""
    found = []
    exposure = _exposure(estimate)
    digits = node_digits(meshes, per_node)
    by_name = {"dense": meshes[0], "expert": meshes[1]}
    for traffic in estimate.traffic:
        if traffic.axis not in FAMILIES or not traffic.bytes_per_rank:
            continue
        name, axes, pattern = FAMILIES[traffic.axis]
        mesh = by_name[name]
        groups = node_groups(mesh, axes, per_node)
        if pattern == "line" and layout.vpp > 1:
            # Interleaving closes the line: the last rank hands chunks back to the first.
            pattern = "ring"
        if traffic.axis == "cp" and layout.cp_comm == "a2a":
            pattern = "all-to-all"
        if groups.visits:
            inside = digits_of(mesh.over(*axes), digits, per_node)
            size = prod(digits[index] for index in inside)
            kind = kind_of(groups, pattern, inside, size, mesh.world // per_node)
            sent = flow(groups, pattern, traffic.bytes_per_rank, exposure[traffic.axis])
            found.append((traffic.axis, sent, kind))
    return tuple(found)


def _exposure(estimate: Estimate) -> dict[str, float]:
    """Share of each axis' traffic that the estimate leaves on the critical path, at most 1."""
    full = dict.fromkeys(TERMS.values(), 0.0)
    for traffic in estimate.traffic:
        if traffic.axis in TERMS and traffic.gb_per_s:
            full[TERMS[traffic.axis]] += traffic.bytes_per_rank / (traffic.gb_per_s * 1e9)
    shares = {term: _share(getattr(estimate.time, term), spent) for term, spent in full.items()}
    return {axis: shares[term] for axis, term in TERMS.items()}


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 1.0
