"""Plan and drained hosts -> which node ranks have lost their host, and which hosts are free."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import AnyPlan, Cluster, Host
from parc.compiler.resolve.expand_hosts import near_hosts
from parc.compiler.topology.hostlist import compress, natural_key

DRAIN = Span("--drain", 1, 1)


@dataclass(frozen=True, slots=True)
class Vacancies:
    """What a replan has to do, and with what."""

    drained: tuple[str, ...]
    """All hosts that are drained by now."""
    everyone: tuple[Host, ...]
    """All hosts that the cluster knows, drained and spare ones included."""
    lost: tuple[int, ...]
    """Node ranks of drained hosts; there are at least as many ``free`` hosts."""
    free: tuple[Host, ...]
    """Idle ones in the order of the spec, then spare ones."""

    @property
    def left(self) -> list[Host]:
        """All hosts but the drained ones."""
        gone = set(self.drained)
        return [host for host in self.everyone if host.name not in gone]


@dataclass(frozen=True, slots=True)
class Move:
    """All ranks of one node rank change hosts."""

    node_rank: int
    first_rank: int
    last_rank: int
    old: Host
    new: Host


def find_vacancies(
    plan: AnyPlan, drained: Iterable[str], smaller: Callable[[int], str], sink: Sink
) -> Vacancies | None:
    """What is lost and what is free.

    None with H03 for a host that the cluster lacks, with T11 where fewer hosts are free than
    needed; ``smaller`` names the nearest plan for so many hosts.
    """
    names = tuple(sorted(set(drained), key=natural_key))
    cluster, hosts = plan.problem.cluster, plan.placement.hosts
    everyone = (*cluster.hosts, *cluster.spare)
    if not _known(names, everyone, cluster, sink):
        return None
    gone = set(names)
    busy = gone | {host.name for host in hosts}
    free = tuple(host for host in everyone if host.name not in busy)
    lost = tuple(node for node, host in enumerate(hosts) if host.name in gone)
    if len(free) < len(lost):
        help_ = smaller(len(hosts) - len(lost) + len(free))
        _none_left(plan, [hosts[node].name for node in lost], len(free), help_, sink)
        return None
    return Vacancies(names, everyone, lost, free)


def moves(plan: AnyPlan, lost: Iterable[int], hosts: tuple[Host, ...]) -> tuple[Move, ...]:
    """What changes where ``lost`` node ranks get the hosts that they have in ``hosts``."""
    old, each = plan.placement.hosts, plan.placement.ranks_per_node
    return tuple(
        Move(node, node * each, node * each + each - 1, old[node], hosts[node]) for node in lost
    )


def _known(names: tuple[str, ...], hosts: Iterable[Host], cluster: Cluster, sink: Sink) -> bool:
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


def _none_left(plan: AnyPlan, lost: list[str], free: int, smaller: str, sink: Sink) -> None:
    """T11: fewer free hosts than drained ones; names the nearest smaller plan."""
    placement = plan.placement
    world, spare = placement.dense.world, len(plan.problem.cluster.spare)
    finding = Finding(
        f"drained hosts with ranks: {len(lost)} ({compress(lost)}), free hosts: {free}",
        label=f"{world} ranks need {len(placement.hosts)} hosts",
        help=smaller,
        fix="add a host under cluster.spare, or compile a smaller plan",
        causes=(Cause("cluster.spare", f"spare hosts: {spare}"),),
    )
    sink.report("T11", finding, span=DRAIN)
