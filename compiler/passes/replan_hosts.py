"""Plan and drained hosts -> the same plan on other hosts: only the ranks of drained hosts move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import (
    Cluster,
    Crossing,
    Host,
    Placement,
    Plan,
    Proof,
    Rack,
)
from parc.compiler.passes.expand_hosts import near_hosts
from parc.compiler.passes.place_ranks import proof_of
from parc.compiler.passes.pose_placement import Posed, over, pose_placement
from parc.compiler.topology.hostlist import compress, natural_key
from parc.compiler.topology.placing.choose import Choice
from parc.compiler.topology.placing.price import Cost
from parc.compiler.topology.tree import meeting_level

MOST_SITES = 8
"""Places that are priced for one drained host; the nearest in the tree."""
DRAIN = Span("--drain", 1, 1)


@dataclass(frozen=True, slots=True)
class Move:
    """All ranks of one node rank change hosts."""

    node_rank: int
    first_rank: int
    last_rank: int
    old: Host
    new: Host


@dataclass(frozen=True, slots=True)
class Replanned:
    """The new plan, and what it took."""

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
    more than before. Else the nearest free places are priced, each by ``Cost``; ties go to idle
    hosts, then by name. None with H03 for a host that the cluster lacks.
    """
    names = tuple(sorted(set(drained), key=natural_key))
    cluster = plan.problem.cluster
    everyone = [*cluster.hosts, *cluster.spare]
    if not _known(names, everyone, cluster, sink):
        return None
    gone = set(names)
    whole = _with_hosts(cluster, everyone)
    posed = _posed(plan, whole)
    before = _cost(posed, plan.placement.hosts)
    busy = gone | {host.name for host in plan.placement.hosts}
    free = [host for host in everyone if host.name not in busy]
    lost = [node for node, host in enumerate(plan.placement.hosts) if host.name in gone]
    if len(free) < len(lost):
        _none_left(plan, lost, free, sink)
        return None
    hosts = _seated(posed, plan.placement.hosts, lost, free)
    taken = {hosts[node].name for node in lost}
    left = _with_hosts(cluster, [host for host in everyone if host.name not in gone])
    placement = _placement(plan, over(posed, left), posed, before, tuple(hosts))
    problem = replace(plan.problem, cluster=_drained(cluster, gone, taken))
    each = plan.placement.ranks_per_node
    moves = tuple(
        Move(node, node * each, node * each + each - 1, plan.placement.hosts[node], hosts[node])
        for node in lost
    )
    fresh = replace(plan, problem=problem, placement=placement)
    return Replanned(fresh, names, moves, before, _cost(posed, hosts))


def _known(names: tuple[str, ...], hosts: list[Host], cluster: Cluster, sink: Sink) -> bool:
    """H03 for names that no host has; those that are unavailable already are fine."""
    known = {host.name for host in hosts} | set(cluster.unavailable)
    unknown = [name for name in names if name not in known]
    if not cluster.named and names:
        finding = Finding(
            "the spec counts its hosts, so there is none to drain",
            help="list hosts by name under cluster.racks; a scheduler replaces the others",
        )
        sink.report("H03", finding, at="cluster.nodes")
        return False
    for name in unknown:
        near = near_hosts(name, known)
        finding = Finding(
            f"{name} is not among the {len(known)} hosts",
            label="the cluster has no such host",
            help=f"did you mean {' or '.join(near)}?" if near else "",
        )
        sink.report("H03", finding, span=DRAIN)
    return not unknown


def _with_hosts(cluster: Cluster, hosts: Iterable[Host]) -> Cluster:
    """``cluster`` with exactly ``hosts``, all of them usable."""
    racks: dict[str, list[Host]] = {rack.name: [] for rack in cluster.racks}
    for host in hosts:
        racks.setdefault(host.rack, []).append(host)
    kept = tuple(Rack(name, tuple(members)) for name, members in racks.items() if members)
    return replace(cluster, racks=kept, spare=())


def _drained(cluster: Cluster, gone: set[str], taken: set[str]) -> Cluster:
    """Spare hosts that were taken become usable, drained ones unavailable."""
    spare = tuple(host for host in cluster.spare if host.name not in gone | taken)
    used = [host for host in cluster.spare if host.name in taken]
    usable = [host for host in cluster.hosts if host.name not in gone] + used
    unavailable = (*cluster.unavailable, *sorted(gone - set(cluster.unavailable), key=natural_key))
    return replace(_with_hosts(cluster, usable), spare=spare, unavailable=unavailable)


def _posed(plan: Plan, cluster: Cluster) -> Posed:
    placement = plan.placement
    meshes = (placement.dense, placement.expert)
    return pose_placement(cluster, meshes, placement.ranks_per_node, plan.layout, plan.estimate)


def _cost(posed: Posed, hosts: Iterable[Host]) -> Cost:
    site = posed.question.sites.site_of
    return posed.question.cost([site[host.name] for host in hosts])


def _seated(posed: Posed, hosts: tuple[Host, ...], lost: list[int], free: list[Host]) -> list[Host]:
    """Hosts by node rank, every lost one replaced; the others stay."""
    seats, left = list(hosts), sorted(free, key=lambda host: natural_key(host.name))
    for node in lost:
        new = _replacement(posed, seats, node, left)
        left.remove(new)
        seats[node] = new
    return seats


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


def _placement(
    plan: Plan, left: Posed, whole: Posed, before: Cost, hosts: tuple[Host, ...]
) -> Placement:
    """The new placement, judged over the hosts that are left."""
    after = _cost(whole, hosts)
    seconds = _cost(left, hosts).exposed_seconds
    return replace(
        plan.placement,
        hosts=hosts,
        alternatives=(
            Crossing("previous plan", before.busiest_bytes, before.exposed_seconds, chosen=False),
            Crossing("replanned", after.busiest_bytes, after.exposed_seconds, chosen=True),
        ),
        proof=_proof(seconds, left),
    )


def _proof(seconds: float, left: Posed) -> Proof:
    return proof_of(seconds, Choice(None, left.bound.exposed_seconds, every=False))


def _none_left(plan: Plan, lost: list[int], free: list[Host], sink: Sink) -> None:
    """T11: fewer free hosts than drained ones; names the nearest smaller plan."""
    placement, layout = plan.placement, plan.layout
    names = compress(placement.hosts[node].name for node in lost)
    room = (len(placement.hosts) - len(lost) + len(free)) * placement.ranks_per_node
    finding = Finding(
        f"drained hosts with ranks: {len(lost)} ({names}), free hosts: {len(free)}",
        label=f"{layout.world} ranks need {len(placement.hosts)} hosts",
        help=_smaller(plan, room),
        fix="add a host under cluster.spare, or compile a smaller plan",
        causes=(Cause("cluster.spare", f"spare hosts: {len(plan.problem.cluster.spare)}"),),
    )
    sink.report("T11", finding, span=DRAIN)


def _smaller(plan: Plan, room: int) -> str:
    """The largest data-parallel degree for which the rest of the layout still fits."""
    layout = plan.layout
    model = layout.tp * layout.cp * layout.pp
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
