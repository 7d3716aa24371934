"""Plans in which the ranks of drained hosts move to other hosts, for training and serving.

All other ranks keep their hosts; a service keeps the sizes of its engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Cluster, Host, Plan, ServingPlan
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import NO_PLACEMENT_PROOF
from parc.compiler.ir.serving import POOLS
from parc.compiler.placement.build_placement_problem import placement_problem_of_plan
from parc.compiler.placement.find_vacancies import (
    HostVacancies,
    NodeRankMove,
    check_drained_names,
    cluster_with_hosts,
    drained_cluster,
    find_vacancies,
    list_moves,
)
from parc.compiler.placement.order.placement_problem import PlacementCost, PlacementProblem
from parc.compiler.topology.arrange_hosts import engine_hosts, replica_counts
from parc.compiler.topology.hostlist import compress_hosts, natural_key
from parc.compiler.topology.node_groups import ranks_per_node
from parc.compiler.topology.tree import common_switch_level

MOST_SITES = 8
"""Number of sites (sets of equivalent hosts) that are evaluated per drained host. These are the
nearest sites in the switch tree. The limit bounds the time of a replan; a site farther away shares
fewer switches and is seldom better."""
POOLS_FIELD = "job.disaggregate"


@frozen
class ReplannedTraining:
    """Training plan after a replan, with its moves and the cost before and after."""

    plan: Plan
    drained: tuple[str, ...]
    """All drained hosts, including those that earlier replans drained."""
    moves: tuple[NodeRankMove, ...]
    before: PlacementCost
    """Cost of the old order of hosts."""
    after: PlacementCost
    """Cost of the new order of hosts. ``before`` and ``after`` both count the links of all hosts,
    including drained and spare ones, so that the two costs can be compared."""


def replan_hosts(plan: Plan, drained: Iterable[str], sink: Sink) -> ReplannedTraining | None:
    """Return the plan with every drained host replaced by an idle or spare host.

    A free host with the same leaf switch and NVLink domain is preferred, because no link then
    carries more traffic than before. If there is no such host, the nearest free hosts are compared
    by ``PlacementCost``. On a tie, the host nearest in the switch tree is used, then the first by
    name.
    Returns None if an error was reported to ``sink``.
    """
    found = find_vacancies(plan, drained, lambda hosts: _suggest_smaller_dp(plan, hosts), sink)
    if found is None:
        return None
    cluster, old = plan.problem.cluster, plan.placement.hosts
    links = placement_problem_of_plan(plan, cluster_with_hosts(cluster, found.all_hosts))
    hosts = _replace_hosts(links, old, found)
    taken = {hosts[node].name for node in found.lost}
    problem = replace(plan.problem, cluster=drained_cluster(cluster, set(found.drained), taken))
    placement = replace(plan.placement, hosts=hosts, alternatives=(), proof=NO_PLACEMENT_PROOF)
    return ReplannedTraining(
        plan=replace(plan, problem=problem, placement=placement),
        drained=found.drained,
        moves=list_moves(plan, found.lost, hosts),
        before=links.cost_of_hosts(old),
        after=links.cost_of_hosts(hosts),
    )


def _replace_hosts(
    problem: PlacementProblem, hosts: tuple[Host, ...], vacancies: HostVacancies
) -> tuple[Host, ...]:
    """Return the hosts by node rank, with every drained host replaced by a free one."""
    seats, free = list(hosts), sorted(vacancies.free, key=lambda host: natural_key(host.name))
    # One by one, so that each choice is evaluated together with the earlier ones.
    for node in vacancies.lost:
        new = _best_replacement(problem, seats, node, free)
        free.remove(new)
        seats[node] = new
    return tuple(seats)


def _best_replacement(
    problem: PlacementProblem, seats: list[Host], node: int, free: list[Host]
) -> Host:
    """Return the best of the ``free`` hosts for the node rank ``node``, whose host is drained.

    A host with the leaf switch and NVLink domain of the drained host is the best. If there is no
    such host, the nearest hosts are compared, and the one with the least cost is returned.
    """
    sites, old = problem.sites, seats[node]
    here = sites.site_by_host[old.name]
    first: dict[int, Host] = {}
    for host in free:
        # Hosts of a site are equivalent, so the first one by name represents it.
        first.setdefault(sites.site_by_host[host.name], host)
    if here in first:
        return first[here]
    near = sorted(first.values(), key=lambda host: common_switch_level(host, old))[:MOST_SITES]
    if len(near) == 1:
        return near[0]
    place = [sites.site_by_host[host.name] for host in seats]

    def cost(host: Host) -> PlacementCost:
        """Return the cost of the placement in which node rank ``node`` runs on ``host``."""
        place[node] = sites.site_by_host[host.name]
        return problem.cost(place)

    return min(near, key=cost)


def _suggest_smaller_dp(plan: Plan, hosts: int) -> str:
    """Return a help text with the largest valid ``layout.dp`` for ``hosts`` hosts."""
    layout = plan.layout
    model, gpus = layout.tp * layout.cp * layout.pp, plan.problem.cluster.node.gpus
    smaller = range(min(hosts * gpus // model, layout.dp - 1), 0, -1)
    fitting = (n for n in smaller if n * model // ranks_per_node(gpus, n * model) <= hosts)
    dp = next((n for n in fitting if _is_valid_dp(plan, n)), None)
    if dp is None:
        return "no smaller dp works with the other parallel sizes; compile the spec again"
    return f"the nearest smaller plan has layout.dp {dp} and {dp * model} ranks"


def _is_valid_dp(plan: Plan, dp: int) -> bool:
    """Return True if ``dp`` is valid with the other parallel sizes of the plan.

    The global batch must be divisible by dp x the micro-batch size, if the spec fixes this size,
    and the number of ranks of a pipeline stage must be divisible by ep x etp.
    """
    layout, job = plan.layout, plan.problem.job
    divides_batch = job.global_batch % (dp * (plan.problem.pins.micro_batch or 1)) == 0
    stage = layout.tp * layout.cp * dp
    return divides_batch and stage % (layout.ep * layout.etp) == 0


@dataclass(frozen=True, slots=True, order=True)
class EngineSpread:
    """NVLink domains and switches that engines span. Two spreads are compared by domains first."""

    domains: int
    """Sum over all engines of (NVLink domains that the engine spans - 1); 0 if every NVLink domain
    is a single host."""
    switches: int
    """Sum over all engines and switch levels of (switches that the engine spans - 1)."""


@frozen
class ReplannedService:
    """Serving plan after a replan, with its moves and the engines that were moved."""

    plan: ServingPlan
    drained: tuple[str, ...]
    """All drained hosts, including those that earlier replans drained."""
    moves: tuple[NodeRankMove, ...]
    engines: tuple[int, ...]
    """Indexes of the replicas that now run on other hosts."""
    before: EngineSpread
    after: EngineSpread


def replan_service(
    plan: ServingPlan, drained: Iterable[str], sink: Sink
) -> ReplannedService | None:
    """Return the plan with every drained host replaced by an idle or spare host.

    The replacement is the free host that makes the engines span the fewest NVLink domains, then the
    fewest switches. On a tie, the host nearest to the drained one in the switch tree is used, then
    the first by name. Returns None if an error was reported to ``sink``.
    """
    found = find_vacancies(plan, drained, lambda hosts: _suggest_fewer_replicas(plan, hosts), sink)
    if found is None:
        return None
    cluster, old = plan.problem.cluster, plan.placement.hosts
    hosts = _replace_lost_hosts(plan, found)
    taken = {hosts[node].name for node in found.lost}
    problem = replace(plan.problem, cluster=drained_cluster(cluster, set(found.drained), taken))
    placement = replace(plan.placement, hosts=hosts)
    return ReplannedService(
        plan=replace(plan, problem=problem, placement=placement),
        drained=found.drained,
        moves=list_moves(plan, found.lost, hosts),
        engines=_replicas_with_lost_hosts(plan, found.lost),
        before=_count_spread(plan, old),
        after=_count_spread(plan, hosts),
    )


def replan_pools(
    pools: Sequence[ServingPlan], cluster: Cluster, drained: Iterable[str], sink: Sink
) -> None:
    """Report the edit of the spec that replaces every drained host of two pools (V46).

    ``pools`` are the plans of the prefill pool and of the decode pool, which share the hosts of
    ``cluster``. The edit keeps both layouts and all other hosts.
    """
    names = tuple(sorted(set(drained), key=natural_key))
    everywhere = {host.name: host for host in cluster.hosts}
    everywhere |= {host.name: host for pool in pools for host in pool.placement.hosts}
    if not check_drained_names(names, everywhere.values(), cluster, sink):
        return
    busy = {host.name for pool in pools for host in pool.placement.hosts} | set(names)
    free = [host for host in cluster.hosts if host.name not in busy]
    moves, parts = [], []
    for name, pool in zip(POOLS, pools, strict=True):
        old = pool.placement.hosts
        lost = tuple(node for node, host in enumerate(old) if host.name in names)
        if len(free) < len(lost):
            _report_full_cluster([old[node].name for node in lost], name, len(free), sink)
            return
        new = _replace_lost_hosts(pool, HostVacancies(names, (), lost, tuple(free)))
        free = [host for host in free if host not in new]
        moves += [f"{old[node].name} -> {new[node].name} ({name} pool)" for node in lost]
        parts.append(f"{name}: {{{_pin_pool(pool, new)}}}")
    if not moves:
        finding = Finding(
            f"no engine of the two pools runs on {compress_hosts(names)}, so none moves",
            help="to keep later compiles off these hosts too, list them in the spec",
            fix=f"cluster.unavailable: {json.dumps([*dict.fromkeys(cluster.unavailable + names)])}",
        )
    else:
        finding = Finding(
            "parc replan does not write the files of two pools",
            label="the pools and their router are written together, by parc compile",
            help=f"{', '.join(moves)}; the fix keeps both layouts and all other hosts. Set it in "
            "the spec, compile again, and restart the engines on the new hosts and the router",
            fix=f"job.disaggregate: {{{', '.join(parts)}}}",
        )
    sink.report("V46", finding, at=POOLS_FIELD)


def _report_full_cluster(lost: list[str], pool: str, free: int, sink: Sink) -> None:
    finding = Finding(
        f"too few free hosts: {len(lost)} needed to replace {compress_hosts(lost)} of the {pool} "
        f"pool, {free} free",
        help="list the drained hosts in cluster.unavailable, and compile again with other layouts",
    )
    sink.report("V46", finding, at=POOLS_FIELD)


def _pin_pool(plan: ServingPlan, hosts: Sequence[Host]) -> str:
    """Return the hosts and the layout of a pool as keys of ``job.disaggregate``."""
    layout = plan.layout
    sizes: dict[str, object] = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp}
    if plan.problem.model.experts:
        sizes |= {"ep": layout.ep, "redundant_experts": layout.redundant_experts or None}
    sizes |= {name: getattr(layout, name) for name in ("pcp", "dcp") if getattr(layout, name) > 1}
    sizes |= {"stage_layers": list(layout.stages) or None, "replicas": layout.replicas}
    text = ", ".join(f"{key}: {value}" for key, value in sizes.items() if value is not None)
    names = json.dumps(compress_hosts(host.name for host in hosts))
    return f"hosts: {names}, layout: {{{text}}}"


def _replace_lost_hosts(plan: ServingPlan, vacancies: HostVacancies) -> tuple[Host, ...]:
    """Return the hosts by node rank, with every drained host replaced by a free one."""
    seats = list(plan.placement.hosts)
    left = sorted(vacancies.free, key=lambda host: natural_key(host.name))
    each = _hosts_per_engine(plan)
    for node in vacancies.lost:
        # Engines occupy consecutive node ranks, so this is the first node rank of the
        # engine.
        start = node // each * each
        others = [seats[one] for one in range(start, start + each) if one != node]
        new = min(left, key=partial(_replacement_cost, plan, seats[node], others))
        left.remove(new)
        seats[node] = new
    return tuple(seats)


def _replacement_cost(
    plan: ServingPlan, old: Host, others: list[Host], new: Host
) -> tuple[EngineSpread, int]:
    """Return the sort key of ``new``, a host that can replace ``old``; the least key is the best.

    The first part of the key is the number of NVLink domains and switches that the engine would
    span on ``new`` and ``others``, the remaining hosts of the engine. The second part is the lowest
    level of the switch tree that contains both ``new`` and ``old``.
    """
    return _count_spread(plan, [*others, new]), common_switch_level(new, old)


def _count_spread(plan: ServingPlan, hosts: Sequence[Host]) -> EngineSpread:
    """Return the NVLink domains and switches per engine beyond the first, summed over all engines.

    Each engine uses the next hosts in ``hosts``. An engine adds 0 if all of its hosts are in one
    NVLink domain and below one switch of each level.
    """
    node, each = plan.problem.cluster.node, _hosts_per_engine(plan)
    domains = switches = 0
    for start in range(0, len(hosts), each):
        engine = hosts[start : start + each]
        if node.nvlink_domain > node.gpus:
            domains += len({host.nvlink_domain for host in engine}) - 1
        for level in range(len(engine[0].switch_path)):
            switches += len({host.switch_path[level:] for host in engine}) - 1
    return EngineSpread(domains, switches)


def _hosts_per_engine(plan: ServingPlan) -> int:
    """Return the number of hosts per engine; 1 if several engines share a host."""
    return engine_hosts(plan.layout, plan.problem.cluster.node.gpus) or 1


def _replicas_with_lost_hosts(plan: ServingPlan, lost: Iterable[int]) -> tuple[int, ...]:
    """Return the indexes of the replicas that have a rank on a lost host.

    ``lost`` contains the node ranks of these hosts.
    """
    each, size = plan.placement.ranks_per_node, plan.layout.engine_gpus
    ranks = (rank for node in lost for rank in range(node * each, (node + 1) * each))
    return tuple(sorted({rank // size for rank in ranks}))


def _suggest_fewer_replicas(plan: ServingPlan, hosts: int) -> str:
    """Return a help text with the largest number of replicas that fits on ``hosts`` hosts."""
    layout = plan.layout
    counts = replica_counts(layout, plan.problem.cluster.node.gpus, hosts)
    fewer = [count for count in counts if count < layout.replicas]
    if not fewer:
        return "the remaining hosts cannot run an engine of this size; compile again"
    ranks = fewer[-1] * layout.engine_gpus
    return f"the nearest smaller plan has layout.replicas {fewer[-1]} and {ranks} ranks"
