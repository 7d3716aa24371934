"""One way to spread the model: degrees, micro-batch, schedule, recompute, stage split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal


@dataclass(frozen=True, slots=True)
class Recompute:
    """Activation recompute, in Megatron's words."""

    granularity: Literal["none", "selective", "full"]
    modules: tuple[str, ...] = ()
    """For ``selective``: core_attn, mlp, moe, moe_act, layernorm, mla_up_proj, shared_experts."""
    method: Literal["uniform", "block"] | None = None
    layers: int | None = None
    """For ``full``: layers a block (uniform), or layers of each chunk (block)."""


NO_RECOMPUTE = Recompute("none")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The part of the model that one virtual stage of one pipeline rank holds."""

    first_layer: int
    """0-based index of its first decoder layer; where it has none, the index it would have."""
    layers: int
    embedding: bool
    mtp_layers: int
    loss: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Which chunk holds which layers. ``chunks[pipeline rank][virtual stage]``."""

    form: Literal["even", "counted", "first-last", "string"]
    """How it is said to the framework: nothing, account-for flags, first/last counts, a layout."""
    count_embedding: bool
    count_loss: bool
    text: str
    """The layout string (``Et*3|(tt|)*29,m|L``); empty unless form is ``string``."""
    chunks: tuple[tuple[Chunk, ...], ...]

    def stage_layers(self, stage: int) -> int:
        """Decoder layers on pipeline rank ``stage``, all its virtual stages together."""
        return sum(chunk.layers for chunk in self.chunks[stage])


Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"]
"""Pipeline schedules that a framework can be told; ``cost/schedule_registry`` has their forms."""
ContextComm = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""How a context-parallel group sees all keys: a ring, a gather, heads for tokens (Ulysses), or
Ulysses among neighbours and a ring over these (hierarchical)."""
Device = Literal["none", "cpu", "nvme"]


@dataclass(frozen=True, slots=True)
class Offload:
    """What is kept outside of the GPU between its uses; ``none``: nothing is moved."""

    optimizer: Device = "none"
    parameters: Device = "none"
    nvme_path: str = ""


@dataclass(frozen=True, slots=True)
class ZeroPlus:
    """ZeRO++ (arXiv:2306.10209): a second copy of weights near by, and quantised traffic."""

    hpz: int = 1
    """Consecutive ranks that keep a whole copy of the weights for the backward pass; 1: none."""
    quantized_weights: bool = False
    quantized_gradients: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """What a framework chooses beside degrees; a search looks at every variant it is offered."""

    zero_stage: int = 1
    dp_shard: int = 0
    """Data-parallel ranks that share one state; 0: all of them."""
    schedule: Schedule | None = None
    """None: 1f1b, or interleaved where there are virtual stages."""
    cp_comm: ContextComm | None = "p2p"
    """None: what is fastest, of what the framework can say."""
    offload: Offload = Offload()
    zero_plus: ZeroPlus = ZeroPlus()
    last_resort: bool = False
    """Looked at only where no variant fits that is not one."""


@dataclass(frozen=True)
class Layout:
    """Degrees and choices that fix what every rank computes. ``world`` ranks in all."""

    tp: int
    cp: int
    pp: int
    vpp: int
    """Virtual stages (model chunks) a pipeline rank; 1: no interleaving."""
    dp_replicate: int
    dp_shard: int
    """Data-parallel ranks that share one copy of the optimizer state; dp = replicate x shard."""
    ep: int
    etp: int
    micro_batch: int
    schedule: Schedule
    sequence_parallel: bool
    zero_stage: int
    """ZeRO: 0 shards nothing, 1 the optimizer, 2 gradients too, 3 weights too. Megatron's
    distributed optimizer is stage 1; FSDP is 3, or 2 where weights stay gathered."""
    recompute: Recompute
    split: Split
    order: str
    """Rank order of the framework, fastest axis first: ``tp-cp-ep-dp-pp``."""
    cp_comm: ContextComm = "p2p"
    cp_a2a: int = 1
    """Of ``a2a+p2p``: neighbours that exchange heads for tokens; the ring has cp / cp_a2a."""
    offload: Offload = Offload()
    zero_plus: ZeroPlus = ZeroPlus()

    @cached_property
    def dp(self) -> int:
        """Data-parallel size of the dense mesh."""
        return self.dp_replicate * self.dp_shard

    @cached_property
    def cp_p2p(self) -> int:
        """Context ranks of a ring: all, or of ``a2a+p2p`` one of each set of neighbours."""
        return self.cp // self.cp_a2a

    @cached_property
    def world(self) -> int:
        """Ranks: tp x cp x dp x pp."""
        return self.tp * self.cp * self.dp * self.pp

    @cached_property
    def edp(self) -> int:
        """Data-parallel size of the expert mesh: world / (etp x ep x pp)."""
        return self.world // (self.etp * self.ep * self.pp)

    def tokens(self, sequence_length: int) -> float:
        """Tokens of one micro-batch on a rank, before sequence parallelism."""
        return sequence_length * self.micro_batch / self.cp

    def micro_batches(self, global_batch: int) -> int:
        """Micro-batches a pipeline runs in one step."""
        return global_batch // (self.micro_batch * self.dp)


def bubble_fraction(pp: int, vpp: int, micro_batches: int) -> float:
    """Idle share of the ideal step: (p - 1) / (m v) (arXiv:2104.04473, section 2.2)."""
    return (pp - 1) / (micro_batches * vpp)
