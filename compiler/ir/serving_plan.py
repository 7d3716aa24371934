"""The question and the answer of serving: what ``Problem`` and ``Plan`` are for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Limit, Task
from parc.compiler.ir.serving import ServingEstimate, ServingLayout, ServingSetup, Traffic

LoadBalancer = Literal["internal", "hybrid", "external"]


@dataclass(frozen=True, slots=True)
class Service:
    """What is served: a checkpoint, its formats, and the requests that arrive."""

    checkpoint: str
    """What the engine loads: a repository of a model hub, or a folder that every host sees."""
    traffic: Traffic
    setup: ServingSetup
    """Formats and limits of the engine, complete: nothing is left to its defaults."""
    quantize: bool
    """The engine quantises a 16-bit checkpoint while it loads it."""
    max_model_len: int | None
    """Longest request, prompt and output; None: the longest that fits."""
    context: int
    """Tokens that the model was made for."""
    block_tokens: int
    """Tokens of a block of the paged cache."""

    @property
    def longest(self) -> int:
        """Tokens that one request must be able to take: as asked, else those of the traffic."""
        traffic = self.traffic
        needed = int(traffic.input_tokens + traffic.output_tokens)
        return min(needed, self.context) if self.max_model_len is None else self.max_model_len


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests arrive."""

    port: int
    """Of the first server of a host; others count up."""
    load_balancer: LoadBalancer
    """Who spreads requests over data-parallel ranks: the engine, each host, or the user."""


@dataclass(frozen=True, slots=True)
class ServingGoals:
    """What to maximise and what users must see."""

    maximize: Literal["throughput", "fewest-gpus", "latency"]
    ttft_seconds: float | None
    """Longest mean time to the first token; None: no limit."""
    tpot_seconds: float | None
    """Longest mean time per output token; None: no limit."""
    memory_headroom: float
    """Share of device memory that the engine leaves alone, 0.08 for 8 %."""
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingPins:
    """The user's ``layout``: None means decide."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | Literal["on", "off"] | None = None
    pcp: int | None = None
    dcp: int | None = None
    replicas: int | None = None
    stages: tuple[int, ...] | None = None
    all2all: str | None = None
    """How tokens travel to experts, in the engine's words."""
    redundant_experts: int | None = None
    """Copies of busy experts that the engine moves by load; None: experts stay where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProblem(Task):
    """A question of serving, complete: passes after ``resolve`` read this and nothing else."""

    service: Service
    goals: ServingGoals
    pins: ServingPins
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class StageCache:
    """Memory of one rank of a pipeline stage, and the cache that it leaves."""

    stage: int
    layers: int
    weights_bytes: float
    overhead_bytes: float
    """Activations of the largest step, graphs, communication buffers, context."""
    cache_bytes: float
    """What is left for the cache; 0 where nothing is."""
    block_bytes: float
    """One block of the cache, all layers of the stage."""
    longest_bytes: float
    """Cache of one request of the longest length."""

    @property
    def blocks(self) -> int:
        """Whole blocks that fit."""
        return int(self.cache_bytes // self.block_bytes)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine is told to keep to, and the blocks that it will count from that."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    block_tokens: int
    """Of a block of the cache: as told, or more where a state must fit into one."""
    blocks: int
    """Blocks of the cache of one data-parallel rank: those of the fullest stage."""
    shards: int = 1
    """Ranks that share the tokens of a request: each holds a block of every so many tokens."""
    longest_blocks: int = 0
    """Blocks that a request of the longest length takes where layers keep states beside tokens;
    0: those of its tokens."""

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache of one data-parallel rank holds, in the longest requests."""
        if self.longest_blocks:
            return self.blocks * self.max_model_len // self.longest_blocks
        return self.blocks * self.block_tokens * self.shards

    @property
    def full_requests(self) -> float:
        """Requests of the longest length that one data-parallel rank holds."""
        return self.cache_tokens / self.max_model_len


@dataclass(frozen=True, slots=True)
class ServingCandidate:
    """A layout that was priced and meets every limit."""

    layout: ServingLayout
    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second: float
    weights_bytes: float
    """On the fullest rank."""


@dataclass(frozen=True, slots=True)
class ServingSearch:
    """What was looked at: how many layouts, how many each rule dropped, the best of the rest."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, count), sorted by code; a layout counts under the first rule that dropped it."""
    ranked: tuple[ServingCandidate, ...]
    """The best, best first; the first is the chosen one."""
    rejected: tuple[ServingCandidate, ...] = ()
    """The best layout of each tp that is not the chosen one's, for the reasons."""


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Everything decided; backends read this and nothing else."""

    problem: ServingProblem
    layout: ServingLayout
    limits: EngineLimits
    stages: tuple[StageCache, ...]
    estimate: ServingEstimate
    placement: Placement
    search: ServingSearch
