"""The nouns of serving: what is asked, how the model is spread, and what that gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parc.compiler.ir.engine_constants import EngineConstants, ExtraLayers

WeightPrecision = Literal["bf16", "fp16", "fp8", "int4", "nvfp4"]
WEIGHT_BLOCKS = {"fp8": 128, "int4": 128, "nvfp4": 16}
"""Weights that share a scale along a split width (DeepSeek's fp8, AWQ and GPTQ, NVIDIA)."""
KvPrecision = Literal["bf16", "fp16", "fp8"]


@dataclass(frozen=True, slots=True)
class ServingLayout:
    """Degrees of one serving deployment.

    Attention is split over ``tp`` and repeated over ``dp``; the experts of a routed layer spread
    over the ``tp x dp`` ranks of a stage: ``ep`` groups hold whole experts and the ranks of a
    group split each expert. A dense model makes ``dp`` independent engines.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    replicas: int = 1
    """Independent engines behind a load balancer."""
    pcp: int = 1
    """Prefill context parallelism: ranks that share the tokens of a prompt."""
    dcp: int = 1
    """Decode context parallelism: ranks, of those of tp and pcp, that share a request's cache."""
    stages: tuple[int, ...] = ()
    """Decoder layers of every pipeline stage; empty: as even as can be."""
    redundant_experts: int = 0
    """Copies of busy experts beside the model's own, in every routed layer."""

    @property
    def rank_gpus(self) -> int:
        """GPUs of one data-parallel rank."""
        return self.tp * self.pcp * self.pp

    @property
    def engine_gpus(self) -> int:
        """GPUs of one engine."""
        return self.rank_gpus * self.dp

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        return self.engine_gpus * self.replicas

    @property
    def expert_tp(self) -> int:
        """Ranks that split one expert."""
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
    """Number formats, engine and its limits."""

    engine: EngineConstants
    """Constants that the engine declares."""
    weights: WeightPrecision = "bf16"
    kv: KvPrecision = "bf16"
    memory_share: float | None = None
    """vLLM's --gpu-memory-utilization, SGLang's --mem-fraction-static, TensorRT-LLM's
    free_gpu_memory_fraction; Engine.budget says what it is a share of. None: the default."""
    max_running: int | None = None
    """Most requests that decode together in one engine; None: the engine's default."""
    max_batched_tokens: int | None = None
    """Most tokens of one step; None: the engine's default."""
    overhead_bytes: float | None = None
    """Activations, graphs and buffers of a rank where they are known; None: estimated."""
    prefill_apart: bool = False
    """Prompts run on other GPUs (disaggregated serving): steps here only decode."""
    accepted_tokens: float = 1.0
    """Mean tokens that a decode step yields for a request; over 1 with speculative decoding."""
    draft_tokens: int = 0
    """Tokens that a step verifies beside the next one (speculative decoding)."""
    block: int | None = None
    """Weights along a split width that share a scale; None: as checkpoints of the format have."""

    @property
    def block_size(self) -> int:
        """Weights along a split width that must stay together; 1 where none must."""
        return WEIGHT_BLOCKS.get(self.weights, 1) if self.block is None else self.block


@dataclass(frozen=True, slots=True)
class Traffic:
    """What arrives: exactly one of ``concurrency`` and ``request_rate`` is set, or neither.

    Neither: offline, as many requests at a time as memory holds.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    """Requests in the system, over all replicas; each one that ends is replaced."""
    request_rate: float | None = None
    """Requests a second, over all replicas, Poisson."""


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds of one engine step on its slowest rank, by what they are spent on."""

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
        """All terms."""
        parts = (self.projections, self.attention, self.mlp, self.communication)
        return sum(parts) + self.launch + self.head + self.host

    def scaled(self, times: float) -> StepTerms:
        """Every term ``times`` over: the stages of a pipeline, one after another."""
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
    """Bytes on the fullest rank of one engine, and the tokens that its KV cache holds."""

    weights_bytes: float
    overhead_bytes: float
    """Activations of the largest step, graphs, communication buffers, context."""
    kv_bytes: float
    """What is left for the cache; 0 where weights and overhead do not fit."""
    kv_bytes_per_token: float
    """Per rank, all layers of its stage."""
    kv_tokens: float
    """Tokens that the cache of one DP rank holds."""


@dataclass(frozen=True, slots=True)
class ServingEstimate:
    """What users of a deployment see. ``fits`` is False where no request can run."""

    layout: ServingLayout
    fits: bool
    ttft_seconds: float
    """Mean time to the first token, waiting for a slot included."""
    tpot_seconds: float
    """Mean time per output token after the first."""
    tokens_per_second: float
    """Output tokens a second, all replicas."""
    requests_per_second: float
    running: float
    """Requests that decode together in one engine."""
    max_concurrency: float
    """Requests that the KV caches of all replicas hold at their mean length."""
    memory: ServingMemory
    decode: StepTerms
    """A decode step without prefill."""
    prefill_seconds: float
    """What the prefill of one request adds to the steps that it joins."""

    @property
    def kv_tokens(self) -> float:
        """Tokens that all KV caches hold."""
        return self.memory.kv_tokens * self.layout.dp * self.layout.replicas

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Output tokens a second and GPU."""
        return self.tokens_per_second / self.layout.gpus
