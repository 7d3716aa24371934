"""Cluster of the spec, changed in the same way as by the replan that wrote the lock file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from parc.compiler.ir import Cluster, Host, LockedPlan, Rack
from parc.compiler.topology.hostlist import natural_key


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
