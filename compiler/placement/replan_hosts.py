"""Plan and drained hosts -> the same plan on other hosts: only the ranks of drained hosts move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Host, Plan
from parc.compiler.ir.placement import NO_PROOF
from parc.compiler.placement.build_placement_problem import Posed, pose_placement
from parc.compiler.placement.find_vacancies import Move, Vacancies, find_vacancies, moves
from parc.compiler.placement.order.price import Cost
from parc.compiler.placement.restore_cluster import drained_cluster, with_hosts
from parc.compiler.topology.hostlist import natural_key
from parc.compiler.topology.tree import meeting_level

MOST_SITES = 8
"""Places that are priced for one drained host; the nearest in the tree."""


@dataclass(frozen=True, slots=True)
class Replanned:
    """The new plan, and what it took; how good its order of hosts is stays open."""

    plan: Plan
    drained: tuple[str, ...]
    """All hosts that are drained by now."""
    moves: tuple[Move, ...]
    before: Cost
    after: Cost
    """Both over the links of all hosts of the cluster, drained and spare ones included."""


def replan_hosts(plan: Plan, drained: Iterable[str], sink: Sink) -> Replanned | None:
    """Give every node rank of a drained host a free one: idle or spare.

    A host of the same leaf and NVLink domain is taken where there is one: no link then carries
    more than before. Else the nearest free places are priced, each by ``Cost``; ties go to the
    nearest in the tree, then by name. None: see the sink.
    """
    found = find_vacancies(plan, drained, lambda hosts: _smaller(plan, hosts), sink)
    if found is None:
        return None
    cluster, old = plan.problem.cluster, plan.placement.hosts
    posed = _posed(plan, with_hosts(cluster, found.everyone))
    hosts = _seated(posed, old, found)
    taken = {hosts[node].name for node in found.lost}
    problem = replace(plan.problem, cluster=drained_cluster(cluster, set(found.drained), taken))
    placement = replace(plan.placement, hosts=hosts, alternatives=(), proof=NO_PROOF)
    return Replanned(
        plan=replace(plan, problem=problem, placement=placement),
        drained=found.drained,
        moves=moves(plan, found.lost, hosts),
        before=_cost(posed, old),
        after=_cost(posed, hosts),
    )


def _posed(plan: Plan, cluster: Cluster) -> Posed:
    placement = plan.placement
    meshes = (placement.dense, placement.expert)
    return pose_placement(cluster, meshes, placement.ranks_per_node, plan.layout, plan.estimate)


def _cost(posed: Posed, hosts: Iterable[Host]) -> Cost:
    site = posed.question.sites.site_of
    return posed.question.cost([site[host.name] for host in hosts])


def _seated(posed: Posed, hosts: tuple[Host, ...], found: Vacancies) -> tuple[Host, ...]:
    """Hosts by node rank, every lost one replaced; the others stay."""
    seats, left = list(hosts), sorted(found.free, key=lambda host: natural_key(host.name))
    for node in found.lost:
        new = _replacement(posed, seats, node, left)
        left.remove(new)
        seats[node] = new
    return tuple(seats)


def _replacement(posed: Posed, seats: list[Host], node: int, free: list[Host]) -> Host:
    """A free host of the same site, else the one whose place costs least."""
    sites, old = posed.question.sites, seats[node]
    here = sites.site_of[old.name]
    first: dict[int, Host] = {}
    for host in free:
        first.setdefault(sites.site_of[host.name], host)
    if here in first:
        return first[here]
    near = sorted(first.values(), key=lambda host: meeting_level(host, old))[:MOST_SITES]
    if len(near) == 1:
        return near[0]
    place = [sites.site_of[host.name] for host in seats]

    def cost(host: Host) -> Cost:
        place[node] = sites.site_of[host.name]
        return posed.question.cost(place)

    return min(near, key=cost)


def _smaller(plan: Plan, hosts: int) -> str:
    """The largest data-parallel degree for which the rest of the layout still fits ``hosts``."""
    layout = plan.layout
    model = layout.tp * layout.cp * layout.pp
    room = hosts * plan.placement.ranks_per_node
    dp = next((n for n in range(room // model, 0, -1) if _divides(plan, n)), None)
    if dp is None:
        return "no smaller dp keeps the other degrees; compile anew"
    return f"the nearest smaller plan: layout.dp {dp}, {dp * model} ranks"


def _divides(plan: Plan, dp: int) -> bool:
    """Whether ``dp`` replicas share out the batch and the experts."""
    layout, job = plan.layout, plan.problem.job
    shares_batch = job.global_batch % (dp * layout.micro_batch) == 0
    stage = layout.tp * layout.cp * dp
    return shares_batch and stage % (layout.ep * layout.etp) == 0
