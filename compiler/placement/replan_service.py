"""Serving plan and drained hosts -> the same engines with replacements for the drained hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Host, ServingPlan
from parc.compiler.placement.find_vacancies import Move, Vacancies, find_vacancies, moves
from parc.compiler.placement.restore_cluster import drained_cluster
from parc.compiler.topology.arrange import engine_hosts, replica_counts
from parc.compiler.topology.hostlist import natural_key
from parc.compiler.topology.tree import meeting_level


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """Number of NVLink domains and switches that engines span; compared in this order."""

    domains: int
    """NVLink domains that engines span beyond the first of each, if domains span hosts."""
    switches: int
    """Switches that engines span beyond the first of each level, over all levels."""


@dataclass(frozen=True, slots=True)
class ReplannedService:
    """Result of a replan: the new plan and its changes."""

    plan: ServingPlan
    drained: tuple[str, ...]
    """All hosts drained so far."""
    moves: tuple[Move, ...]
    engines: tuple[int, ...]
    """Replicas that run on other hosts than before."""
    before: Spread
    after: Spread


def replan_service(
    plan: ServingPlan, drained: Iterable[str], sink: Sink
) -> ReplannedService | None:
    """Replace each drained host by an idle or spare one; None if the sink has errors.

    The replacement is the host with which the engine spans the fewest NVLink domains, then the
    fewest switches; then the nearest one to the drained host in the tree; then the first by name.
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
        moves=moves(plan, found.lost, hosts),
        engines=_replicas_on(plan, found.lost),
        before=_spread(plan, old),
        after=_spread(plan, hosts),
    )


def _replace_lost_hosts(plan: ServingPlan, found: Vacancies) -> tuple[Host, ...]:
    """Return the hosts by node rank, with each lost host replaced."""
    seats = list(plan.placement.hosts)
    left = sorted(found.free, key=lambda host: natural_key(host.name))
    each = _hosts_per_engine(plan)
    for node in found.lost:
        start = node // each * each
        others = [seats[one] for one in range(start, start + each) if one != node]
        new = min(left, key=partial(_replacement_cost, plan, seats[node], others))
        left.remove(new)
        seats[node] = new
    return tuple(seats)


def _replacement_cost(
    plan: ServingPlan, old: Host, others: list[Host], new: Host
) -> tuple[Spread, int]:
    """Return the sort key of ``new`` as replacement of ``old`` next to the ``others``."""
    return _spread(plan, [*others, new]), meeting_level(new, old)


def _spread(plan: ServingPlan, hosts: Sequence[Host]) -> Spread:
    """Return the spread of the engines on ``hosts``, which fill them one after another."""
    node, each = plan.problem.cluster.node, _hosts_per_engine(plan)
    domains = switches = 0
    for start in range(0, len(hosts), each):
        engine = hosts[start : start + each]
        if node.nvlink_domain > node.gpus:
            domains += len({host.nvlink_domain for host in engine}) - 1
        for level in range(len(engine[0].path)):
            switches += len({host.path[level:] for host in engine}) - 1
    return Spread(domains, switches)


def _hosts_per_engine(plan: ServingPlan) -> int:
    """Return the hosts per engine; 1 if engines share a host."""
    return engine_hosts(plan.layout, plan.problem.cluster.node.gpus) or 1


def _replicas_on(plan: ServingPlan, lost: Iterable[int]) -> tuple[int, ...]:
    """Return the replicas with a rank on one of the node ranks ``lost``."""
    each, size = plan.placement.ranks_per_node, plan.layout.engine_gpus
    ranks = (rank for node in lost for rank in range(node * each, (node + 1) * each))
    return tuple(sorted({rank // size for rank in ranks}))


def _suggest_fewer_replicas(plan: ServingPlan, hosts: int) -> str:
    """Suggest the largest number of replicas that fits evenly on ``hosts`` hosts."""
    layout = plan.layout
    counts = replica_counts(layout, plan.problem.cluster.node.gpus, hosts)
    fewer = [count for count in counts if count < layout.replicas]
    if not fewer:
        return "the remaining hosts cannot run an engine of this size; compile again"
    ranks = fewer[-1] * layout.engine_gpus
    return f"the nearest smaller plan: layout.replicas {fewer[-1]}, {ranks} ranks"
