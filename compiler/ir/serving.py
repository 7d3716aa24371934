"""Types that describe serving: layout, number formats, traffic and estimate."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from parc.compiler.ir.engine_constants import EngineConstants, ExtraLayers
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serialize import NOT_SERIALIZED
from parc.compiler.ir.serving_features import Lora, Speculative

WeightPrecision = Literal["bf16", "fp16", "fp8", "int4", "nvfp4", "mxfp4"]
WEIGHT_BLOCKS = {"fp8": 128, "int4": 128, "nvfp4": 16}
"""Weights that share one scale along a split dimension: DeepSeek's format for fp8, AWQ and GPTQ for
int4, NVIDIA's format for nvfp4. Engines pad mxfp4 weights to whole blocks on each rank."""
KvPrecision = Literal["bf16", "fp16", "fp8"]
Pool = Literal["both", "prefill", "decode"]
"""Phase of requests that engines process: a pool of a disaggregated service, or ``both``."""
POOLS = ("prefill", "decode")
"""Pools of a disaggregated service, in the order in which a request passes them."""


@frozen
class ServingLayout:
    """Parallel sizes of one serving deployment.

    Attention is split over ``tp`` ranks and repeated on each of the ``dp`` data-parallel ranks. The
    experts of a layer are distributed over the ``tp x pcp x dp`` ranks of a pipeline stage. These
    ranks form ``ep`` groups; each group stores whole experts, which its ranks split.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    replicas: int = 1
    """Number of independent engines behind a load balancer."""
    pcp: int = 1
    """Prefill context parallel size: number of ranks that share the tokens of a prompt."""
    dcp: int = 1
    """Decode context parallel size: number of ranks that share the KV cache of a request. They are
    a part of the tp x pcp ranks."""
    stages: tuple[int, ...] = ()
    """Number of decoder layers per pipeline stage; empty if the engine's default split is used."""
    redundant_experts: int = 0
    """Number of additional copies of busy experts in each layer with routed experts."""

    @property
    def rank_gpus(self) -> int:
        """Number of GPUs per data-parallel rank: tp x pcp x pp."""
        return self.tp * self.pcp * self.pp

    @property
    def engine_gpus(self) -> int:
        """Number of GPUs per engine: tp x pcp x pp x dp."""
        return self.rank_gpus * self.dp

    @property
    def gpus(self) -> int:
        """Number of GPUs of all engines together."""
        return self.engine_gpus * self.replicas

    @property
    def ranks_per_expert(self) -> int:
        """Number of ranks that split the weights of one expert."""
        return max(self.tp * self.pcp * self.dp // self.ep, 1)


def split_layers_evenly(layers: int, pp: int, extra: ExtraLayers) -> tuple[int, ...]:
    """Return the number of layers per pipeline stage, split as evenly as possible.

    Args:
        layers: number of decoder layers of the model.
        pp: number of stages.
        extra: stages that get one more layer if ``layers`` is not divisible by ``pp``.
    """
    stages = [layers // pp] * pp
    for one in range(layers % pp):
        # -2 - one: backwards from the last stage but one; the last stage has the output head too.
        stages[one if extra == "first" else -2 - one] += 1
    return tuple(stages)


@frozen
class ServingSetup:
    """Number formats, measured constants and limits of an engine that serves a model."""

    engine: EngineConstants
    """Constants that the engine declares."""
    weights: WeightPrecision = "bf16"
    kv: KvPrecision = "bf16"
    memory_share: float | None = None
    """Fraction of memory that the engine may use; ``EngineMemoryConstants.budget`` defines the
    memory to which the fraction applies. None: the engine's default."""
    max_running: int | None = None
    """Maximum number of requests that decode together; None: the engine's default."""
    max_batched_tokens: int | None = None
    """Maximum number of tokens per step; None: the engine's default."""
    overhead_bytes: float | None = None
    """Measured bytes per rank that activations, CUDA graphs and buffers need; None if PARC
    estimates this number."""
    pool: Pool = "both"
    """Phase of requests that the engines process."""
    prefill_apart: bool = False
    """True if other GPUs process the prompts (disaggregated serving), so that steps only decode."""
    accepted_tokens: float = 1.0
    """Mean number of tokens per decode step and request; above 1 with speculative decoding."""
    draft_tokens: int = 0
    """Number of draft tokens per request that a step verifies (speculative decoding)."""
    speculative: Speculative | None = None
    """Draft of speculative decoding; None without it."""
    lora: Lora | None = None
    """Adapters; None if all requests use the model itself."""
    host_cache_bytes: float = 0.0
    """Host memory in bytes per data-parallel rank for copies of the KV cache; 0 without copies."""
    block: int | None = None
    """Number of weights that share one scale along a split dimension; None: the usual number of the
    format."""

    @property
    def step_token_limit(self) -> int:
        """Largest number of tokens per step of a data-parallel rank."""
        return self.max_batched_tokens or self.engine.scheduling.max_batched_tokens

    @property
    def running_limit(self) -> int:
        """Largest number of requests that run together on a data-parallel rank."""
        return self.max_running or self.engine.scheduling.max_running

    @property
    def block_size(self) -> int:
        """Number of consecutive weights that share a scale, and therefore must be on the same rank.

        The number is 1 if weights have no scales.
        """
        # 16-bit formats have no scales.
        return WEIGHT_BLOCKS.get(self.weights, 1) if self.block is None else self.block


@frozen
class Lengths:
    """Distribution of the lengths of prompts and answers around their means.

    Lengths are lognormal with the coefficients of variation, uniform with ``range_ratio``, and all
    equal if all values are 0.
    """

    input_cv: float = 0.0
    """Coefficient of variation (standard deviation / mean) of prompt lengths."""
    output_cv: float = 0.0
    """Coefficient of variation of answer lengths."""
    range_ratio: float = 0.0
    """Largest deviation of uniform lengths from the mean, divided by the mean."""
    input_most: float | None = None
    """Longest lognormal prompt, divided by the mean, so that an answer of mean length still fits
    into the maximum length of a request; None: no limit."""


@frozen
class TraceRequest:
    """Recorded request."""

    seconds: float
    """Time of arrival after the start of the trace."""
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Identifiers of the blocks of 512 prompt tokens; equal prefixes have equal identifiers."""


@frozen
class Trace:
    """Recorded requests that the simulation replays."""

    path: str
    digest: str
    """SHA-256 of the text of the file."""
    count: int
    """Number of requests."""
    seconds: float
    """Time from the first to the last arrival."""
    requests: tuple[TraceRequest, ...] = field(default=(), metadata=NOT_SERIALIZED)


@frozen
class Traffic:
    """Lengths and arrival pattern of requests.

    At most one of ``concurrency`` and ``request_rate`` is set. If neither is set, the load is the
    largest request rate within the latency limits; without limits, as many requests run at a time
    as fit in memory (offline inference).
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    """Number of requests in the system at any time, summed over all replicas. A new request
    replaces each one that ends."""
    request_rate: float | None = None
    """Mean requests per second, summed over all replicas; arrivals are Poisson-distributed."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the times between arrivals. 1: Poisson arrivals; smaller
    values: arrivals in bursts. Only used with ``request_rate``."""
    lengths: Lengths = Lengths()
    prefix_hit: float = 0.0
    """Fraction of the tokens of each prompt that the prefix cache stores."""
    host_hit: float = 0.0
    """Fraction of the tokens of each prompt that are loaded from host memory."""
    trace: Trace | None = None

    @property
    def computed_input_tokens(self) -> float:
        """Mean number of prompt tokens that are neither in the prefix cache nor in host memory."""
        # At least one token of a prompt is computed, because it yields the first output.
        return max(self.input_tokens * (1 - self.prefix_hit - self.host_hit), 1.0)

    @property
    def mean_context_tokens(self) -> float:
        """Mean length of a request while it decodes: the prompt and half of the answer."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def is_load_given(self) -> bool:
        """True if the concurrency or the request rate is set."""
        return self.concurrency is not None or self.request_rate is not None


@frozen
class StepTerms:
    """Seconds of one engine step on its slowest rank, split by activity."""

    projections: float = 0.0
    attention: float = 0.0
    mlp: float = 0.0
    """Seconds in dense MLPs and experts."""
    communication: float = 0.0
    launch: float = 0.0
    head: float = 0.0
    host: float = 0.0
    draft: float = 0.0
    """Seconds in the draft of speculative decoding."""

    @property
    def total_seconds(self) -> float:
        """Seconds of one engine step: the sum over all activities."""
        layers = self.projections + self.attention + self.mlp + self.communication
        return layers + self.launch + self.head + self.host + self.draft

    @property
    def shared_seconds(self) -> float:
        """Seconds in work that all data-parallel ranks share: experts and exchange of tokens."""
        return self.mlp + self.communication

    def through_stages(self, stages: float, message_seconds: float) -> StepTerms:
        """Return the times that a request needs to pass ``stages`` stages one after another.

        Each stage takes as long as this one, and ``message_seconds`` to receive its input.
        """
        return StepTerms(
            self.projections * stages,
            self.attention * stages,
            self.mlp * stages,
            (self.communication + message_seconds) * stages,
            self.launch * stages,
            self.head * stages,
            self.host * stages,
            self.draft * stages,
        )


@frozen
class ServingMemory:
    """Memory in bytes of the fullest rank of an engine, and the capacity of its KV cache."""

    weights_bytes: float
    overhead_bytes: float
    """Bytes of the activations of the largest step, CUDA graphs, communication buffers and the CUDA
    context."""
    kv_bytes: float
    """Bytes that remain for the KV cache; 0 if weights and overhead do not fit."""
    kv_bytes_per_token: float
    """KV-cache bytes per token on one rank, for all layers of its pipeline stage."""
    kv_tokens: float
    """Number of tokens that the KV cache of one data-parallel rank can store."""


@frozen
class Distribution:
    """Mean and percentiles of a simulated quantity."""

    mean: float
    p50: float
    p90: float
    p99: float
    curve: tuple[float, ...] = ()
    """Percentiles 0, 5, 10, ..., 100 for plots."""


@frozen
class ServiceStatistics:
    """Latency, throughput and load of a service in an event simulation."""

    requests: int
    """Number of requests whose times were recorded, after a warm-up."""
    ttft_seconds: Distribution
    tpot_seconds: Distribution
    """Seconds per output token after the first one, as the mean of each request."""
    e2e_seconds: Distribution
    """Seconds from the arrival of a request to its last token."""
    tokens_per_second: float
    """Output tokens per second, summed over all replicas."""
    requests_per_second: float
    queue: Distribution
    """Waiting requests per data-parallel rank, or per micro-batch of a pipeline, over time."""
    cache: Distribution
    """Fraction of the KV cache that running requests occupy, over time."""
    preemptions: int
    """Number of times that a request lost its cache and was computed again."""
    within_limits: float | None = None
    """Share of requests whose latencies were all within the limits of each request; None without
    such limits."""
    wait_growth: float = field(default=0.0, metadata=NOT_SERIALIZED)
    """Seconds by which the time to the first token grew per second of the simulation; about 0
    unless requests arrive faster than the service serves them."""


@frozen
class ServingIntervals:
    """80 % intervals of an estimate, as (low, high): 4 of 5 services measure a value inside."""

    ttft_seconds: tuple[float, float]
    tpot_seconds: tuple[float, float]
    tokens_per_second: tuple[float, float]


@frozen
class ServingEstimate:
    """Estimated latency and throughput of a deployment.

    ``fits`` is False if not even one request can run in the available memory.
    """

    layout: ServingLayout
    fits: bool
    ttft_seconds: float
    """Mean time to the first token, including the wait for a free slot."""
    tpot_seconds: float
    """Mean time per output token after the first one."""
    tokens_per_second: float
    """Output tokens per second, summed over all replicas."""
    requests_per_second: float
    running: float
    """Mean number of requests that decode together in one engine."""
    max_concurrency: float
    """Number of requests of mean length that fit into the KV caches of all replicas together."""
    memory: ServingMemory
    decode: StepTerms
    """Time of a decode step that contains no prefill."""
    prefill_seconds: float
    """Seconds by which the prefill of one request lengthens the engine's steps."""
    waiting: float = 0.0
    """Mean number of requests, in all replicas together, that wait until the cache and the engine
    can accept them."""
    solved_request_rate: float | None = None
    """Largest number of requests per second within the latency limits, for which all figures are
    estimated; None if the traffic states a load, or if there are no limits."""
    transfer_seconds: float = 0.0
    """Seconds that the decode pool takes to receive the KV cache of a prompt; 0 for other
    engines."""
    simulated: ServiceStatistics | None = None
    """Statistics of an event simulation under the load; None without a load."""
    intervals: ServingIntervals | None = None
    """80 % intervals of the means and of the throughput; None while layouts are compared."""

    @property
    def kv_tokens(self) -> float:
        """Number of tokens that the KV caches of all replicas can store together."""
        # kv_tokens of ServingMemory is per data-parallel rank.
        return self.memory.kv_tokens * self.layout.dp * self.layout.replicas

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Output tokens per second per GPU."""
        return self.tokens_per_second / self.layout.gpus
