"""Small collectives of serving: latency first, then bytes over the slowest link of the group."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Cluster, ServingEfficiency

PCIE_SHARE = 0.65
"""Of the one-way PCIe rate in a collective over the host bridge."""
PCIE_SECONDS = 15e-6
"""One collective over the host bridge. Fitted; its share is measured (20 of 31.5 GB/s)."""
NETWORK_SECONDS = 30e-6
"""One collective between hosts beside the fabric's latency: an assumption."""
NETWORK_SHARE = 0.8
PCIE_GB_PER_S = 31.5
"""PCIe 4.0 x16, for hosts whose NVLink domain is smaller than the host."""


RAMP_BYTES = 25e6
"""Messages much shorter than this get half the rate of long ones."""


def _ramp(nbytes: float) -> float:
    """Bytes by which a message counts longer for not filling the link."""
    return RAMP_BYTES * nbytes / (nbytes + RAMP_BYTES)


@dataclass(frozen=True, slots=True)
class ServingLinks:
    """Rates in GB/s, one direction, per GPU, as collectives reach them."""

    domain: int
    """GPUs that NVLink (xGMI) joins; 1 where there is none."""
    host: int
    link_gb_per_s: float
    pcie_gb_per_s: float
    network_gb_per_s: float
    link_seconds: float
    network_seconds: float

    @classmethod
    def of(cls, cluster: Cluster, row: ServingEfficiency) -> ServingLinks:
        """From data-sheet rates and the shares of the GPU's generation."""
        node = cluster.node
        nvlink = node.link_kind != "pcie" and node.nvlink_domain > 1
        pcie = node.link_gb_per_s if node.link_kind == "pcie" else PCIE_GB_PER_S
        return cls(
            domain=node.nvlink_domain if nvlink else 1,
            host=max(node.gpus, node.nvlink_domain),
            link_gb_per_s=node.link_gb_per_s * row.link,
            pcie_gb_per_s=pcie * PCIE_SHARE,
            network_gb_per_s=max(node.network_gb_per_s_per_gpu * NETWORK_SHARE, 0.1),
            link_seconds=row.collective_seconds,
            network_seconds=NETWORK_SECONDS + cluster.fabric.latency_seconds,
        )

    def _path(self, size: int) -> tuple[float, float]:
        """(bytes a second, latency) of the widest link that a group of ``size`` crosses."""
        if size <= self.domain:
            return self.link_gb_per_s * 1e9, self.link_seconds
        if size <= self.host:
            return self.pcie_gb_per_s * 1e9, PCIE_SECONDS
        return self.network_gb_per_s * 1e9, self.network_seconds

    def all_reduce_seconds(self, nbytes: float, size: int) -> float:
        """All-reduce of ``nbytes`` over ``size`` neighbours: latency + 2 (n-1)/n S/B."""
        if size == 1:
            return 0.0
        rate, latency = self._path(size)
        return latency + 2 * (size - 1) / size * (nbytes + _ramp(nbytes)) / rate

    def gather_seconds(self, nbytes: float, size: int, stride: int = 1) -> float:
        """All-gather to (or reduce-scatter of) ``nbytes`` over ``size`` ranks ``stride`` apart."""
        if size == 1:
            return 0.0
        rate, latency = self._path((size - 1) * stride + 1)
        return latency + (size - 1) / size * (nbytes + _ramp(nbytes)) / rate

    def all_to_all_seconds(self, nbytes: float, size: int) -> float:
        """All-to-all in which each of ``size`` ranks sends ``nbytes``, evenly to all ranks.

        What stays in the NVLink domain and what leaves it go at the same time.
        """
        if size == 1:
            return 0.0
        rate, latency = self._path(size)
        long = nbytes + _ramp(nbytes)
        near = min(size, self.domain)
        inside = (near - 1) / size * long / (self.link_gb_per_s * 1e9)
        outside = (size - near) / size * long / rate
        return latency + max(inside, outside)

    def hop_seconds(self, nbytes: float, stride: int) -> float:
        """One message to a rank ``stride`` away."""
        rate, latency = self._path(stride + 1)
        return latency + nbytes / rate
