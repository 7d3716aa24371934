"""A model on a cluster under one layout, with the rates that its kernels reach."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.serving.constants import ENGINES, Engine
from parc.compiler.cost.serving.links import ServingLinks
from parc.compiler.cost.serving.shard import Shard, shard
from parc.compiler.ir import Cluster, Model, ServingEfficiency
from parc.compiler.ir.serving import ServingLayout, ServingSetup


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on a cluster under one layout, with everything that a step needs, worked out."""

    model: Model
    cluster: Cluster
    setup: ServingSetup
    layout: ServingLayout
    shard: Shard
    hardware: ServingEfficiency
    engine: Engine
    links: ServingLinks

    @property
    def memory_rate(self) -> float:
        """Bytes a second that a streaming kernel reaches."""
        return self.cluster.gpu.memory_gb_per_s * 1e9 * self.hardware.memory

    def weight_rate(self, bytes_per_weight: float) -> float:
        """Bytes a second at which weights of that many bytes are read."""
        row = self.hardware
        share = row.memory_fp4 if bytes_per_weight < 1 else row.memory
        return self.cluster.gpu.memory_gb_per_s * 1e9 * share

    def gemm_rate(self, bytes_per_weight: float) -> float:
        """FLOP/s of GEMMs whose weights take ``bytes_per_weight``; int4 computes in 16 bit."""
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
        """One or more GEMMs over ``weights`` elements in all and ``rows`` tokens."""
        read = weights * nbytes / self.weight_rate(nbytes)
        return max(read, 2 * weights * rows / self.gemm_rate(nbytes))


def deploy(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout
) -> Deployment:
    """Work out what does not change from step to step."""
    return Deployment(
        model,
        cluster,
        setup,
        layout,
        shard(model, layout),
        cluster.generation.serving,
        ENGINES[setup.engine],
        ServingLinks.of(cluster, cluster.generation.serving),
    )
