"""A model on a cluster under one layout, with the rates that its kernels reach."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.serving.links import ServingLinks
from parc.compiler.cost.serving.shard import Shard, build_shard
from parc.compiler.ir import Cluster, Model, ServingEfficiency
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving import ServingLayout, ServingSetup


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
