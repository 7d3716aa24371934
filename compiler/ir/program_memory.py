"""Memory model of a training program: number formats, saved tensors, buffers and allocator."""

from __future__ import annotations

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layout import NO_OFFLOAD, Offload
from parc.compiler.ir.problem import LoraAdapters

FRAGMENTATION = 0.08
"""Fraction of the dynamic memory that torch's caching allocator loses to fragmentation. The value
is fitted to 85 readings of reserved and device memory from three programs; publications report 5 to
10 %."""


@frozen
class StateBytes:
    """Bytes per parameter of weights, gradients and optimizer state, before ZeRO shards them."""

    weight: float
    gradient: float
    optimizer: float
    cast: float = 0.0
    """Bytes per weight of low-precision copies of linear layers, which are kept between
    micro-batches and never sharded."""
    casts_head: bool = False
    """True if the output projection has a low-precision copy too."""
    table: float | None = None
    """Bytes per weight of the embedding and the output projection if ``weight`` describes weights
    in low precision, which these two never have; None if they are stored like all other weights."""
    sent: float = 2.0
    """Bytes per weight that ranks send when they gather the weights of linear layers after the
    optimizer step, at ZeRO stage 1. Embedding and output projection take 2."""
    step: float = 0.0
    """Bytes per parameter of the fp32 gradients that the optimizer copies from 16-bit gradients
    after the backward pass; sharded like the optimizer state. They are freed before the next
    forward pass."""
    gathered: float = 0.0
    """Bytes per parameter of the gathered weights that FSDP2 keeps from the forward to the backward
    pass at stage 2, while the weights themselves are sharded; 0 if there is no such copy. In a
    pipeline this copy exists at stage 3 too, and gradients are accumulated unsharded until the last
    micro-batch (torch.distributed.pipelining/stage.py, backward_maybe_with_nosync)."""
    unreduced: float = 0.0
    """Bytes per parameter of whole gradients at stages 2 and 3, in programs that reduce gradients
    only after the last micro-batch (set_requires_gradient_sync of FSDP2, which accumulates in the
    format of the reduction); 0 for other programs, such as all that PARC emits."""

    def bytes_on_rank(
        self,
        zero_stage: int,
        shards: int,
        pipelined: bool = False,
        offload: Offload = NO_OFFLOAD,
        hpz: int = 1,
    ) -> tuple[float, float, float]:
        """Return bytes per parameter of (weights, gradients, optimizer state) in one rank's memory.

        Args:
            zero_stage: stage 1 divides the optimizer state by ``shards``, stage 2 also the
                gradients, stage 3 also the weights (arXiv:1910.02054, figure 1). Megatron's
                distributed optimizer is stage 1.
            shards: number of ranks over which ZeRO shards the state.
            pipelined: True if the program uses pipeline parallelism.
            offload: parts that are stored in host memory. With an offloaded optimizer, gradients
                move to the host while they are reduced (arXiv:2101.06840); at stage 1 this happens
                once per step.
            hpz: number of ranks that share a second copy of the weights at stage 3
                (arXiv:2306.10209); 1 if there is no second copy.
        """
        parts = self.weight, self.gradient, self.optimizer
        weight, gradient, optimizer = (
            # Weights are sharded from stage 3 on, gradients from 2, optimizer state from 1.
            part / shards if zero_stage >= stage else part
            for part, stage in zip(parts, (3, 2, 1), strict=True)
        )
        # FSDP2 shards the parameters themselves also at stage 2, and keeps a gathered copy.
        if self.gathered and (zero_stage == 2 or (pipelined and zero_stage == 3)):
            weight = self.weight / shards + self.gathered
        # Pipelines of torch reduce-scatter only after the last micro-batch.
        if self.gathered and pipelined and zero_stage >= 2:
            gradient = self.unreduced or self.gradient
        if offload.optimizer != "none":
            # Gradients that wait for the move to the host are 16-bit: at most 2 bytes each.
            gradient, optimizer = (0.0 if zero_stage >= 2 else min(gradient, 2.0)), 0.0
        # Gathered layers are counted in gathered_units, not here.
        if offload.parameters != "none":
            weight = 0.0
        # The second copy is sharded only over hpz ranks, usually those of one host.
        if hpz > 1 and zero_stage >= 3:
            weight += self.weight / hpz
        return weight, gradient, optimizer


@frozen
class ProgramMemory:
    """Memory needs of a training program that depend on its code, not only on the layout.

    The defaults describe a 16-bit program with fused attention that saves each tensor once. Each
    framework sets the fields in which its program differs. Values in bytes per element count the
    tensors that autograd saves for one layer.
    """

    name: str
    """Key under which estimates are cached; unique among the programs that are evaluated for one
    problem."""
    state: StateBytes
    frozen: StateBytes | None = None
    """State of the weights that the job does not train, which have neither gradients nor optimizer
    state; None if it trains all weights."""
    adapters: LoraAdapters | None = None
    """LoRA adapters that the job trains beside the frozen weights."""
    saves_frozen: bool = False
    """True if checkpoints contain frozen weights too."""
    separate_adapter_inputs: bool = False
    """True if each LoRA adapter saves a 16-bit copy of its input, because autocast converts it."""
    routed_load: float = 1.0
    """Tokens of the busiest expert-parallel rank, divided by the mean; set by the estimate."""
    saved_bytes: float = 2.0
    """Bytes per element that a linear layer saves of its input, to compute the weight gradient; 1
    for fp8, and 0 if the weight is frozen."""
    fused_attention: bool = True
    """False if the attention matrix is saved (the term 5 a s^2 b / t of Korthikanti et al.,
    arXiv:2205.05198: a heads, s sequence length, b micro-batch, t tensor-parallel size)."""
    score_gradients: float = 1.0
    """Number of matrices of that size that the backward pass of such attention also stores."""
    attention_dropout: bool = False
    hidden_dropout: bool = False
    residual_bytes: float = 2.0
    """Bytes per element of the residual stream; 4 with fp32 weights under autocast."""
    norm_copies: float = 1.0
    """Number of copies of the residual stream that a norm saves; 3 for an unfused RMSNorm that
    computes in fp32."""
    fused_norms: bool = False
    """True if a norm is fused into the linear layer after it (TransformerEngine's LayerNormLinear),
    which saves the output of the norm at every recompute level. Norms before latent attention and
    before experts are never fused."""
    input_copies: float = 1.0
    """Number of 16-bit copies of the output of a norm; above 1 if each matrix multiplication casts
    its own input."""
    rotary_copies: float = 0.0
    """Number of 16-bit copies of queries and keys that an unfused rotary embedding saves."""
    output_copies: float = 0.0
    """Number of 16-bit copies of the attention output; above 0 if the projection needs another
    memory layout."""
    activation_copies: float = 0.0
    """Number of 16-bit tensors of the MLP's hidden width that an unfused gated activation saves in
    addition to its inputs."""
    weighted_copies: float = 1.0
    """Number of 16-bit tensors of the experts' width that an activation without a gate saves before
    it is multiplied by the router weights; 0 with a kernel that does both. Megatron has one only
    for gated experts, and for squared ReLU with ``--use-fused-weighted-squared-relu``."""
    tanh_copies: float = 0.0
    """Value of ``activation_copies`` for an MLP without a gate whose GELU is approximated by tanh;
    0 if it is the same."""
    repeats_keys: bool = False
    """True if keys and values are saved once per query head instead of once per key-value head."""
    gathers_again: bool = False
    """True if the backward pass gathers sequence-parallel inputs again; False if they stay
    gathered, as with DTensor."""
    last_product: bool = False
    """True if selective recomputation by operator saves the output of the layer's last matrix
    multiplication. The backward pass never reads it, and a compiler would remove it."""
    saves_products: bool = True
    """False if selective recomputation by operator saves no outputs of matrix products, because the
    modules of a layer are compiled one by one: its policy names ``aten.mm``, but compiled code
    calls ``aten.mm.out``. The attention core keeps its operator and is saved."""
    fused_projection: bool = False
    """True if queries, keys and values are computed by one matrix multiplication, so that selective
    recomputation by operator saves all three."""
    keeps_reduced: bool = False
    """True if selective recomputation by operator also saves the outputs of the two reduce-scatters
    of tensor parallelism in each layer."""
    saves_exchanges: bool = True
    """True if selective recomputation by operator also saves the outputs of the all-to-alls between
    experts."""
    loss_bytes: float = 6.0
    """Bytes per logit at the memory peak: 6 for 16-bit logits and an fp32 softmax; more if the loss
    also stores fp32 logits or gradients."""
    split_loss_bytes: float = 0.0
    """Value of ``loss_bytes`` if tensor parallelism splits the vocabulary; 0 if it is the same."""
    whole_logits: bool = False
    """True if tensor-parallel ranks gather the logits, so that each computes the loss over the
    whole vocabulary."""
    whole_embedding: bool = False
    """True if tensor parallelism does not split the input embedding unless it is tied to the output
    projection."""
    loss_parts: int = 1
    """Number of parts into which a micro-batch is divided for logits and loss, which are computed
    part by part."""
    head_input_bytes: float = 4.0
    """Bytes per element that are saved as the input of the output projection, including those of
    the final norm."""
    loss_kept_bytes: float = 4.0
    """Part of ``loss_bytes`` that stays allocated until the backward pass, which is the softmax. If
    there are several output heads, only one of them is at its peak at a time."""
    gathered_units: float = 2.0
    """Number of layers whose weights ZeRO-3 or FSDP keep gathered at a time: the current layer and
    the prefetched one."""
    unit_bytes: float = 2.0
    """Bytes per parameter of a gathered layer."""
    head_unit_bytes: float = 0.0
    """Value of ``unit_bytes`` for the output projection; 0 if it is the same."""
    root_bytes: float = 0.0
    """Bytes per parameter of an untied embedding that is gathered together with the output
    projection."""
    live_parameters: float = 0.0
    """Number of parameters that stay gathered all the time, at most as many as the stage has."""
    workspace_bytes: float = 0.0
    """Bytes of library workspaces and communication buckets inside torch's caching allocator."""
    second_bucket_bytes: float = 0.0
    """Additional workspace bytes below ZeRO-3: DeepSpeed reduces gradients from two buckets at
    stage 2, so that it can fill one during the reduction of the other, and from one at stage 3."""
    grouped_workspace_bytes: float = 0.0
    """Additional workspace bytes if one grouped kernel multiplies all experts."""
    placeholder_bytes: float = 0.0
    """Bytes per element of placeholder gradients. Autograd needs them if the matrix multiplication
    itself adds the weight gradient to the accumulated one; 0 if another kernel adds it."""
    keeps_head_input: bool = False
    """True if the gathered input of the output projection stays allocated."""
    overlap_buffer_bytes: float = 0.0
    """Bytes of buffers that overlap tensor-parallel collectives with matrix multiplications, per
    element of a micro-batch's hidden states before sequence parallelism splits them."""
    fragmentation: float = FRAGMENTATION
    """Fraction of the bytes of activations and logits that the caching allocator loses to
    fragmentation."""
    static_fragmentation: float = 0.0
    """Fraction of the bytes of parameters, gradients and optimizer state that the caching allocator
    reserves in addition."""
    prefetched_parameters: float = 0.0
    """Number of parameters that ZeRO-3 gathers ahead of the current layer: the next layers, until
    they have this many parameters, and at least one. 0 if ``gathered_units`` says how many."""
    keeps_tables_gathered: bool = False
    """True if ZeRO-3 keeps embedding and output projection gathered for the whole step."""
    keeps_casts: bool = False
    """True if low-precision copies of the weights stay allocated at ZeRO-3 too."""
    waiting_gradients: float = 0.0
    """Number of whole gradients that may wait for their reduction at ZeRO-2 and 3; at least those
    of two layers at ZeRO-3. 0 if whole gradients are freed at once."""
    step_parameters: float = 0.0
    """Largest number of parameters that ZeRO-3 updates at a time; ``StateBytes.step`` counts only
    theirs. 0 if it updates all parameters together."""
    reduced_bytes: float = 0.0
    """Bytes per gradient in the format in which FSDP2 reduces the gradients of a unit, at ZeRO-2
    and 3; 0 for other programs."""
    bucket_parameters: tuple[float, float] = (0.0, 0.0)
    """(least number of gradients, number per sharding rank) that ZeRO-2 reduces together."""
    buckets_first_stage_only: bool = False
    """True if ZeRO-2 reduces all gradients of a model chunk together, except on the first pipeline
    stage."""
    replicated: ProgramMemory | None = None
    """Memory model of the program at ZeRO stage 0, if it differs from the one with sharding."""
    fully_sharded: ProgramMemory | None = None
    """Memory model of the program at ZeRO stages 2 and 3, if it differs from stage 1."""

    def for_zero_stage(self, zero_stage: int) -> ProgramMemory:
        """Return the memory model that applies to the program at ``zero_stage``."""
        own = {0: self.replicated, 1: None}.get(zero_stage, self.fully_sharded)
        return own or self


@frozen
class GradientExchange:
    """Points in a step when a framework reduces gradients and gathers weights."""

    reduces_replicas_once: bool = False
    """True if the replicas of a hybrid shard all-reduce gradients once per step, although ZeRO
    stages 2 and 3 reduce-scatter them after every micro-batch; False if replicas all-reduce after
    every micro-batch too."""
    keeps_pipeline_gradients: bool = False
    """True if gradients in a pipeline stay unsharded until the last micro-batch, even at ZeRO
    stages 2 and 3 (torch.distributed.pipelining)."""
    gathers_once_at_stage_2: bool = False
    """True if ZeRO stage 2 reduce-scatters gradients after every micro-batch, but gathers weights
    only once, after the optimizer step."""
    scatters_accumulated_format: bool = False
    """True if ZeRO stages 2 and 3 scatter gradients in the format in which the job accumulates
    them; False if they always scatter 16-bit gradients."""
