"""Plan and drained hosts -> node ranks that have lost their host, and free hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import AnyPlan, Cluster, Host
from parc.compiler.resolve.resolve_hosts import similar_hosts
from parc.compiler.topology.hostlist import compress, natural_key

DRAIN = Span("--drain", 1, 1)


@dataclass(frozen=True, slots=True)
class Vacancies:
    """Node ranks that need another host, and the hosts that they may get."""

    drained: tuple[str, ...]
    """All drained hosts, of earlier replans too."""
    all_hosts: tuple[Host, ...]
    """All hosts of the cluster, including drained and spare ones."""
    lost: tuple[int, ...]
    """Node ranks of drained hosts, at most as many as ``free`` hosts."""
    free: tuple[Host, ...]
    """Idle hosts in the order of the spec, then spare hosts."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move of all ranks of one node rank to another host."""

    node_rank: int
    first_rank: int
    last_rank: int
    old: Host
    new: Host


def find_vacancies(
    plan: AnyPlan, drained: Iterable[str], suggest_smaller: Callable[[int], str], sink: Sink
) -> Vacancies | None:
    """Return the node ranks on drained hosts and the free hosts.

    ``suggest_smaller`` returns a help text with the nearest plan for a number of hosts. None after
    H03 (the cluster has no such host) or T11 (too few free hosts).
    """
    names = tuple(sorted(set(drained), key=natural_key))
    cluster, hosts = plan.problem.cluster, plan.placement.hosts
    all_hosts = (*cluster.hosts, *cluster.spare)
    if not _check_names(names, all_hosts, cluster, sink):
        return None
    gone = set(names)
    busy = gone | {host.name for host in hosts}
    free = tuple(host for host in all_hosts if host.name not in busy)
    lost = tuple(node for node, host in enumerate(hosts) if host.name in gone)
    if len(free) < len(lost):
        help_ = suggest_smaller(len(hosts) - len(lost) + len(free))
        _report_too_few(plan, [hosts[node].name for node in lost], len(free), help_, sink)
        return None
    return Vacancies(names, all_hosts, lost, free)


def moves(plan: AnyPlan, lost: Iterable[int], hosts: tuple[Host, ...]) -> tuple[Move, ...]:
    """Return the moves if the ``lost`` node ranks get their hosts in ``hosts``."""
    old, each = plan.placement.hosts, plan.placement.ranks_per_node
    return tuple(
        Move(node, node * each, node * each + each - 1, old[node], hosts[node]) for node in lost
    )


def _check_names(
    names: tuple[str, ...], hosts: Iterable[Host], cluster: Cluster, sink: Sink
) -> bool:
    """Report H03 for names of no host; return True if there are none.

    Hosts that are already unavailable are accepted, so that a drain can be repeated.
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
            help=f"did you mean {' or '.join(near)}?" if near else "",
        )
        sink.report("H03", finding, span=DRAIN)
    return not unknown


def _report_too_few(plan: AnyPlan, lost: list[str], free: int, suggestion: str, sink: Sink) -> None:
    """Report T11: fewer free hosts than drained hosts with ranks."""
    placement = plan.placement
    world, spare = placement.dense.world, len(plan.problem.cluster.spare)
    finding = Finding(
        f"too few free hosts: {len(lost)} needed to replace {compress(lost)}, {free} free",
        label=f"{world} ranks need {len(placement.hosts)} hosts",
        help=suggestion,
        fix="add a host under cluster.spare, or compile a smaller plan",
        causes=(Cause("cluster.spare", f"spare hosts: {spare}"),),
    )
    sink.report("T11", finding, span=DRAIN)
