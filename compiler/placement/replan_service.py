"""Serving plan and drained hosts -> the same engines; only those of drained hosts get others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Host, ServingPlan
from parc.compiler.placement.find_vacancies import Move, Vacancies, find_vacancies, moves
from parc.compiler.placement.restore_cluster import drained_cluster
from parc.compiler.topology.engine_hosts import engine_hosts, replica_counts
from parc.compiler.topology.hostlist import natural_key
from parc.compiler.topology.tree import meeting_level


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """How far engines reach; the first entry counts first."""

    domains: int
    """NVLink domains that engines touch beyond the first of each, where domains span hosts."""
    switches: int
    """Switches of all levels that engines touch beyond the first of each level."""


@dataclass(frozen=True, slots=True)
class ReplannedService:
    """The new plan, and what it took."""

    plan: ServingPlan
    drained: tuple[str, ...]
    """All hosts that are drained by now."""
    moves: tuple[Move, ...]
    engines: tuple[int, ...]
    """Replicas that run on other hosts now."""
    before: Spread
    after: Spread


def replan_service(
    plan: ServingPlan, drained: Iterable[str], sink: Sink
) -> ReplannedService | None:
    """Give every node rank of a drained host a free one: idle or spare.

    Order of the free hosts: the engine reaches over the fewest NVLink domains, then switches,
    with it; the nearest in the tree to the drained one; by name. None: see the sink.
    """
    found = find_vacancies(plan, drained, lambda hosts: _smaller(plan, hosts), sink)
    if found is None:
        return None
    cluster, old = plan.problem.cluster, plan.placement.hosts
    hosts = _seated(plan, found)
    taken = {hosts[node].name for node in found.lost}
    problem = replace(plan.problem, cluster=drained_cluster(cluster, set(found.drained), taken))
    placement = replace(plan.placement, hosts=hosts)
    return ReplannedService(
        plan=replace(plan, problem=problem, placement=placement),
        drained=found.drained,
        moves=moves(plan, found.lost, hosts),
        engines=_engines(plan, found.lost),
        before=_spread(plan, old),
        after=_spread(plan, hosts),
    )


def _seated(plan: ServingPlan, found: Vacancies) -> tuple[Host, ...]:
    """Hosts by node rank, every lost one replaced; the others stay."""
    seats = list(plan.placement.hosts)
    left = sorted(found.free, key=lambda host: natural_key(host.name))
    each = _hosts_of_an_engine(plan)
    for node in found.lost:
        start = node // each * each
        others = [seats[one] for one in range(start, start + each) if one != node]
        new = min(left, key=partial(_order, plan, seats[node], others))
        left.remove(new)
        seats[node] = new
    return tuple(seats)


def _order(plan: ServingPlan, old: Host, others: list[Host], new: Host) -> tuple[Spread, int]:
    """How good it is that ``new`` joins the ``others`` of an engine in place of ``old``."""
    return _spread(plan, [*others, new]), meeting_level(new, old)


def _spread(plan: ServingPlan, hosts: Sequence[Host]) -> Spread:
    """Of all engines that lie on ``hosts``, whole engines one after another."""
    node, each = plan.problem.cluster.node, _hosts_of_an_engine(plan)
    domains = switches = 0
    for start in range(0, len(hosts), each):
        engine = hosts[start : start + each]
        if node.nvlink_domain > node.gpus:
            domains += len({host.nvlink_domain for host in engine}) - 1
        for level in range(len(engine[0].path)):
            switches += len({host.path[level:] for host in engine}) - 1
    return Spread(domains, switches)


def _hosts_of_an_engine(plan: ServingPlan) -> int:
    """1 where engines share a host."""
    return engine_hosts(plan.layout, plan.problem.cluster.node.gpus) or 1


def _engines(plan: ServingPlan, lost: Iterable[int]) -> tuple[int, ...]:
    """Replicas with a rank on a node rank of ``lost``."""
    each, size = plan.placement.ranks_per_node, plan.layout.engine_gpus
    ranks = (rank for node in lost for rank in range(node * each, (node + 1) * each))
    return tuple(sorted({rank // size for rank in ranks}))


def _smaller(plan: ServingPlan, hosts: int) -> str:
    """The most replicas of the same engine that ``hosts`` hold evenly."""
    layout = plan.layout
    counts = replica_counts(layout, plan.problem.cluster.node.gpus, hosts)
    fewer = [count for count in counts if count < layout.replicas]
    if not fewer:
        return "the hosts that are left hold no engine of this size; compile anew"
    ranks = fewer[-1] * layout.engine_gpus
    return f"the nearest smaller plan: layout.replicas {fewer[-1]}, {ranks} ranks"
