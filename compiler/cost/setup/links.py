"""Bandwidth and latency between the members of a process group, by where they sit."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kernels.collective_time import (
    CollectiveFit,
    Network,
    Operation,
    send_seconds,
    two_level_seconds,
)
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.ir import Axis, Cluster, Efficiency


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """Distribution of a group's ``size`` members: ``local`` of them share each NVLink domain."""

    size: int
    local: int

    @property
    def domains(self) -> int:
        """NVLink domains that the group spans."""
        return -(-self.size // self.local)


def group_span(axes: tuple[Axis, ...], domain: int) -> GroupSpan:
    """Return the span of a group over ``axes``; domains are aligned blocks of ``domain`` ranks."""
    size = local = 1
    for axis in sorted(axes, key=lambda item: item.stride):
        size *= axis.size
        inside = max(1, min(axis.size, domain // axis.stride)) if axis.stride < domain else 1
        local *= inside
    return GroupSpan(size, min(local, size))


@dataclass(frozen=True, slots=True)
class Links:
    """Links of a cluster at the rates that training reaches."""

    domain: int
    """GPUs of an NVLink domain; GPUs of a host if the node type has no such domain."""
    fits: dict[Operation, CollectiveFit]
    network: Network

    @classmethod
    def of(cls, cluster: Cluster, kernels: KernelFit, row: Efficiency) -> Links:
        """Return the measured shares of the data-sheet rates of this cluster's links and NICs."""
        node = cluster.node
        rate = max(node.network_gb_per_s_per_gpu * row.network, 0.05)
        return cls(
            domain=min(node.near_gpus, max(cluster.gpus, 1)),
            fits={
                operation: fit.at_link(node.link_gb_per_s)
                for operation, fit in kernels.collectives.items()
            },
            network=Network(rate, row.hop_seconds + cluster.fabric.latency_seconds),
        )

    def seconds(self, operation: Operation, nbytes: float, group: GroupSpan) -> float:
        """Return the time of one collective in seconds.

        ``nbytes`` is the size of the whole message, before it is divided among the ranks.
        """
        if group.size == 1 or nbytes <= 0:
            return 0.0
        fit = self.fits[operation]
        return two_level_seconds(fit, self.network, nbytes, group.local, group.domains)

    def hop_seconds(self, nbytes: float, stride: int) -> float:
        """Return the time of one point-to-point message between ranks ``stride`` apart."""
        if stride < self.domain:
            return send_seconds(self.fits["all_to_all"], nbytes)
        return nbytes / (self.network.gb_per_s_per_gpu * 1e9) + self.network.hop_seconds

    def gb_per_s(self, group: GroupSpan) -> float:
        """Return the rate of the widest level that ``group`` spans, one direction, per GPU."""
        if group.domains == 1:
            return self.fits["all_gather"].bus_gb_per_s
        return self.network.gb_per_s_per_gpu
