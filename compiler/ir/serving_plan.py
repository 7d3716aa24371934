"""Problem and plan of a serving job; ``Problem`` and ``Plan`` are their training counterparts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Limit, Task
from parc.compiler.ir.serving import ServingEstimate, ServingLayout, ServingSetup, Traffic

LoadBalancer = Literal["internal", "hybrid", "external"]


@dataclass(frozen=True, slots=True)
class Service:
    """Checkpoint to serve, its number formats, and the requests that arrive."""

    checkpoint: str
    """Repository on a model hub, or folder that exists on all hosts."""
    traffic: Traffic
    setup: ServingSetup
    """Number formats and limits of the engine, with its defaults filled in."""
    quantize: bool
    """True if the engine quantizes a 16-bit checkpoint while it loads."""
    max_model_len: int | None
    """Maximum tokens per request, prompt and output; None: as many as fit."""
    context: int
    """Context length of the model in tokens, as the engine derives it."""
    block_tokens: int
    """Tokens per block of the paged cache."""

    @property
    def longest(self) -> int:
        """Tokens that one request must be able to have: max_model_len, else mean traffic."""
        traffic = self.traffic
        needed = int(traffic.input_tokens + traffic.output_tokens)
        return min(needed, self.context) if self.max_model_len is None else self.max_model_len


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Ports and load balancing of the API servers."""

    port: int
    """Port of the first server of a host; further servers count up."""
    load_balancer: LoadBalancer
    """Load balancer over data-parallel ranks: the engine, each host, or the user's own."""


@dataclass(frozen=True, slots=True)
class ServingGoals:
    """Objective of the search, and limits on latency and memory."""

    maximize: Literal["throughput", "fewest-gpus", "latency"]
    ttft_seconds: float | None
    """Longest mean time to the first token; None: no limit."""
    tpot_seconds: float | None
    """Longest mean time per output token; None: no limit."""
    memory_headroom: float
    """Fraction of device memory that the engine must not use, 0.08 for 8 %."""
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingPins:
    """Pins from the spec's ``layout``; None: PARC decides."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | Literal["on", "off"] | None = None
    pcp: int | None = None
    dcp: int | None = None
    replicas: int | None = None
    stages: tuple[int, ...] | None = None
    all2all: str | None = None
    """Backend of the all-to-all exchange to experts, by the engine's name for it."""
    redundant_experts: int | None = None
    """Copies of busy experts that the engine moves by load; None: no balancing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProblem(Task):
    """Complete serving problem: passes after ``resolve`` read only this."""

    service: Service
    goals: ServingGoals
    pins: ServingPins
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class StageCache:
    """Memory of one rank of a pipeline stage, and its cache."""

    stage: int
    layers: int
    weights_bytes: float
    overhead_bytes: float
    """Activations of the largest step, graphs, communication buffers, context."""
    cache_bytes: float
    """Bytes left for the cache; may be 0."""
    block_bytes: float
    """Bytes per block of the cache, all layers of the stage."""
    longest_bytes: float
    """Cache bytes of one request of the maximum length."""

    @property
    def blocks(self) -> int:
        """Number of whole blocks that fit."""
        return int(self.cache_bytes // self.block_bytes)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits with which the engine is started, and the cache blocks that result."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    block_tokens: int
    """Tokens per block of the cache: as configured, or more if a state must fit into a block."""
    blocks: int
    """Cache blocks of one data-parallel rank, on its fullest stage."""
    shards: int = 1
    """Ranks that share the tokens of a request; each stores every ``shards``-th token."""
    longest_blocks: int = 0
    """Blocks of a request of the maximum length if layers store states in blocks, else 0."""

    @property
    def cache_tokens(self) -> int:
        """Tokens in the cache of one data-parallel rank, for requests of the maximum length."""
        if self.longest_blocks:
            return self.blocks * self.max_model_len // self.longest_blocks
        return self.blocks * self.block_tokens * self.shards

    @property
    def full_requests(self) -> float:
        """Requests of the maximum length that fit on one data-parallel rank."""
        return self.cache_tokens / self.max_model_len


@dataclass(frozen=True, slots=True)
class ServingCandidate:
    """A layout that fits and meets all limits."""

    layout: ServingLayout
    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second: float
    weights_bytes: float
    """Bytes of weights on the fullest rank."""

    @classmethod
    def of(cls, found: ServingEstimate) -> ServingCandidate:
        """Take over the figures of an estimate."""
        return cls(
            found.layout,
            found.ttft_seconds,
            found.tpot_seconds,
            found.tokens_per_second,
            found.memory.weights_bytes,
        )


@dataclass(frozen=True, slots=True)
class ServingSearch:
    """Record of a search: layouts enumerated, layouts dropped per rule, best candidates."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, count), sorted by code; a layout counts only under the first rule it violates."""
    ranked: tuple[ServingCandidate, ...]
    """Best candidates, best first; the first one is chosen."""
    rejected: tuple[ServingCandidate, ...] = ()
    """Best candidate per tp other than the chosen one's, to explain the choice."""


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """The decisions of a serving job; backends read only this."""

    problem: ServingProblem
    layout: ServingLayout
    limits: EngineLimits
    stages: tuple[StageCache, ...]
    estimate: ServingEstimate
    placement: Placement
    search: ServingSearch


@dataclass(frozen=True, slots=True)
class ServingRule:
    """A rule that a serving layout must satisfy, shared by the search and the diagnostics."""

    code: str
    """Short code of the diagnostic, ``D01``."""
    fields: tuple[str, ...]
    """Spec paths that the rule reads, the likeliest culprit first."""
    broken: Callable[[ServingProblem, ServingLayout], bool]
    """Return True if the layout violates the rule; it runs for every candidate and must be fast."""
    explain: Callable[[ServingProblem, ServingLayout], Finding]
    """Return the finding for a layout that violates the rule."""
