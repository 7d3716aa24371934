"""How fast a group talks: where its members sit, and what links that leaves them."""

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
from parc.compiler.cost.setup.efficiency import Efficiency
from parc.compiler.ir import Axis, Cluster


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the members of a group sit: ``size`` in all, ``local`` of them in one NVLink domain."""

    size: int
    local: int

    @property
    def domains(self) -> int:
        """NVLink domains that the group spans."""
        return -(-self.size // self.local)


def reach(axes: tuple[Axis, ...], domain: int) -> Reach:
    """Members of a group over ``axes`` that share an aligned block of ``domain`` ranks."""
    size = local = 1
    for axis in sorted(axes, key=lambda item: item.stride):
        size *= axis.size
        inside = max(1, min(axis.size, domain // axis.stride)) if axis.stride < domain else 1
        local *= inside
    return Reach(size, min(local, size))


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a cluster as training sees them."""

    domain: int
    """GPUs of an NVLink domain; of a host where there is none."""
    fits: dict[Operation, CollectiveFit]
    network: Network

    @classmethod
    def of(cls, cluster: Cluster, kernels: KernelFit, row: Efficiency) -> Links:
        """Measured shares of the data-sheet rates of this cluster's links and NICs."""
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

    def seconds(self, operation: Operation, nbytes: float, group: Reach) -> float:
        """One collective; ``nbytes`` is the whole message (``collectives.collective_seconds``)."""
        if group.size == 1 or nbytes <= 0:
            return 0.0
        fit = self.fits[operation]
        return two_level_seconds(fit, self.network, nbytes, group.local, group.domains)

    def hop_seconds(self, nbytes: float, stride: int) -> float:
        """One point-to-point message between ranks ``stride`` apart."""
        if stride < self.domain:
            return send_seconds(self.fits["all_to_all"], nbytes)
        return nbytes / (self.network.gb_per_s_per_gpu * 1e9) + self.network.hop_seconds

    def gb_per_s(self, group: Reach) -> float:
        """The bandwidth of the widest level that ``group`` spans, one direction, per GPU."""
        if group.domains == 1:
            return self.fits["all_gather"].bus_gb_per_s
        return self.network.gb_per_s_per_gpu
