"""Plan and drained hosts -> the same plan, with only the ranks of drained hosts on other hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Host, Plan
from parc.compiler.ir.placement import NO_PROOF
from parc.compiler.placement.build_placement_problem import build_placement_problem
from parc.compiler.placement.find_vacancies import Move, Vacancies, find_vacancies, moves
from parc.compiler.placement.order.placement_problem import Cost, PlacementProblem
from parc.compiler.placement.restore_cluster import drained_cluster, with_hosts
from parc.compiler.topology.hostlist import natural_key
from parc.compiler.topology.tree import meeting_level

MOST_SITES = 8
"""Sites that are evaluated per drained host, the nearest in the tree. Bounds the time of a replan;
a site farther away shares fewer switches and is seldom better."""


@dataclass(frozen=True, slots=True)
class Replanned:
    """A new plan without a proof of its order of hosts, and its difference from the old plan."""

    plan: Plan
    drained: tuple[str, ...]
    """All drained hosts, of earlier replans too."""
    moves: tuple[Move, ...]
    before: Cost
    after: Cost
    """Cost of the old and the new order, both over the links of all hosts of the cluster, including
    drained and spare ones. The links must be the same for the costs to be comparable."""


def replan_hosts(plan: Plan, drained: Iterable[str], sink: Sink) -> Replanned | None:
    """Replace every drained host by a free one, idle or spare.

    A free host of the same leaf and NVLink domain is preferred, because then no link carries more
    than before. If there is none, the nearest free hosts are evaluated by ``Cost``. Ties go to the
    host nearest in the tree, then to the first by name. None after an error in ``sink``.
    """
    found = find_vacancies(plan, drained, lambda hosts: _suggest_smaller_dp(plan, hosts), sink)
    if found is None:
        return None
    cluster, old = plan.problem.cluster, plan.placement.hosts
    links = _placement_problem(plan, with_hosts(cluster, found.all_hosts))
    hosts = _replace_hosts(links, old, found)
    taken = {hosts[node].name for node in found.lost}
    problem = replace(plan.problem, cluster=drained_cluster(cluster, set(found.drained), taken))
    placement = replace(plan.placement, hosts=hosts, alternatives=(), proof=NO_PROOF)
    return Replanned(
        plan=replace(plan, problem=problem, placement=placement),
        drained=found.drained,
        moves=moves(plan, found.lost, hosts),
        before=_cost(links, old),
        after=_cost(links, hosts),
    )


def _placement_problem(plan: Plan, cluster: Cluster) -> PlacementProblem:
    placement = plan.placement
    meshes = (placement.dense, placement.expert)
    return build_placement_problem(
        cluster, meshes, placement.ranks_per_node, plan.layout, plan.estimate
    )


def _cost(problem: PlacementProblem, hosts: Iterable[Host]) -> Cost:
    site = problem.sites.site_of
    return problem.cost([site[host.name] for host in hosts])


def _replace_hosts(
    problem: PlacementProblem, hosts: tuple[Host, ...], found: Vacancies
) -> tuple[Host, ...]:
    """Return the hosts by node rank, with every drained one replaced by a free one."""
    seats, free = list(hosts), sorted(found.free, key=lambda host: natural_key(host.name))
    for node in found.lost:
        new = _best_replacement(problem, seats, node, free)
        free.remove(new)
        seats[node] = new
    return tuple(seats)


def _best_replacement(
    problem: PlacementProblem, seats: list[Host], node: int, free: list[Host]
) -> Host:
    """Return a free host of the same site, otherwise the free host with the least cost."""
    sites, old = problem.sites, seats[node]
    here = sites.site_of[old.name]
    first: dict[int, Host] = {}
    for host in free:
        # Hosts of a site are equivalent, so the first one by name represents it.
        first.setdefault(sites.site_of[host.name], host)
    if here in first:
        return first[here]
    near = sorted(first.values(), key=lambda host: meeting_level(host, old))[:MOST_SITES]
    if len(near) == 1:
        return near[0]
    place = [sites.site_of[host.name] for host in seats]

    def cost(host: Host) -> Cost:
        place[node] = sites.site_of[host.name]
        return problem.cost(place)

    return min(near, key=cost)


def _suggest_smaller_dp(plan: Plan, hosts: int) -> str:
    """Return a help text with the largest dp for which the layout fits ``hosts`` hosts."""
    layout = plan.layout
    model = layout.tp * layout.cp * layout.pp
    ranks = hosts * plan.placement.ranks_per_node
    dp = next((n for n in range(ranks // model, 0, -1) if _is_valid_dp(plan, n)), None)
    if dp is None:
        return "no smaller dp works with the other parallel sizes; compile the spec again"
    return f"nearest smaller plan: layout.dp {dp}, {dp * model} ranks"


def _is_valid_dp(plan: Plan, dp: int) -> bool:
    """Return True if ``dp`` replicas divide the batch, and expert groups divide a stage."""
    layout, job = plan.layout, plan.problem.job
    divides_batch = job.global_batch % (dp * layout.micro_batch) == 0
    stage = layout.tp * layout.cp * dp
    return divides_batch and stage % (layout.ep * layout.etp) == 0
