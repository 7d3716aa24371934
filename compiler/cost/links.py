"""How fast a group talks: where its members sit, and what link that leaves them."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.efficiency import efficiency
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
    """Bandwidths of a cluster, decimal GB/s, one direction, per GPU, as training sees them."""

    domain: int
    link_gb_per_s: float
    network_gb_per_s: float
    link_latency_seconds: float
    network_latency_seconds: float

    @classmethod
    def of(cls, cluster: Cluster) -> Links:
        """Data-sheet rates times the stated efficiency of the GPU's generation."""
        row = efficiency(cluster.gpu)
        node = cluster.node
        # Where there is no NVLink domain, PCIe inside the host plays its part.
        domain = node.nvlink_domain if node.nvlink_domain > 1 else node.gpus
        network = node.network_gb_per_s_per_gpu * row.network
        return cls(
            domain=min(domain, max(cluster.gpus, 1)),
            link_gb_per_s=node.link_gb_per_s * row.link,
            network_gb_per_s=max(network, 0.1),
            link_latency_seconds=row.link_latency_seconds,
            network_latency_seconds=row.link_latency_seconds + cluster.fabric.latency_seconds,
        )

    def ring_seconds(self, nbytes: float, group: Reach) -> float:
        """One all-gather or reduce-scatter of ``nbytes`` in total over ``group``.

        Two levels: (k-1)/k S over NVLink inside a domain of k members, and between n domains
        (n-1)/n S over the NICs of those k members together.
        """
        if group.size == 1 or nbytes == 0:
            return 0.0
        k, n = group.local, group.domains
        seconds = 0.0
        if k > 1:
            seconds += (k - 1) / k * nbytes / (self.link_gb_per_s * 1e9) + self.link_latency_seconds
        if n > 1:
            wire = min(k * self.network_gb_per_s, self.link_gb_per_s if k > 1 else 1e30)
            hops = min(n - 1, 8)
            seconds += (n - 1) / n * nbytes / (wire * 1e9) + hops * self.network_latency_seconds
        return seconds

    def all_to_all_seconds(self, nbytes: float, group: Reach) -> float:
        """One all-to-all in which every rank sends ``nbytes`` in all.

        (k-1)/n of it stays in the domain, the rest leaves through the rank's own NIC share.
        """
        if group.size == 1 or nbytes == 0:
            return 0.0
        inside = (group.local - 1) / group.size * nbytes / (self.link_gb_per_s * 1e9)
        outside = (group.size - group.local) / group.size * nbytes / (self.network_gb_per_s * 1e9)
        latency = self.link_latency_seconds if outside == 0 else self.network_latency_seconds
        return max(inside, outside) + latency

    def hop_seconds(self, nbytes: float, stride: int) -> float:
        """One point-to-point message between ranks ``stride`` apart."""
        if stride < self.domain:
            return nbytes / (self.link_gb_per_s * 1e9) + self.link_latency_seconds
        return nbytes / (self.network_gb_per_s * 1e9) + self.network_latency_seconds

    def gb_per_s(self, group: Reach) -> float:
        """The bandwidth that the slowest part of ``group`` gets."""
        return self.link_gb_per_s if group.domains == 1 else self.network_gb_per_s
