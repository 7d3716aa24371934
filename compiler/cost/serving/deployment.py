"""Deployment of a model: a serving layout on a cluster, with the rates of kernels and links.

Collectives of serving are often small: their time needs the latency as well as the bytes over the
slowest link of the group.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from parc.compiler.cost.counts.flops import query_and_value_width
from parc.compiler.cost.serving.draft import draft_layout, draft_setup
from parc.compiler.cost.serving.memory import kv_bytes_per_layer, serving_memory
from parc.compiler.cost.serving.shard import RankWeights, count_rank_weights
from parc.compiler.cost.serving.stages import fullest_stage_memory
from parc.compiler.ir import Cluster, Model, ServingEfficiency
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup

PCIE_SHARE = 0.65
"""Fraction of the one-way PCIe rate that a collective over the host bridge reaches."""
PCIE_SECONDS = 15e-6
"""Latency of a collective over the host bridge. The latency is fitted; the rate is measured (20 of
31.5 GB/s)."""
NETWORK_SECONDS = 30e-6
"""Latency of a collective between hosts on top of the fabric's latency: an assumption."""
NETWORK_SHARE = 0.8
"""Fraction of the network rate that a collective between hosts reaches: an assumption."""
PCIE_GB_PER_S = 31.5
"""Rate of PCIe 4.0 x16 in one direction, used between the NVLink domains of one host."""
LEAST_NETWORK_GB_PER_S = 0.1
"""Lower limit of the network rate, so that a host without network data has a finite time."""
RAMP_BYTES = 25e6
"""Message size that sets how fast a link reaches its full rate: much shorter messages get half the
rate of long ones."""
UNPACKING_SHARE = 0.7
"""FLOP/s of GEMMs that unpack 4-bit weights to 16 bit, divided by those with 16-bit weights. Fitted
to 209 published rows of GPT-OSS-120B on H100 and H200: 0.5 with vLLM, 0.9 with TensorRT-LLM."""


def _bytes_with_ramp(nbytes: float) -> float:
    """Return ``nbytes`` plus the bytes that are lost until the link reaches its full rate."""
    return nbytes + RAMP_BYTES * nbytes / (nbytes + RAMP_BYTES)


@frozen
class ServingLinks:
    """Rates that collectives reach, in GB/s per GPU and direction, and latencies in seconds."""

    domain: int
    """GPUs connected by NVLink or xGMI; 1 if the hosts have no such links."""
    host: int
    """GPUs per host, or per NVLink domain if that is larger."""
    link_gb_per_s: float
    pcie_gb_per_s: float
    network_gb_per_s: float
    link_seconds: float
    network_seconds: float

    @classmethod
    def from_cluster(cls, cluster: Cluster, row: ServingEfficiency) -> ServingLinks:
        """Return the rates and latencies that collectives reach on the links of ``cluster``.

        The rates are data-sheet rates times efficiency factors. For links inside a domain, the
        factor of the GPU generation (``row``) is used. For PCIe and network, the factors are
        constants of this module.
        """
        node = cluster.node
        nvlink = node.link_kind != "pcie" and node.nvlink_domain > 1
        # If GPUs are linked by PCIe, their link rate is that of PCIe; else PCIe 4.0 is assumed
        # between domains.
        pcie = node.link_gb_per_s if node.link_kind == "pcie" else PCIE_GB_PER_S
        share = min(NETWORK_SHARE, cluster.fabric.rate_share or 1.0)
        network = node.network_gb_per_s_per_gpu * share
        return cls(
            domain=node.nvlink_domain if nvlink else 1,
            host=max(node.gpus, node.nvlink_domain),
            link_gb_per_s=node.link_gb_per_s * row.link,
            pcie_gb_per_s=pcie * PCIE_SHARE,
            network_gb_per_s=max(network, LEAST_NETWORK_GB_PER_S),
            link_seconds=row.collective_seconds,
            network_seconds=NETWORK_SECONDS + cluster.fabric.latency_seconds,
        )

    def _slowest_link(self, size: int) -> tuple[float, float]:
        """Return (bytes per second, latency in seconds) of the slowest link in a group of ranks.

        ``size`` is the number of ranks; they are neighbors.
        """
        if size <= self.domain:
            return self.link_gb_per_s * 1e9, self.link_seconds
        if size <= self.host:
            return self.pcie_gb_per_s * 1e9, PCIE_SECONDS
        return self.network_gb_per_s * 1e9, self.network_seconds

    def all_reduce_seconds(self, nbytes: float, size: int) -> float:
        """Return the time in seconds of an all-reduce over ``size`` neighboring ranks.

        The formula is latency + 2 (n-1)/n S / rate for n ranks and S bytes (``nbytes``).
        """
        if size == 1:
            return 0.0
        rate, latency = self._slowest_link(size)
        return latency + 2 * (size - 1) / size * _bytes_with_ramp(nbytes) / rate

    def gather_seconds(self, nbytes: float, size: int, stride: int = 1) -> float:
        """Return the time in seconds of an all-gather or of a reduce-scatter.

        ``nbytes`` is the size of the whole message: the gathered output, or the input that is
        scattered. The group has ``size`` ranks, and neighboring members are ``stride`` ranks
        apart.
        """
        if size == 1:
            return 0.0
        rate, latency = self._slowest_link((size - 1) * stride + 1)
        return latency + (size - 1) / size * _bytes_with_ramp(nbytes) / rate

    def all_to_all_seconds(self, nbytes: float, size: int) -> float:
        """Return the time in seconds of an all-to-all among ``size`` neighboring ranks.

        Each rank sends ``nbytes`` bytes in total. Traffic inside the NVLink domain overlaps with
        traffic between domains.
        """
        if size == 1:
            return 0.0
        rate, latency = self._slowest_link(size)
        long = _bytes_with_ramp(nbytes)
        # A rank sends (near - 1)/size of its bytes inside its domain and the remainder across
        # domains.
        near = min(size, self.domain)
        inside = (near - 1) / size * long / (self.link_gb_per_s * 1e9)
        outside = (size - near) / size * long / rate
        return latency + max(inside, outside)

    def message_seconds(self, nbytes: float, stride: int) -> float:
        """Return the time in seconds of one message to a rank ``stride`` ranks away."""
        rate, latency = self._slowest_link(stride + 1)
        return latency + nbytes / rate


@frozen(slots=False)  # without slots, so that the rates below can be cached
class Deployment:
    """Model on a cluster under one serving layout, with the rates that the hardware reaches."""

    model: Model
    cluster: Cluster
    setup: ServingSetup
    layout: ServingLayout
    shard: RankWeights
    hardware: ServingEfficiency
    links: ServingLinks
    draft: Deployment | None = None
    """Draft of speculative decoding on the same ranks; None without layers of a draft."""
    micro_batches: int = 1
    """Number of ranks that the micro-batches of a pipeline count as (``micro_batches.py``). Each of
    them has its own requests, and runs on all stages."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks of an engine that have their own requests."""
        return self.layout.dp * self.micro_batches

    @property
    def rank_micro_batches(self) -> float:
        """Return the mean number of micro-batches that each of these ranks runs per step."""
        return self.layout.pp / self.micro_batches

    @cached_property
    def rank_setup(self) -> ServingSetup:
        """Return the setup with the scheduler's limits for one of these ranks."""
        if self.layout.pp == 1:
            return self.setup
        return replace(
            self.setup,
            max_running=max(self.setup.running_limit // self.micro_batches, 1),
            max_batched_tokens=round(self.setup.step_token_limit * self.rank_micro_batches),
        )

    @property
    def rank_cache_bytes(self) -> float:
        """Return the bytes of KV cache of one of these ranks, on each of its GPUs."""
        return self.memory.kv_bytes / self.micro_batches

    @property
    def engine(self) -> EngineConstants:
        """Return the constants of the serving engine."""
        return self.setup.engine

    @cached_property
    def memory(self) -> ServingMemory:
        """Return the memory of the fullest rank."""
        budget = fullest_stage_memory if self.layout.stages else serving_memory
        return budget(self.model, self.cluster, self.setup, self.layout, self.shard)

    @cached_property
    def memory_bytes_per_second(self) -> float:
        """Return the memory bandwidth in bytes per second that an element-wise kernel reaches."""
        return self.cluster.gpu.memory_gb_per_s * 1e9 * self.hardware.memory

    def weight_bytes_per_second(self, bytes_per_weight: float) -> float:
        """Return the rate in bytes per second at which GEMMs read weights.

        ``bytes_per_weight`` selects the number format; weights of less than 1 byte have another
        rate.
        """
        row = self.hardware
        share = row.memory_fp4 if bytes_per_weight < 1 else row.memory
        return self.cluster.gpu.memory_gb_per_s * 1e9 * share

    def gemm_flops_per_second(self, bytes_per_weight: float) -> float:
        """Return the FLOP/s that GEMMs reach if each weight has ``bytes_per_weight`` bytes.

        int4 and mxfp4 weights are unpacked and multiplied in 16 bit. Without 4-bit tensor cores,
        this takes longer.
        """
        gpu = self.cluster.gpu
        wide = (gpu.peak_rate("bf16") or gpu.peak_rate("fp16") or 1.0) * self.hardware.gemm
        if bytes_per_weight > 1.5:
            return wide * 1e12
        if self.setup.weights in ("int4", "mxfp4"):
            return wide * (1.0 if gpu.peak_rate("nvfp4") else UNPACKING_SHARE) * 1e12
        if self.setup.weights == "nvfp4" and gpu.peak_rate("nvfp4"):
            return (gpu.peak_rate("nvfp4") or 1.0) * self.hardware.gemm_fp4 * 1e12
        # GPUs without 4-bit tensor cores compute nvfp4 weights in 8 bit, or in 16 bit without 8-bit
        # ones.
        fp8 = gpu.peak_rate("fp8")
        return (fp8 * self.hardware.gemm_fp8 if fp8 else wide) * 1e12

    @cached_property
    def attention_flops_per_second(self) -> float:
        """Return the FLOP/s that the attention core reaches."""
        gpu = self.cluster.gpu
        peak = gpu.peak_rate("bf16") or gpu.peak_rate("fp16") or 1.0
        return peak * self.hardware.attention * 1e12

    def gemm_seconds(self, weights: float, rows: float, nbytes: float) -> float:
        """Return the time in seconds of GEMMs that multiply ``rows`` tokens with weight matrices.

        ``weights`` is the total number of weights, and each weight has ``nbytes`` bytes.
        """
        if not weights:
            return 0.0
        rates = self.gemm_rates(nbytes)
        # Roofline: the longer of reading the weights and multiplying them.
        return max(weights * nbytes / rates[0], 2 * weights * rows / rates[1])

    def gemm_rates(self, nbytes: float) -> tuple[float, float]:
        """Return (bytes per second, FLOP/s) of GEMMs whose weights have ``nbytes`` bytes each."""
        rates = self._gemm_rates.get(nbytes)
        if rates is None:
            rates = (self.weight_bytes_per_second(nbytes), self.gemm_flops_per_second(nbytes))
            self._gemm_rates[nbytes] = rates
        return rates

    @cached_property
    def attention_widths(self) -> tuple[float, float]:
        """Return the widths that a decoding request and a prompt multiply with each key.

        Each is the sum of the widths of queries and values over all heads.
        """
        attention = self.model.attention
        width = decoded = sum(
            share * query_and_value_width(one) for one, share in self.model.attention_models
        )
        if attention.latent is not None:  # absorbed: scores over the latent, values are the latent
            latent = attention.latent
            decoded = attention.heads * (2 * latent.kv_lora_rank + latent.qk_rope_dim)
        return decoded, width

    @cached_property
    def compresses_cache(self) -> bool:
        """True if an attention layer stores compressed entries instead of every key."""
        return any(one.attention.compression for one, _ in self.model.attention_models)

    @cached_property
    def kv_bytes_per_layer(self) -> float:
        """Return the bytes that one attention layer caches per token on one rank."""
        return kv_bytes_per_layer(self.model, self.layout.tp, self.setup)

    def reload_seconds(self, bytes_per_gpu: float) -> float:
        """Return the seconds that a GPU takes to load a part of its cache from host memory."""
        return bytes_per_gpu / (self.cluster.generation.host_link_gb_per_s * 1e9)

    @cached_property
    def prompt_step_seconds(self) -> dict[object, float]:
        """Return the cache {work of a step without decoding requests: seconds}."""
        return {}

    @cached_property
    def _gemm_rates(self) -> dict[float, tuple[float, float]]:
        """Return the cache {bytes per weight: (bytes per second, FLOP/s)} of GEMM rates.

        The cache is filled by ``gemm_rates``.
        """
        return {}


def build_deployment(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout
) -> Deployment:
    """Return the deployment of ``model`` on ``cluster`` under ``layout``."""
    draft, drafted = setup.speculative, None
    if draft is not None and draft.model is not None:
        layout_of_draft = draft_layout(draft.model, layout)
        drafted = build_deployment(draft.model, cluster, draft_setup(setup), layout_of_draft)
    return Deployment(
        model,
        cluster,
        setup,
        layout,
        count_rank_weights(model, layout, setup),
        cluster.generation.serving,
        ServingLinks.from_cluster(cluster, cluster.generation.serving),
        drafted,
    )
