"""Drained hosts: their node ranks, the free hosts that replace them, the cluster without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import AnyPlan, Cluster, Host, LockedPlan, Rack
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_hosts import MOST_LISTED, similar_hosts
from parc.compiler.topology.hostlist import compress_hosts, natural_key

DRAIN = Span("--drain", 1, 1)


@frozen
class HostVacancies:
    """Node ranks whose hosts are drained, and the free hosts that can replace these hosts."""

    drained: tuple[str, ...]
    """All drained hosts, including those that earlier replans drained."""
    all_hosts: tuple[Host, ...]
    """All hosts of the cluster, including drained and spare ones."""
    lost: tuple[int, ...]
    """Node ranks whose host is drained. ``free`` contains at least as many hosts."""
    free: tuple[Host, ...]
    """Idle hosts in the order of the spec, then spare hosts."""


@frozen
class NodeRankMove:
    """Move of a node rank, with all its ranks, from one host to another."""

    node_rank: int
    first_rank: int
    last_rank: int
    old: Host
    new: Host


def find_vacancies(
    plan: AnyPlan, drained: Iterable[str], suggest_smaller: Callable[[int], str], sink: Sink
) -> HostVacancies | None:
    """Return the node ranks on drained hosts, and the free hosts that can replace these hosts.

    Returns None after an error: a drained host is not in the cluster (H03), or there are too few
    free hosts (T11). ``suggest_smaller`` is a function: number of hosts -> help text of T11, which
    names the largest plan that fits on this number of hosts.
    """
    # Sorted, so that the result does not depend on the order of the --drain options.
    names = tuple(sorted(set(drained), key=natural_key))
    cluster, hosts = plan.problem.cluster, plan.placement.hosts
    all_hosts = (*cluster.hosts, *cluster.spare)
    if not check_drained_names(names, all_hosts, cluster, sink):
        return None
    gone = set(names)
    busy = gone | {host.name for host in hosts}
    # ``all_hosts`` lists the spare hosts last, so idle hosts come first.
    free = tuple(host for host in all_hosts if host.name not in busy)
    lost = tuple(node for node, host in enumerate(hosts) if host.name in gone)
    if len(free) < len(lost):
        help_ = suggest_smaller(len(hosts) - len(lost) + len(free))
        _report_too_few_hosts(plan, [hosts[node].name for node in lost], len(free), help_, sink)
        return None
    return HostVacancies(names, all_hosts, lost, free)


def list_moves(
    plan: AnyPlan, lost: Iterable[int], hosts: tuple[Host, ...]
) -> tuple[NodeRankMove, ...]:
    """Return, for each node rank in ``lost``, the move from its host in ``plan`` to a new host.

    The new host is ``hosts[node rank]``.
    """
    old, each = plan.placement.hosts, plan.placement.ranks_per_node
    return tuple(
        NodeRankMove(node, node * each, node * each + each - 1, old[node], hosts[node])
        for node in lost
    )


def check_drained_names(
    names: tuple[str, ...], hosts: Iterable[Host], cluster: Cluster, sink: Sink
) -> bool:
    """Return True if every drained name is a host of the cluster; otherwise report the names (H03).

    A host that the spec already lists as unavailable is accepted, so that the same drain can be
    repeated.
    """
    known = {host.name for host in hosts} | set(cluster.unavailable)
    unknown = [name for name in names if name not in known]
    if not cluster.named and names:
        finding = Finding(
            "the spec has no host names, so no host can be drained by name",
            help="list hosts by name under cluster.racks, or let the scheduler replace the host",
        )
        sink.report("H03", finding, at="cluster.nodes")
        return False
    for name in unknown:
        near = similar_hosts(name, known)
        finding = Finding(
            f"host {name} is not in the cluster of {len(known)} hosts",
            label="unknown host",
            help=f"did you mean {' or '.join(near)}?"
            if near
            else f"hosts of the cluster: {compress_hosts(known)[:MOST_LISTED]}",
        )
        sink.report("H03", finding, span=DRAIN)
    return not unknown


def _report_too_few_hosts(
    plan: AnyPlan, lost: list[str], free: int, suggestion: str, sink: Sink
) -> None:
    """Report that there are too few free hosts to replace the drained ones (T11)."""
    placement = plan.placement
    world, spare = placement.dense.world, len(plan.problem.cluster.spare)
    finding = Finding(
        f"too few free hosts: {len(lost)} needed to replace {compress_hosts(lost)}, {free} free",
        label=f"the {world} ranks of this plan need {len(placement.hosts)} hosts",
        help=suggestion,
        fix="add a host under cluster.spare, or compile a smaller plan",
        causes=(Cause("cluster.spare", f"spare hosts without ranks: {spare}"),),
    )
    sink.report("T11", finding, span=DRAIN)


def restore_cluster(cluster: Cluster, locked: LockedPlan | None) -> Cluster | None:
    """Return ``cluster`` without the hosts that the lock lists as drained.

    The spare hosts that the locked plan uses become usable hosts. Returns None if there is no lock,
    or if a host of the locked plan is not in the spec or is listed as unavailable (in the spec or
    in the lock).
    """
    if locked is None or not locked.hosts:
        return None
    gone, spare = set(locked.unavailable), {host.name for host in cluster.spare}
    usable = spare | {host.name for host in cluster.hosts}
    wanted = set(locked.hosts)
    # A host that is listed twice would get the ranks of two hosts.
    if len(wanted) != len(locked.hosts) or not wanted <= usable - gone:
        return None
    return drained_cluster(cluster, gone, wanted & spare)


def drained_cluster(cluster: Cluster, gone: Collection[str], taken: Collection[str]) -> Cluster:
    """Return ``cluster`` with the hosts ``gone`` unavailable and the spares ``taken`` usable."""
    spare = tuple(one for one in cluster.spare if one.name not in taken and one.name not in gone)
    used = [host for host in cluster.spare if host.name in taken]
    usable = [host for host in cluster.hosts if host.name not in gone]
    # Sorted, so that the result does not depend on the order of the drained hosts.
    fresh = sorted(set(gone) - set(cluster.unavailable), key=natural_key)
    unavailable = (*cluster.unavailable, *fresh)
    return replace(
        cluster_with_hosts(cluster, [*usable, *used]), spare=spare, unavailable=unavailable
    )


def cluster_with_hosts(cluster: Cluster, hosts: Iterable[Host]) -> Cluster:
    """Return ``cluster`` with exactly ``hosts`` as usable hosts, and without spare hosts."""
    racks: dict[str, list[Host]] = {rack.name: [] for rack in cluster.racks}
    for host in hosts:
        racks.setdefault(host.rack, []).append(host)
    kept = tuple(Rack(name, tuple(members)) for name, members in racks.items() if members)
    return replace(cluster, racks=kept, spare=())
