"""Layout of a training job: degrees, micro-batch, schedule, recomputation and stage split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal


@dataclass(frozen=True, slots=True)
class Recompute:
    """Activation recomputation, in Megatron's terms."""

    granularity: Literal["none", "selective", "full"]
    modules: tuple[str, ...]
    """With ``selective``: recomputed modules, in Megatron any of core_attn, mlp, moe, moe_act,
    layernorm, mla_up_proj and shared_experts."""
    method: Literal["uniform", "block"] | None
    """With ``full``: all layers in blocks of ``layers`` (uniform), or only the first ``layers``
    layers of each model chunk (block)."""
    layers: int | None
    """With ``full``: layers per block (uniform), or recomputed layers per model chunk (block)."""

    @classmethod
    def selective(cls, modules: tuple[str, ...]) -> Recompute:
        """Return recomputation of ``modules`` only."""
        return cls("selective", modules, None, None)


NO_RECOMPUTE = Recompute("none", (), None, None)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Model chunk: the part of the model in one virtual stage of one pipeline rank."""

    first_layer: int
    """0-based index of the first decoder layer; of the next one if the chunk has no layers."""
    layers: int
    embedding: bool
    mtp_layers: int
    loss: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Distribution of the layers over model chunks: ``chunks[pipeline rank][virtual stage]``."""

    form: Literal["even", "counted", "first-last", "string"]
    """Encoding for the framework: no flag (even), account-for-embedding/loss flags (counted),
    layer counts of the first and last stage (first-last), or a layout string."""
    count_embedding: bool
    count_loss: bool
    text: str
    """Layout string (``Et*3|(tt|)*29,m|L``); empty unless ``form`` is ``string``."""
    chunks: tuple[tuple[Chunk, ...], ...]

    def stage_layers(self, stage: int) -> int:
        """Return the decoder layers of pipeline rank ``stage``, summed over its virtual stages."""
        return sum(chunk.layers for chunk in self.chunks[stage])


Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"]
"""Pipeline schedules that a framework can run; ``cost/schedules`` has their cost."""
ContextComm = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""Communication of context parallelism: a ring of keys and values (p2p), an all-gather, an
all-to-all that exchanges heads for tokens (Ulysses), or Ulysses among neighbours and a ring between
those (hierarchical)."""
OffloadTarget = Literal["none", "cpu", "nvme"]


@dataclass(frozen=True, slots=True)
class Offload:
    """Memory in which optimizer state and weights are kept between uses; ``none`` = GPU memory."""

    optimizer: OffloadTarget
    parameters: OffloadTarget
    nvme_path: str


NO_OFFLOAD = Offload("none", "none", "")


@dataclass(frozen=True, slots=True)
class ZeroPlus:
    """ZeRO++ (arXiv:2306.10209): a secondary copy of the weights, and quantized communication."""

    hpz: int
    """Consecutive ranks that share a secondary copy of the weights for the backward pass (hpZ);
    1 = no copy."""
    quantized_weights: bool
    quantized_gradients: bool


NO_ZERO_PLUS = ZeroPlus(hpz=1, quantized_weights=False, quantized_gradients=False)


@dataclass(frozen=True, slots=True)
class Variant:
    """Options in addition to degrees that a framework offers; the search evaluates each variant."""

    zero_stage: int = 1
    dp_shard: int = 0
    """Data-parallel ranks that shard one copy of the state; 0 = all of them."""
    schedule: Schedule | None = None
    """None: 1f1b, or interleaved with virtual stages."""
    cp_comm: ContextComm | None = "p2p"
    """None: the fastest exchange that the framework supports."""
    offload: Offload = NO_OFFLOAD
    zero_plus: ZeroPlus = NO_ZERO_PLUS
    last_resort: bool = False
    """Evaluated only if no other variant fits into memory."""


@dataclass(frozen=True)
class Layout:
    """Degrees and options that determine the computation of each of the ``world`` ranks."""

    tp: int
    cp: int
    pp: int
    vpp: int
    """Virtual stages (model chunks) per pipeline rank; 1 = no interleaving."""
    dp_replicate: int
    dp_shard: int
    """Data-parallel ranks that shard one copy of the state; dp = dp_replicate x dp_shard."""
    ep: int
    etp: int
    micro_batch: int
    schedule: Schedule
    sequence_parallel: bool
    zero_stage: int
    """ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 gradients too, 3 weights too.
    Megatron's distributed optimizer is stage 1; FSDP is stage 3, or 2 without resharding after the
    forward pass."""
    recompute: Recompute
    split: Split
    order: str
    """Rank order of the framework, fastest axis first: ``tp-cp-ep-dp-pp``."""
    cp_comm: ContextComm
    cp_a2a: int
    """With ``a2a+p2p``: neighbouring ranks that exchange heads for tokens; the ring has
    cp / cp_a2a members."""
    offload: Offload
    zero_plus: ZeroPlus

    @cached_property
    def dp(self) -> int:
        """Data-parallel size of the dense mesh."""
        return self.dp_replicate * self.dp_shard

    @cached_property
    def cp_p2p(self) -> int:
        """Members of a context-parallel ring: with ``a2a+p2p``, one per group of neighbours."""
        return self.cp // self.cp_a2a

    @cached_property
    def world(self) -> int:
        """Number of ranks: tp x cp x dp x pp."""
        return self.tp * self.cp * self.dp * self.pp

    @cached_property
    def edp(self) -> int:
        """Data-parallel size of the expert mesh: world / (etp x ep x pp)."""
        return self.world // (self.etp * self.ep * self.pp)

    def tokens(self, sequence_length: int) -> float:
        """Return the tokens per rank of one micro-batch, before sequence parallelism."""
        return sequence_length * self.micro_batch / self.cp

    def micro_batches(self, global_batch: int) -> int:
        """Return the micro-batches per pipeline and step."""
        return global_batch // (self.micro_batch * self.dp)


def bubble_fraction(pp: int, vpp: int, micro_batches: int) -> float:
    """Return the idle share of the ideal step: (p - 1) / (m v) (arXiv:2104.04473, section 2.2)."""
    return (pp - 1) / (micro_batches * vpp)
