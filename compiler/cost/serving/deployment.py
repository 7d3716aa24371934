"""Deployment: a model on a cluster under one layout, with the rates of its kernels and links.

Small collectives of serving need their latency, and the bytes over the slowest link of the group.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.serving.shard import Shard, build_shard
from parc.compiler.ir import Cluster, Model, ServingEfficiency
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving import ServingLayout, ServingSetup

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


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on a cluster under one layout, with the values that do not change between steps."""

    model: Model
    cluster: Cluster
    setup: ServingSetup
    layout: ServingLayout
    shard: Shard
    hardware: ServingEfficiency
    links: ServingLinks

    @property
    def engine(self) -> EngineConstants:
        """Constants of the engine."""
        return self.setup.engine

    @property
    def memory_rate(self) -> float:
        """Bytes per second that a streaming kernel reaches."""
        return self.cluster.gpu.memory_gb_per_s * 1e9 * self.hardware.memory

    def weight_rate(self, bytes_per_weight: float) -> float:
        """Return the bytes per second at which weights of ``bytes_per_weight`` are read."""
        row = self.hardware
        share = row.memory_fp4 if bytes_per_weight < 1 else row.memory
        return self.cluster.gpu.memory_gb_per_s * 1e9 * share

    def gemm_rate(self, bytes_per_weight: float) -> float:
        """Return the FLOP/s of GEMMs with ``bytes_per_weight``; int4 weights compute in 16 bit."""
        gpu = self.cluster.gpu
        wide = (gpu.peak("bf16") or gpu.peak("fp16") or 1.0) * self.hardware.gemm
        if bytes_per_weight > 1.5 or self.setup.weights == "int4":
            return wide * 1e12
        if self.setup.weights == "nvfp4" and gpu.peak("nvfp4"):
            return (gpu.peak("nvfp4") or 1.0) * self.hardware.gemm_fp4 * 1e12
        fp8 = gpu.peak("fp8")
        return (fp8 * self.hardware.gemm_fp8 if fp8 else wide) * 1e12

    @property
    def attention_rate(self) -> float:
        """FLOP/s of the attention core."""
        gpu = self.cluster.gpu
        peak = gpu.peak("bf16") or gpu.peak("fp16") or 1.0
        return peak * self.hardware.attention * 1e12

    def gemm_seconds(self, weights: float, rows: float, nbytes: float) -> float:
        """Return the seconds of GEMMs over ``weights`` elements in total and ``rows`` tokens."""
        read = weights * nbytes / self.weight_rate(nbytes)
        return max(read, 2 * weights * rows / self.gemm_rate(nbytes))


def deploy(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout
) -> Deployment:
    """Compute the values of a deployment that do not change between steps."""
    return Deployment(
        model,
        cluster,
        setup,
        layout,
        build_shard(model, layout, setup),
        cluster.generation.serving,
        ServingLinks.of(cluster, cluster.generation.serving),
    )
