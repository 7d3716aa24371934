"""Small collectives of serving: latency, and bytes over the slowest link of the group."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Cluster, ServingEfficiency

PCIE_SHARE = 0.65
"""Fraction of the one-way PCIe rate that a collective over the host bridge reaches."""
PCIE_SECONDS = 15e-6
"""Latency of a collective over the host bridge. Fitted; its rate is measured (20 of 31.5 GB/s)."""
NETWORK_SECONDS = 30e-6
"""Latency of a collective between hosts on top of the fabric's latency: an assumption."""
NETWORK_SHARE = 0.8
"""Fraction of the network rate that a collective between hosts reaches: an assumption."""
PCIE_GB_PER_S = 31.5
"""PCIe 4.0 x16, for hosts whose NVLink domain is smaller than the host."""
LEAST_NETWORK_GB_PER_S = 0.1
"""Lower limit of the network rate, so that a host without network data has a finite time."""
RAMP_BYTES = 25e6
"""Messages much shorter than this reach half the rate of long ones."""


def _with_ramp(nbytes: float) -> float:
    """Return ``nbytes`` plus the bytes that a message too short to fill the link costs in time."""
    return nbytes + RAMP_BYTES * nbytes / (nbytes + RAMP_BYTES)


@dataclass(frozen=True, slots=True)
class ServingLinks:
    """Rates that collectives reach, in GB/s per GPU and direction, and their latencies."""

    domain: int
    """GPUs connected by NVLink or xGMI; 1 without such links."""
    host: int
    """GPUs per host, or per NVLink domain if that is larger."""
    link_gb_per_s: float
    pcie_gb_per_s: float
    network_gb_per_s: float
    link_seconds: float
    network_seconds: float

    @classmethod
    def of(cls, cluster: Cluster, row: ServingEfficiency) -> ServingLinks:
        """Compute the rates from data-sheet rates and the shares of the GPU generation."""
        node = cluster.node
        nvlink = node.link_kind != "pcie" and node.nvlink_domain > 1
        pcie = node.link_gb_per_s if node.link_kind == "pcie" else PCIE_GB_PER_S
        network = node.network_gb_per_s_per_gpu * NETWORK_SHARE
        return cls(
            domain=node.nvlink_domain if nvlink else 1,
            host=max(node.gpus, node.nvlink_domain),
            link_gb_per_s=node.link_gb_per_s * row.link,
            pcie_gb_per_s=pcie * PCIE_SHARE,
            network_gb_per_s=max(network, LEAST_NETWORK_GB_PER_S),
            link_seconds=row.collective_seconds,
            network_seconds=NETWORK_SECONDS + cluster.fabric.latency_seconds,
        )

    def _path(self, size: int) -> tuple[float, float]:
        """Return (bytes per second, latency) of the slowest link that ``size`` ranks cross."""
        if size <= self.domain:
            return self.link_gb_per_s * 1e9, self.link_seconds
        if size <= self.host:
            return self.pcie_gb_per_s * 1e9, PCIE_SECONDS
        return self.network_gb_per_s * 1e9, self.network_seconds

    def all_reduce_seconds(self, nbytes: float, size: int) -> float:
        """Return the seconds of an all-reduce over ``size`` neighbours: latency + 2 (n-1)/n S/B."""
        if size == 1:
            return 0.0
        rate, latency = self._path(size)
        return latency + 2 * (size - 1) / size * _with_ramp(nbytes) / rate

    def gather_seconds(self, nbytes: float, size: int, stride: int = 1) -> float:
        """Return the seconds of an all-gather or reduce-scatter of ``nbytes`` in total.

        The group has ``size`` ranks, ``stride`` ranks apart.
        """
        if size == 1:
            return 0.0
        rate, latency = self._path((size - 1) * stride + 1)
        return latency + (size - 1) / size * _with_ramp(nbytes) / rate

    def all_to_all_seconds(self, nbytes: float, size: int) -> float:
        """Return the seconds of an all-to-all; each of ``size`` ranks sends ``nbytes`` in total.

        Traffic inside the NVLink domain and traffic that leaves it overlap.
        """
        if size == 1:
            return 0.0
        rate, latency = self._path(size)
        long = _with_ramp(nbytes)
        near = min(size, self.domain)
        inside = (near - 1) / size * long / (self.link_gb_per_s * 1e9)
        outside = (size - near) / size * long / rate
        return latency + max(inside, outside)

    def hop_seconds(self, nbytes: float, stride: int) -> float:
        """Return the seconds of one message to a rank ``stride`` ranks away."""
        rate, latency = self._path(stride + 1)
        return latency + nbytes / rate
