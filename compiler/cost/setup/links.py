"""Time of messages and collectives of a process group, inside and between NVLink domains."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from parc.compiler.cost.kernels.collective_time import (
    CollectiveFit,
    InterDomainNetwork,
    Operation,
    send_seconds,
    two_level_collective_seconds,
)
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.ir import Axis, Cluster, Efficiency
from parc.compiler.ir.frozen import frozen

SOCKETS = 2
"""CPU sockets of a host. A group with one GPU on each of them has no two GPUs near one NIC."""


class GroupSpan(NamedTuple):
    """Distribution of a process group over NVLink domains.

    The group has ``size`` ranks, with up to ``local`` ranks in each domain. A named tuple, because
    hashing one as a cache key takes a quarter of the time.
    """

    size: int
    local: int

    @property
    def domains(self) -> int:
        """Return the number of NVLink domains that the group spans."""
        return -(-self.size // self.local)


def group_span(axes: tuple[Axis, ...], domain: int) -> GroupSpan:
    """Return how a process group along the mesh axes ``axes`` is distributed over NVLink domains.

    Each NVLink domain consists of ``domain`` consecutive ranks.
    """
    size = local = 1
    # From the innermost axis outwards: an axis adds members inside a domain as long as its stride
    # is smaller than the domain.
    for axis in sorted(axes, key=lambda item: item.stride):
        size *= axis.size
        inside = max(1, min(axis.size, domain // axis.stride)) if axis.stride < domain else 1
        local *= inside
    return GroupSpan(size, min(local, size))


@frozen
class Links:
    """Links of a cluster with the rates and latencies that collectives of training reach."""

    domain: int
    """Number of GPUs of an NVLink domain. If the node type has no NVLink domain, the GPUs of a
    host."""
    fits: dict[Operation, CollectiveFit]
    network: InterDomainNetwork
    exchange: InterDomainNetwork | None = None
    """Network in an all-to-all; None if the rate is that of other collectives."""
    shared_nic: InterDomainNetwork | None = None
    """Network of groups with several, but not all, GPUs of a domain, if all their rings use the
    same NIC; None if they use all NICs."""

    @classmethod
    def from_cluster(cls, cluster: Cluster, kernels: KernelFit, row: Efficiency) -> Links:
        """Return the links of ``cluster`` with the rates that collectives reach on them.

        A rate is a data-sheet rate times a measured efficiency factor. ``kernels`` contains the
        factors inside an NVLink domain, ``row`` the factor between domains.
        """
        node = cluster.node
        # The lower limit keeps times finite on a cluster without network data.
        full = max(node.network_gb_per_s_per_gpu, 0.05)
        latency = row.hop_seconds + cluster.fabric.latency_seconds
        share = min(row.network, cluster.fabric.rate_share or 1.0)
        network = InterDomainNetwork(full * share, latency)
        slow = cluster.fabric.all_to_all_rate_share
        exchange = InterDomainNetwork(full * min(share, slow), latency) if slow else None
        # NCCL before 2.12 prefers rings that enter and leave a host through the same NIC. If no two
        # GPUs of a group share a NIC, each group then takes the first NIC of the host, because none
        # is near to both ends of its ring (graph/search.cc, ncclTopoSearchRecNet). Groups of one
        # GPU, and of all GPUs of the host, take the NICs next to their GPUs. Runs on hosts with a
        # NIC per GPU do not show the effect. One busy NIC per host reaches its data-sheet rate:
        # ``network`` is what remains of it if all NICs send through the fabric at the same time.
        shared = None
        if row.shares_first_nic and 1 < node.nics < node.gpus:
            shared = replace(network, gb_per_s_per_gpu=full / node.nics)
        return cls(
            domain=min(node.nvlink_or_host_gpus, max(cluster.gpus, 1)),
            fits={
                operation: fit.scaled_to_link(node.link_gb_per_s)
                for operation, fit in kernels.collectives.items()
            },
            network=network,
            exchange=exchange,
            shared_nic=shared,
        )

    def collective_seconds(self, operation: Operation, nbytes: float, group: GroupSpan) -> float:
        """Return the time in seconds of one collective in ``group``.

        ``nbytes`` is the size of the whole message, before it is divided among the ranks.
        """
        if group.size == 1 or nbytes <= 0:
            return 0.0
        network = self.network
        if operation == "all_to_all" and self.exchange is not None:
            network = self.exchange
        if self.shared_nic is not None and group.local == SOCKETS:
            network = self.shared_nic
        fit = self.fits[operation]
        return two_level_collective_seconds(fit, network, nbytes, group.local, group.domains)

    def message_seconds(self, nbytes: float, stride: int) -> float:
        """Return the time in seconds of one message to the rank ``stride`` ranks away."""
        if stride < self.domain:
            return send_seconds(self.fits["all_to_all"], nbytes)
        return nbytes / (self.network.gb_per_s_per_gpu * 1e9) + self.network.hop_seconds

    def slowest_link_gb_per_s(self, group: GroupSpan) -> float:
        """Return the rate in GB/s per GPU and direction of the slowest link inside ``group``."""
        if group.domains == 1:
            return self.fits["all_gather"].bus_gb_per_s
        return self.network.gb_per_s_per_gpu
