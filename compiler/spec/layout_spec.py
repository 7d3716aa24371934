"""Models of the sections ``layout`` and ``goals.limits``.

A value in ``layout`` fixes a decision; the search decides all values that are absent or ``auto``.
``goals.limits`` restricts, by axis, the parallel sizes that the search can choose.
"""

from typing import Annotated, Literal

from parc.compiler.spec.base import Count, NotBool, StrictModel

Auto = Literal["auto"]


class RecomputeSpec(StrictModel):
    """Choice of the activations that the backward pass recomputes, in Megatron's terms."""

    granularity: Literal["none", "selective", "full"]
    """Parts of a layer that the backward pass recomputes: none, the modules listed under modules
    (selective), or the whole layer (full)."""
    modules: tuple[str, ...] = ()
    """Modules to recompute, only valid with granularity: selective. Valid values: core_attn, mlp,
    moe, moe_act, layernorm, mla_up_proj, shared_experts."""
    method: Literal["uniform", "block"] | None = None
    """Layers whose activations are recomputed. uniform divides all layers into blocks and
    recomputes each block; block recomputes only the first layers of each model chunk. Only valid
    with granularity: full."""
    layers: Count | None = None
    """Number of layers per block (method: uniform), or of recomputed layers per model chunk
    (method: block). Only valid with granularity: full."""


class OffloadSpec(StrictModel):
    """Devices that store optimizer state and weights between uses."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Device that stores the optimizer state: the GPU (none), host memory (cpu) or a local NVMe
    disk (nvme). With cpu and nvme, the CPU runs the optimizer."""
    parameters: Literal["none", "cpu", "nvme"] = "none"
    """Device that stores the weights, which are copied to the GPU layer by layer: the GPU (none),
    host memory (cpu) or a local NVMe disk (nvme). cpu and nvme require ZeRO stage 3, which includes
    FSDP."""
    nvme_path: str = ""
    """Folder on the local NVMe disk of each host. Required if optimizer or parameters is nvme."""
    activations: tuple[Literal["attention", "norms", "experts"], ...] = ()
    """Parts of each layer whose saved activations are copied to host memory after the forward pass
    and back before the backward pass. attention: projections and attention core; norms: inputs of
    the norms that are not fused with a projection; experts: inputs of the routed experts and of
    their activation function."""

    @property
    def uses_nvme(self) -> bool:
        """True if the NVMe disks store the optimizer state or the weights."""
        return "nvme" in (self.optimizer, self.parameters)


class ZeroPlusSpec(StrictModel):
    """ZeRO++ of DeepSpeed, which requires zero_stage: 3."""

    hpz: Count = 1
    """Number of ranks that share a second copy of the weights (hpZ). Valid values: the number of
    GPUs per host, or 1 for no second copy."""
    quantized_weights: bool = False
    """Gather weights in 8-bit format (qwZ)."""
    quantized_gradients: bool = False
    """Reduce gradients in 4-bit format (qgZ)."""


class LayoutSpec(StrictModel):
    """Fixed values of the layout. The search decides values that are absent or auto."""

    tp: Count | Auto = "auto"
    """Tensor parallel size: number of ranks that split each weight matrix."""
    cp: Count | Auto = "auto"
    """Context parallel size: number of ranks that split each sequence."""
    pp: Count | Auto = "auto"
    """Pipeline parallel size: number of pipeline stages."""
    vpp: Count | Auto = "auto"
    """Virtual pipeline size: number of model chunks per pipeline rank. 1 means no interleaving."""
    dp: Count | Auto = "auto"
    """Data parallel size: number of model replicas. It usually follows from the number of GPUs and
    the other sizes: GPUs / (tp x cp x pp)."""
    ep: Count | Auto = "auto"
    """Expert parallel size: number of ranks over which the experts of a layer are distributed."""
    etp: Count | Auto = "auto"
    """Expert tensor parallel size: number of ranks that split each expert."""
    gtp: Count | Auto = 1
    """Generalized tensor parallel size: number of neighboring data-parallel ranks that share one
    copy of each weight of the dense layers. They gather a weight just before its use in every
    forward and backward pass, and reduce its gradients after every micro-batch, so that weights,
    gradients and optimizer state need 1/gtp of the memory. It divides dp. Megatron's
    --tensor-parallel-num-weight-shards is tp x gtp. 1 means no sharing; auto compares sizes within
    one NVLink domain."""
    egtp: Count | Auto = 1
    """Generalized tensor parallel size of routed experts: number of data-parallel ranks that share
    one copy of the weights of each expert, as gtp does for the other weights. It divides the number
    of replicas of the experts, GPUs / (etp x ep x pp). Megatron's
    --expert-tensor-parallel-num-weight-shards is etp x egtp. auto compares 1 and gtp."""
    micro_batch: Count | Auto = "auto"
    """Number of sequences per micro-batch."""
    sequence_parallel: bool | Auto = "auto"
    """Use sequence parallelism: between the linear layers, tensor-parallel ranks split the tokens.
    auto uses it if tp > 1."""
    recompute: Literal["auto", "none", "selective", "full"] | RecomputeSpec = "auto"
    """Activation recomputation. selective recomputes the attention core (core_attn), full
    recomputes each layer. A mapping selects modules or layers."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], NotBool] | Auto = "auto"
    """ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 also the gradients, 3 also the
    weights. Megatron shards gradients and weights with Megatron-FSDP; auto uses it only if nothing
    else fits in memory, or nothing else that is as safe and as fast. FSDP is stage 3, or stage 2 if
    it does not reshard weights after the forward pass."""
    dp_shard: Count | Auto = "auto"
    """Number of data-parallel ranks that together store one copy of the sharded state. A value
    below dp selects hybrid sharding (HSDP)."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"] | Auto = "auto"
    """Pipeline schedule. auto selects interleaved if vpp > 1, otherwise 1f1b."""
    cp_comm: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] | Auto = "auto"
    """Communication of context parallelism. p2p: keys and values circulate in a ring; all_gather:
    every rank gathers all keys and values; a2a: an all-to-all exchanges heads for tokens (Ulysses);
    a2a+p2p: a2a inside groups of neighboring ranks, and a ring between these groups."""
    cp_a2a: Count | Auto = "auto"
    """Number of neighboring ranks that exchange heads for tokens. Used if cp_comm is a2a+p2p. auto
    uses as many as fit, together with their tensor-parallel ranks, into an NVLink domain."""
    offload: Literal["none", "cpu"] | OffloadSpec | Auto = "auto"
    """Offload of optimizer state, weights and activations. cpu offloads only the optimizer state,
    to host memory. auto offloads only if the framework supports it and no layout without offload
    fits in memory."""
    zero_plus: ZeroPlusSpec | None = None
    """ZeRO++ of DeepSpeed. If absent, ZeRO++ is not used."""
    cuda_graphs: bool | Literal["full_iteration"] | Auto = "auto"
    """Capture kernels in CUDA graphs, so that the host launches fewer of them. true captures the
    parts of each layer whose shapes never change: whole dense layers, and of layers with experts
    all parts before the dispatch. full_iteration captures the forward and backward passes of a
    whole step in one graph; the run then no longer checks losses and gradients for NaN. auto
    captures one of them if the framework can, if published runs on this kind of GPU confirm a gain,
    if the graphs fit in memory, and if the step is then shorter by more than goals.tie."""
    first_stage_layers: Count | Auto = "auto"
    """Number of decoder layers on the first pipeline rank. If no field sets a part of the split,
    PARC balances the stages with estimated times, if that saves more than goals.tie."""
    last_stage_layers: Count | Auto = "auto"
    """Number of decoder layers on the last pipeline rank."""
    pipeline_layout: str | None = None
    """Megatron's pipeline layout string, which assigns layers to stages: Et*3|(tt|)*29,m|L."""
    count_embedding: bool | Auto = "auto"
    """Count the embedding as one layer when PARC splits the layers evenly over the stages. With
    true or false, no other split is tried."""
    count_loss: bool | Auto = "auto"
    """Count the output layer and the loss as one layer when PARC splits the layers evenly over the
    stages. With true or false, no other split is tried."""
    order: str = "auto"
    """Rank order: the axes from the fastest-varying to the slowest, joined by hyphens. The
    framework determines which orders are valid; Megatron has tp-cp-ep-dp-pp and tp-cp-ep-pp-dp.
    auto uses its default, or another one if the step is then more than 1 % shorter."""
    placement: Literal["auto", "pp-across-racks", "dp-across-racks", "names"] = "auto"
    """Rule that assigns node ranks to hosts. auto minimizes the communication time that computation
    does not hide; among equally fast orders of hosts, it prefers those in which only pipeline
    groups span racks. pp-across-racks and dp-across-racks let pipeline or data-parallel groups span
    racks first, even if the step becomes slower. names sorts the hosts by name."""


class ParallelSizeLimit(StrictModel):
    """Limit on the size of one axis. A size must meet every condition that is set."""

    min: Count | None = None
    """Smallest allowed size. If absent, 1."""
    max: Count | None = None
    """Largest allowed size. If absent, there is no upper limit."""
    only: tuple[Count, ...] = ()
    """Allowed sizes. If empty, every size is allowed."""
    ban: tuple[Count, ...] = ()
    """Sizes that are not allowed."""


class LimitsSpec(StrictModel):
    """Limits on the parallel sizes, by axis. Sizes that layout fixes must meet the limits too."""

    tp: ParallelSizeLimit | None = None
    """Limit on the tensor parallel size."""
    cp: ParallelSizeLimit | None = None
    """Limit on the context parallel size."""
    pp: ParallelSizeLimit | None = None
    """Limit on the pipeline parallel size."""
    vpp: ParallelSizeLimit | None = None
    """Limit on the virtual pipeline size (model chunks per pipeline rank)."""
    dp: ParallelSizeLimit | None = None
    """Limit on the data parallel size."""
    ep: ParallelSizeLimit | None = None
    """Limit on the expert parallel size."""
    etp: ParallelSizeLimit | None = None
    """Limit on the expert tensor parallel size."""
    micro_batch: ParallelSizeLimit | None = None
    """Limit on the number of sequences per micro-batch."""
