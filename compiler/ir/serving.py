"""IR types of serving: layout, number formats, traffic, and the estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parc.compiler.ir.engine_constants import EngineConstants, ExtraLayers

WeightPrecision = Literal["bf16", "fp16", "fp8", "int4", "nvfp4"]
WEIGHT_BLOCKS = {"fp8": 128, "int4": 128, "nvfp4": 16}
"""Weights per scale along a split width (DeepSeek's fp8, AWQ and GPTQ, NVIDIA)."""
KvPrecision = Literal["bf16", "fp16", "fp8"]


@dataclass(frozen=True, slots=True)
class ServingLayout:
    """Parallel sizes of one serving deployment.

    Attention is split over ``tp`` and repeated over ``dp``. The experts of a routed layer are
    distributed over the ``tp x pcp x dp`` ranks of a stage: each of ``ep`` groups stores whole
    experts, which the ranks of the group split.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    replicas: int = 1
    """Independent engines behind a load balancer."""
    pcp: int = 1
    """Prefill context parallel size: ranks that share the tokens of a prompt."""
    dcp: int = 1
    """Decode context parallel size: ranks of tp and pcp that share a request's cache."""
    stages: tuple[int, ...] = ()
    """Decoder layers per pipeline stage; empty: the engine's default split."""
    redundant_experts: int = 0
    """Additional copies of busy experts per routed layer."""

    @property
    def rank_gpus(self) -> int:
        """Number of GPUs per data-parallel rank."""
        return self.tp * self.pcp * self.pp

    @property
    def engine_gpus(self) -> int:
        """Number of GPUs per engine."""
        return self.rank_gpus * self.dp

    @property
    def gpus(self) -> int:
        """Number of GPUs of all engines."""
        return self.engine_gpus * self.replicas

    @property
    def expert_tp(self) -> int:
        """Number of ranks that split one expert."""
        return max(self.tp * self.pcp * self.dp // self.ep, 1)


def even_stages(layers: int, pp: int, extra: ExtraLayers) -> tuple[int, ...]:
    """Return the layers per pipeline stage, split as evenly as possible.

    Args:
        layers: decoder layers of the model.
        pp: number of stages.
        extra: stages that get one layer more if ``layers`` is not divisible by ``pp``.
    """
    stages = [layers // pp] * pp
    for one in range(layers % pp):
        stages[one if extra == "first" else -2 - one] += 1
    return tuple(stages)


@dataclass(frozen=True, slots=True)
class ServingSetup:
    """Number formats, constants and limits of an engine."""

    engine: EngineConstants
    """Constants that the engine declares."""
    weights: WeightPrecision = "bf16"
    kv: KvPrecision = "bf16"
    memory_share: float | None = None
    """Share of device memory for the engine; ``EngineMemoryConstants.budget`` defines the quantity
    to which it applies. None: the engine's default."""
    max_running: int | None = None
    """Maximum number of requests that decode together; None: the engine's default."""
    max_batched_tokens: int | None = None
    """Maximum number of tokens per step; None: the engine's default."""
    overhead_bytes: float | None = None
    """Bytes per rank of activations, graphs and buffers, if measured; None: estimated."""
    prefill_apart: bool = False
    """True if prompts run on other GPUs (disaggregated serving), so that steps only decode."""
    accepted_tokens: float = 1.0
    """Mean tokens per decode step and request; above 1 with speculative decoding."""
    draft_tokens: int = 0
    """Further tokens that a step verifies per request (speculative decoding)."""
    block: int | None = None
    """Weights per scale along a split width; None: the usual number of the format."""

    @property
    def block_size(self) -> int:
        """Weights along a split width that must not be separated; 1 without blocks of scales."""
        return WEIGHT_BLOCKS.get(self.weights, 1) if self.block is None else self.block


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests that arrive; at most one of ``concurrency`` and ``request_rate`` is set.

    If neither is set, as many requests run at a time as fit in memory (offline).
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    """Requests in the system over all replicas; each is replaced when it ends."""
    request_rate: float | None = None
    """Requests per second over all replicas, Poisson arrivals."""


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds of one engine step on its slowest rank, by activity."""

    projections: float = 0.0
    attention: float = 0.0
    mlp: float = 0.0
    """Dense MLPs and experts."""
    communication: float = 0.0
    launch: float = 0.0
    head: float = 0.0
    host: float = 0.0

    @property
    def total_seconds(self) -> float:
        """Sum of all terms."""
        parts = (self.projections, self.attention, self.mlp, self.communication)
        return sum(parts) + self.launch + self.head + self.host

    def scaled(self, times: float) -> StepTerms:
        """Return a copy with all times multiplied by ``times``.

        Used for a request that passes ``times`` pipeline stages one after another.
        """
        return StepTerms(
            self.projections * times,
            self.attention * times,
            self.mlp * times,
            self.communication * times,
            self.launch * times,
            self.head * times,
            self.host * times,
        )


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Bytes on the fullest rank of one engine, and the tokens that its KV cache stores."""

    weights_bytes: float
    overhead_bytes: float
    """Activations of the largest step, graphs, communication buffers, context."""
    kv_bytes: float
    """Bytes left for the cache; 0 if weights and overhead do not fit."""
    kv_bytes_per_token: float
    """Bytes per token and rank, all layers of its stage."""
    kv_tokens: float
    """Tokens that the cache of one data-parallel rank stores."""


@dataclass(frozen=True, slots=True)
class ServingEstimate:
    """Latency and throughput of a deployment. ``fits`` is False if no request can run."""

    layout: ServingLayout
    fits: bool
    ttft_seconds: float
    """Mean time to the first token, including the wait for a slot."""
    tpot_seconds: float
    """Mean time per output token after the first."""
    tokens_per_second: float
    """Output tokens per second, all replicas."""
    requests_per_second: float
    running: float
    """Requests that decode together in one engine."""
    max_concurrency: float
    """Requests of mean length that fit into the KV caches of all replicas."""
    memory: ServingMemory
    decode: StepTerms
    """Decode step without prefill."""
    prefill_seconds: float
    """Seconds that the prefill of one request adds to its steps."""

    @property
    def kv_tokens(self) -> float:
        """Tokens that all KV caches store."""
        return self.memory.kv_tokens * self.layout.dp * self.layout.replicas

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Output tokens per second and GPU."""
        return self.tokens_per_second / self.layout.gpus
