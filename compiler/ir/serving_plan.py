"""Problem and plan of a serving job, which correspond to ``Problem`` and ``Plan`` of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, replace
from typing import Literal

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Task
from parc.compiler.ir.serialize import NOT_SERIALIZED
from parc.compiler.ir.serving import (
    ServiceStatistics,
    ServingEstimate,
    ServingLayout,
    ServingSetup,
    Traffic,
)
from parc.compiler.ir.serving_goals import LatencyLimit, ServingGoals

LoadBalancer = Literal["internal", "hybrid", "external"]
ALL_SERVING_FIELDS = tuple(one.name for one in fields(ServingLayout))
"""Names of all fields of ``ServingLayout``."""
RANK_FIELDS = ("tp", "pcp", "dp", "ep")
"""Names of the fields from which ``ServingLayout.ranks_per_expert`` is computed."""


@frozen
class Service:
    """Checkpoint to serve, its number formats, and the traffic."""

    checkpoint: str
    """Name of a repository on a model hub, or path of a folder that exists on all hosts."""
    traffic: Traffic
    setup: ServingSetup
    """Number formats and limits of the engine, in which defaults have been applied."""
    quantize: bool
    """True if the checkpoint is 16-bit and the engine quantizes the weights while it loads them."""
    max_model_len: int | None
    """Maximum number of tokens per request (prompt and output); None: as many as fit in memory."""
    context: int
    """Context length of the model in tokens, as the engine derives it."""
    block_tokens: int
    """Number of tokens per block of the paged KV cache."""
    prefix_caching: bool = True
    """True if the engine keeps the cache of prompts for later prompts with the same beginning."""

    @property
    def longest_request_tokens(self) -> int:
        """Number of tokens that the KV cache must be able to store for one request.

        This is ``max_model_len`` if set. Otherwise it is the mean prompt length plus the mean
        output length, but at most ``context``.
        """
        traffic = self.traffic
        needed = int(traffic.input_tokens + traffic.output_tokens)
        return min(needed, self.context) if self.max_model_len is None else self.max_model_len


@frozen
class Endpoint:
    """Ports of the API servers, and load balancing between data-parallel ranks."""

    port: int
    """Port of the first API server on a host; each further server uses the next port."""
    load_balancer: LoadBalancer
    """Component that distributes requests over data-parallel ranks: the engine (internal), one load
    balancer per host (hybrid), or a load balancer of the user (external)."""
    router_port: int = 30000
    """Port of the router over several engines, if the backend emits one."""


@frozen
class ServingPins:
    """Values that a serving spec sets in ``layout`` and ``job``; None if PARC decides the value."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | Literal["on", "off"] | None = None
    pcp: int | None = None
    dcp: int | None = None
    replicas: int | None = None
    stages: tuple[int, ...] | None = None
    all2all: str | None = None
    """Backend of the all-to-all exchange with experts, under the engine's name for it."""
    redundant_experts: int | None = None
    """Number of additional copies of busy experts, which the engine places by load; None if the
    engine does not balance experts."""
    max_num_seqs: int | None = None
    """Maximum number of running requests; None if PARC decides it."""
    max_num_batched_tokens: int | None = None
    """Maximum number of tokens per step; None if PARC decides it."""


@frozen(kw_only=True)
class ServingProblem(Task):
    """Serving problem; the passes after ``resolve`` read only this object."""

    service: Service
    goals: ServingGoals
    pins: ServingPins
    endpoint: Endpoint
    calibration: tuple[tuple[str, float], ...] = ()
    """(name, value) of each factor from ``cluster.calibration``, which the rates of ``cluster`` and
    the constants of the engine include; empty without a calibration."""
    pools: PoolProblems | None = field(default=None, metadata=NOT_SERIALIZED)
    """Problems of the two pools if the spec asks for a disaggregated service; else None."""

    @property
    def minimizes_gpus(self) -> bool:
        """True if the plan must serve the load with as few GPUs as possible."""
        goal = self.goals.maximize
        # On one cluster, all GPUs cost the same.
        return goal == "fewest-gpus" or (
            goal == "lowest-cost" and self.service.traffic.is_load_given
        )

    @property
    def minimizes_latency(self) -> bool:
        """True if the plan must serve each request as fast as possible, on any number of GPUs."""
        is_rate_given = self.service.traffic.request_rate is not None
        return not self.minimizes_gpus and (self.goals.maximize == "latency" or is_rate_given)


@frozen
class PoolProblems:
    """Problems of the prefill pool and of the decode pool of a disaggregated service."""

    prefill: ServingProblem
    prefill_hosts: tuple[str, ...] | None
    """Names of the hosts of the pool; None if it may use all hosts that the other pool leaves."""
    decode: ServingProblem
    decode_hosts: tuple[str, ...] | None
    required: bool
    """False if the pools are planned only where they are better than engines that serve whole
    requests."""


@frozen
class StageCache:
    """Memory of one rank of a pipeline stage, and the size of its KV cache."""

    stage: int
    layers: int
    weights_bytes: float
    overhead_bytes: float
    """Bytes of the activations of the largest step, CUDA graphs, communication buffers and the CUDA
    context."""
    cache_bytes: float
    """Bytes that remain for the KV cache; may be 0."""
    block_bytes: float
    """Bytes per block of the KV cache, summed over the layers of the stage."""
    longest_bytes: float
    """KV-cache bytes of one request of the maximum length."""

    @property
    def blocks(self) -> int:
        """Number of whole KV-cache blocks that fit into ``cache_bytes``."""
        # Rounded down: an engine allocates only whole blocks.
        return int(self.cache_bytes // self.block_bytes)


@frozen
class EngineLimits:
    """Limits that the engine is started with, and the resulting number of KV-cache blocks."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    block_tokens: int
    """Number of tokens per block of the KV cache: the configured number, or more if a recurrent
    state must fit into a block."""
    blocks: int
    """Number of KV-cache blocks per data-parallel rank, on the pipeline stage with the fewest."""
    shards: int = 1
    """Number of ranks that share the tokens of a request; each rank stores every ``shards``-th
    token."""
    longest_blocks: int = 0
    """Number of blocks that a request of the maximum length occupies, if recurrent layers store
    their states in blocks; otherwise 0."""

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the KV cache of one data-parallel rank can store.

        If recurrent states occupy a part of the blocks, the number assumes that all requests have
        the maximum length.
        """
        # Recurrent states occupy blocks independently of the number of tokens.
        if self.longest_blocks:
            return self.blocks * self.max_model_len // self.longest_blocks
        return self.blocks * self.block_tokens * self.shards

    @property
    def full_requests(self) -> float:
        """Number of requests of the maximum length that fit on one data-parallel rank."""
        return self.cache_tokens / self.max_model_len


@frozen
class ServingCandidate:
    """Layout that fits in memory and meets all goals, with its estimated figures."""

    layout: ServingLayout
    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second: float
    weights_bytes: float
    """Bytes of the weights on the fullest rank."""

    @classmethod
    def from_estimate(cls, estimate: ServingEstimate) -> ServingCandidate:
        """Return the candidate with the layout and the figures of an estimate."""
        return cls(
            estimate.layout,
            estimate.ttft_seconds,
            estimate.tpot_seconds,
            estimate.tokens_per_second,
            estimate.memory.weights_bytes,
        )


@frozen
class NearMiss:
    """Deployment that is much better than the plan, but misses one latency limit by a little."""

    limit: LatencyLimit
    """Limit of the spec that the deployment misses."""
    higher_seconds: float
    """Higher limit that the deployment meets."""
    gain: float
    """Factor by which the deployment is better: fewer GPUs, shorter requests or more tokens per
    second, depending on the goal."""
    candidate: ServingCandidate


@frozen
class StepTokens:
    """Maximum number of tokens per step that PARC chose instead of the engine's default."""

    chosen: int
    default: int
    gain: float | None
    """Factor by which the service is better than with the default: fewer GPUs, shorter requests or
    more tokens per second, depending on the goal. None if no layout meets the limits with it."""


@frozen
class ServingSearch:
    """Statistics of the search: layouts enumerated, layouts rejected per rule, best candidates."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, number of rejected layouts) pairs, sorted by code. A layout is counted for the
    first rule that it violates."""
    ranked: tuple[ServingCandidate, ...]
    """Best candidates, best first; the first one is the chosen layout."""
    rejected: tuple[ServingCandidate, ...] = ()
    """For each tensor-parallel size other than the chosen one, the best candidate; reports compare
    them with the choice."""
    near_misses: tuple[NearMiss, ...] = ()
    """For each latency limit at most one deployment that a slightly higher limit would allow."""
    step_tokens: StepTokens | None = None
    """Choice of the tokens per step; None if the number is that of the spec or of the engine."""


@frozen
class ServingPlan:
    """Complete result of planning a serving job, and the only input of the backends."""

    problem: ServingProblem
    layout: ServingLayout
    limits: EngineLimits
    stages: tuple[StageCache, ...]
    estimate: ServingEstimate
    placement: Placement
    search: ServingSearch
    pair: PoolPair | None = None
    """Decode pool that belongs to this plan of a prefill pool; None if a spec has no two pools."""

    @property
    def pools(self) -> tuple[ServingPlan, ...]:
        """Plans of the prefill pool and of the decode pool; without two pools, the plan itself."""
        return (self,) if self.pair is None else (replace(self, pair=None), self.pair.decode)

    @property
    def ttft_seconds(self) -> float:
        """Estimated mean time to the first token, in both pools together if there are two."""
        return sum(one.estimate.ttft_seconds for one in self.pools)

    @property
    def tpot_seconds(self) -> float:
        """Estimated mean time per output token; of two pools, the decode pool determines it."""
        return self.pools[-1].estimate.tpot_seconds

    @property
    def tokens_per_second(self) -> float:
        """Estimated output tokens per second; of two pools, the decode pool generates them."""
        return self.pools[-1].estimate.tokens_per_second

    @property
    def request_seconds(self) -> float:
        """Estimated mean time in seconds from the arrival of a request to its last token."""
        later = max(self.pools[-1].problem.service.traffic.output_tokens - 1, 0.0)
        return self.ttft_seconds + later * self.tpot_seconds

    @property
    def occupied_gpus(self) -> int:
        """Number of GPUs that other jobs cannot use; see ``Task.occupied_gpus``."""
        return sum(
            self.problem.occupied_gpus(len(one.placement.hosts), one.layout.gpus)
            for one in self.pools
        )

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the occupied GPUs for one hour; None if the spec states no price."""
        return self.problem.cluster.price_of(self.occupied_gpus)


@frozen
class PoolPair:
    """Second half of the plan of a disaggregated service, and figures of the service as a whole."""

    name: str
    """Name of the service."""
    decode: ServingPlan
    request_rate: float
    """Requests per second for which both pools are planned."""
    simulated: ServiceStatistics | None
    """Statistics of requests that pass both pools; None if there are too many to simulate."""
    comparison: str
    """Comparison with engines that serve whole requests; empty if there is none."""


@frozen
class ServingRule:
    """Validity rule of serving layouts, which the search and the diagnostics share."""

    code: str
    """Diagnostic code without prefix, such as ``D01``."""
    fields: tuple[str, ...]
    """Spec paths of the values that the rule reads, the most likely cause first."""
    broken: Callable[[ServingProblem, ServingLayout], bool]
    """Predicate that is True if the layout violates the rule; it must be fast, because it runs for
    every candidate."""
    explain: Callable[[ServingProblem, ServingLayout], Finding]
    """Function that returns the finding for a layout that violates the rule."""
    reads: tuple[str, ...] = ALL_SERVING_FIELDS
    """Names of the layout fields that ``broken`` reads. The search evaluates ``broken`` once per
    combination of their values, so a missing name gives wrong results."""
    of_plans_only: bool = False
    """True if the engine accepts the layout, and only PARC does not plan it; ``parc lint`` does not
    check such a rule."""
