"""Layout of a training job: parallel sizes, micro-batch, schedule, recomputation, stage split."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.model import LayerPart


@frozen
class Recompute:
    """Choice of the activations that the backward pass recomputes, in Megatron's terms."""

    granularity: Literal["none", "selective", "full"]
    modules: tuple[str, ...]
    """Modules to recompute if ``granularity`` is ``selective``. Megatron accepts core_attn, mlp,
    moe, moe_act, layernorm, mla_up_proj and shared_experts."""
    method: Literal["uniform", "block"] | None
    """Distribution of full recomputation: over all layers in blocks of ``layers`` (uniform), or
    only over the first ``layers`` layers of each model chunk (block). None unless ``granularity``
    is ``full``."""
    layers: int | None
    """Layers per block (uniform), or recomputed layers per model chunk (block). None unless
    ``granularity`` is ``full``."""

    @classmethod
    def selective(cls, modules: tuple[str, ...]) -> Recompute:
        """Return the recompute setting that recomputes only ``modules`` of each layer."""
        return cls("selective", modules, None, None)


NO_RECOMPUTE = Recompute("none", (), None, None)


@frozen
class ModelChunk:
    """Model chunk: the layers that one pipeline rank runs in one of its virtual stages."""

    first_layer: int
    """0-based index of the first decoder layer. If the chunk has no layers, index of the next layer
    after it in the model."""
    layers: int
    embedding: bool
    mtp_layers: int
    loss: bool


@frozen
class PipelineSplit:
    """Distribution of the model over pipeline stages: ``chunks[pipeline rank][virtual stage]``."""

    form: Literal["even", "counted", "first-last", "string"]
    """Notation in the framework's arguments: no argument (even), flags that count the embedding or
    the loss as a layer (counted), numbers of layers of the first and the last stage (first-last),
    or a pipeline layout string (string)."""
    count_embedding: bool
    count_loss: bool
    text: str
    """Pipeline layout string in Megatron's notation (``Et*3|(tt|)*29,m|L``); empty unless ``form``
    is ``string``."""
    chunks: tuple[tuple[ModelChunk, ...], ...]

    def stage_layers(self, stage: int) -> int:
        """Return the number of decoder layers in all virtual stages of pipeline rank ``stage``."""
        return sum(chunk.layers for chunk in self.chunks[stage])


Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"]
"""Pipeline schedules that a framework can run; ``cost/schedules`` contains the cost model of
each."""
ContextComm = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""Communication of context parallelism. ``p2p``: keys and values circulate in a ring;
``all_gather``: every rank gathers all keys and values; ``a2a``: an all-to-all exchanges heads for
tokens (Ulysses); ``a2a+p2p``: Ulysses inside groups of neighboring ranks, and a ring between these
groups."""
OffloadTarget = Literal["none", "cpu", "nvme"]


@frozen
class Offload:
    """Devices that store optimizer state and weights between uses, and offloaded activations.

    ``none`` is GPU memory, ``cpu`` host memory, ``nvme`` a local disk.
    """

    optimizer: OffloadTarget
    parameters: OffloadTarget
    nvme_path: str
    activations: tuple[str, ...] = ()
    """Parts of a layer whose saved activations wait in host memory until the backward pass:
    attention, norms, experts."""

    @property
    def uses_nvme(self) -> bool:
        """True if the NVMe disks store the optimizer state or the weights."""
        return "nvme" in (self.optimizer, self.parameters)


NO_OFFLOAD = Offload("none", "none", "")


@frozen
class ZeroPlus:
    """Settings of ZeRO++ (arXiv:2306.10209): a second copy of the weights, and quantization."""

    hpz: int
    """Number of consecutive ranks that share a second copy of the weights, which the backward pass
    reads (hpZ); 1 = no second copy."""
    quantized_weights: bool
    quantized_gradients: bool


NO_ZERO_PLUS = ZeroPlus(hpz=1, quantized_weights=False, quantized_gradients=False)


CudaGraphs = bool | Literal["full_iteration"]
"""True: one CUDA graph per layer, of the parts whose shapes never change. full_iteration: one CUDA
graph of the forward and backward passes of a whole step. False: no CUDA graphs."""


@frozen
class CapturedGraphs:
    """CUDA graphs that a framework captures on a rank."""

    parts: frozenset[LayerPart]
    """Parts of a layer that are captured."""
    micro_batches: int
    """Number of micro-batches per step that are captured separately; 1 if all replay the same
    graph."""
    per_layer: bool = True
    """True if each layer has graphs of its own; False if one graph contains a whole step."""


@frozen
class LayoutVariant:
    """Combination of framework options other than parallel sizes.

    The search evaluates each variant that the framework offers.
    """

    zero_stage: int = 1
    dp_shard: int = 0
    """Number of data-parallel ranks that together store one copy of the sharded state; 0 = all
    data-parallel ranks."""
    schedule: Schedule | None = None
    """Pipeline schedule; None = interleaved if there are virtual stages, otherwise 1f1b."""
    cp_comm: ContextComm | None = "p2p"
    """Communication of context parallelism; None = the fastest one that the framework supports."""
    offload: Offload = NO_OFFLOAD
    zero_plus: ZeroPlus = NO_ZERO_PLUS
    cuda_graphs: CudaGraphs = False
    sequence_parallel: bool | None = None
    """Sequence parallelism; None = with tensor parallelism, if the framework supports it."""
    last_resort: bool = False
    """True if the search evaluates the variant only if no other variant fits in memory."""
    gtp: int = 1
    egtp: int = 1
    refines: bool = False
    """True if the search evaluates the variant only if it makes a layout of the other variants
    faster by more than ``goals.tie``."""


@frozen(slots=False)
class Layout:
    """Parallel sizes and options that determine what each of the ``world`` ranks computes."""

    tp: int
    cp: int
    pp: int
    vpp: int
    """Virtual stages (model chunks) per pipeline rank; 1 = no interleaving."""
    dp_replicate: int
    dp_shard: int
    """Number of data-parallel ranks that together store one copy of the sharded state. The
    data-parallel size is dp_replicate x dp_shard x gtp."""
    ep: int
    etp: int
    micro_batch: int
    schedule: Schedule
    sequence_parallel: bool
    zero_stage: int
    """ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 also the gradients, 3 also the
    weights. Megatron's distributed optimizer is stage 1, Megatron-FSDP stages 2 and 3. FSDP is
    stage 3, or stage 2 if it does not reshard weights after the forward pass."""
    recompute: Recompute
    split: PipelineSplit
    order: str
    """Order in which ranks vary along the axes, fastest axis first, in the notation of the
    framework: ``tp-cp-ep-dp-pp``."""
    cp_comm: ContextComm
    cp_a2a: int
    """Number of neighboring ranks that exchange heads for tokens if ``cp_comm`` is ``a2a+p2p``. The
    ring between these groups has cp / cp_a2a members."""
    offload: Offload
    zero_plus: ZeroPlus
    cuda_graphs: CudaGraphs
    """Kernels that CUDA graphs replay, so that the host launches fewer of them."""
    gtp: int = 1
    """Number of neighboring data-parallel ranks that share one copy of each dense weight and gather
    it before use (generalized tensor parallelism); 1 = every rank stores its whole weights."""
    egtp: int = 1
    """Value of ``gtp`` for the weights of routed experts. It divides edp."""

    @cached_property
    def dp(self) -> int:
        """Data-parallel size of the dense layers: dp_replicate x dp_shard x gtp."""
        # Cached, because the search reads these sizes for every candidate.
        return self.dp_replicate * self.dp_shard * self.gtp

    @cached_property
    def cp_p2p(self) -> int:
        """Number of ranks in a context-parallel ring: cp / cp_a2a."""
        return self.cp // self.cp_a2a

    @cached_property
    def world(self) -> int:
        """World size: the number of ranks, tp x cp x dp x pp."""
        return self.tp * self.cp * self.dp * self.pp

    @cached_property
    def edp(self) -> int:
        """Data-parallel size of the expert layers: world / (etp x ep x pp)."""
        # Expert layers have no context-parallel axis, so cp does not appear here.
        return self.world // (self.etp * self.ep * self.pp)

    @cached_property
    def shares_weights(self) -> bool:
        """True if data-parallel ranks share weights of dense layers or of experts."""
        return self.gtp > 1 or self.egtp > 1

    @property
    def optimizer_shards(self) -> tuple[int, int]:
        """Numbers of ranks that divide a copy of the optimizer state: (dense weights, experts).

        The ranks of gtp and egtp are not counted, because each stores other weights.
        """
        # Dense weights are sharded over the data- and context-parallel ranks, experts over edp.
        experts = self.edp // (self.dp_replicate * self.egtp)
        return self.dp_shard * self.cp, max(experts, 1)

    def tokens(self, sequence_length: int) -> float:
        """Return the number of tokens of one micro-batch on one context-parallel rank.

        Sequence parallelism splits these tokens again over the tp ranks; the result is the number
        before that split.
        """
        # A float, because candidates whose sequence length is not a multiple of cp are
        # rejected later.
        return sequence_length * self.micro_batch / self.cp

    def micro_batches(self, global_batch: int) -> int:
        """Return the number of micro-batches that each pipeline runs per step."""
        return global_batch // (self.micro_batch * self.dp)


def bubble_fraction(pp: int, vpp: int, micro_batches: int) -> float:
    """Return the pipeline bubble as a fraction of the step time without a bubble.

    Formula: (pp - 1) / (micro_batches x vpp), from arXiv:2104.04473, section 2.2.
    """
    # vpp model chunks per rank make each bubble vpp times shorter (interleaved schedule).
    return (pp - 1) / (micro_batches * vpp)
