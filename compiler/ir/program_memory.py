"""Memory model of a training program: number formats, saved tensors, buffers, and its allocator."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.layout import NO_OFFLOAD, Offload

FRAGMENTATION = 0.08
"""Share of dynamic memory that torch's caching allocator loses; fitted to 85 readings of reserved
and device memory of three programs. Published: 5 to 10 %."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per parameter of model states before sharding; ZeRO stages shard them."""

    weight: float
    gradient: float
    optimizer: float
    cast: float = 0.0
    """Low-precision copies of a linear weight, kept between micro-batches; never sharded."""
    casts_head: bool = False
    """The output projection has such a copy too."""
    step: float = 0.0
    """fp32 gradients that the optimizer copies from 16-bit ones after the backward pass; sharded
    like the optimizer state. In fp16 they are part of ``optimizer``, as Megatron-LM counts."""
    gathered: float = 0.0
    """Copy of the weights that FSDP2 without resharding keeps gathered from the forward to the
    backward pass at stage 2, while the weights themselves are sharded; 0: no such copy. In a
    pipeline it stays at stage 3 too, and gradients are added up unsharded until the last
    micro-batch (torch.distributed.pipelining/stage.py, backward_maybe_with_nosync)."""

    def on_rank(
        self,
        zero_stage: int,
        shards: int,
        pipelined: bool = False,
        offload: Offload = NO_OFFLOAD,
        hpz: int = 1,
    ) -> tuple[float, float, float]:
        """Return (weight, gradient, optimizer) bytes per parameter in the GPU of one rank.

        Stage 1 shards the optimizer over ``shards`` ranks, 2 the gradients too, 3 the weights too
        (ZeRO, arXiv:1910.02054, figure 1). Megatron's distributed optimizer is stage 1. If the
        optimizer is on the host, gradients move there as they are reduced (arXiv:2101.06840), at
        stage 1 once per step. ``hpz`` ranks keep a second copy of the weights (arXiv:2306.10209).
        """
        parts = self.weight, self.gradient, self.optimizer
        weight, gradient, optimizer = (
            part / shards if zero_stage >= stage else part
            for part, stage in zip(parts, (3, 2, 1), strict=True)
        )
        if self.gathered and (zero_stage == 2 or (pipelined and zero_stage == 3)):
            weight = self.weight / shards + self.gathered
        if self.gathered and pipelined and zero_stage >= 2:
            gradient = self.gradient
        if offload.optimizer != "none":
            gradient, optimizer = (0.0 if zero_stage >= 2 else min(gradient, 2.0)), 0.0
        if offload.parameters != "none":
            weight = 0.0
        if hpz > 1 and zero_stage >= 3:
            weight += self.weight / hpz
        return weight, gradient, optimizer


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """Memory of one training program beyond the sizes that its layout determines.

    The defaults describe fused 16-bit kernels of TransformerEngine. "Bytes per element" of saved
    tensors follow from the tensors that autograd saves for one layer.
    """

    name: str
    """Key of the memo: unique among the programs that are evaluated for one problem."""
    state: StateBytes
    saved_bytes: float = 2.0
    """Bytes per element that a linear layer saves for its weight gradient; fp8: 1."""
    fused_attention: bool = True
    """False: the attention matrix is saved (Korthikanti's 5 a s^2 b / t)."""
    attention_dropout: bool = False
    hidden_dropout: bool = False
    residual_bytes: float = 2.0
    """Bytes per element of the residual stream; under autocast, with fp32 weights: 4."""
    norm_copies: float = 1.0
    """Copies of the residual stream that a norm saves; unfused RMSNorm in fp32: 3."""
    fused_norms: bool = True
    """A norm is fused into the following linear layer (TransformerEngine's LayerNormLinear), which
    saves the norm's output under every recompute level. Norms before latent attention and before
    experts are never fused."""
    input_copies: float = 1.0
    """16-bit copies of a norm's output if each product casts its own input."""
    rotary_copies: float = 0.0
    """16-bit copies of queries and keys that unfused rotary embedding saves."""
    output_copies: float = 0.0
    """16-bit copies of the attention output if its memory layout is not that of the projection."""
    activation_copies: float = 0.0
    """16-bit tensors of width ffn that an unfused gated activation saves besides its inputs."""
    repeats_keys: bool = False
    """Keys and values are saved once per query head."""
    gathers_again: bool = True
    """The backward pass gathers sequence-parallel inputs again; DTensor keeps them gathered."""
    last_product: bool = False
    """Selective recompute by operator saves the layer's last product, which the backward pass never
    reads; a compiler would drop it."""
    fused_projection: bool = False
    """Queries, keys and values are one product, so that this recompute level saves all of it."""
    keeps_reduced: bool = False
    """This recompute level also saves the outputs of tensor parallelism's reduce-scatters, two per
    layer."""
    loss_bytes: float = 6.0
    """Bytes per logit at the peak: 16-bit logits and fp32 softmax; Megatron's fused loss: 10."""
    split_loss_bytes: float = 0.0
    """``loss_bytes`` if tensor parallelism splits the vocabulary; 0: equal to ``loss_bytes``."""
    whole_logits: bool = False
    """Tensor-parallel ranks gather the logits, and each computes the loss over the vocabulary."""
    loss_parts: int = 1
    """Parts of a micro-batch whose logits and loss are computed one after the other."""
    head_input_bytes: float = 4.0
    """Bytes per element that the final norm saves and the output projection reads."""
    loss_kept_bytes: float = 4.0
    """Part of ``loss_bytes`` that stays until the backward pass: the softmax. With several heads
    only one is at its peak."""
    gathered_units: float = 2.0
    """Layers that ZeRO-3 or FSDP hold gathered: the current one and the prefetched one."""
    unit_bytes: float = 2.0
    """Bytes per parameter of a gathered layer."""
    head_unit_bytes: float = 0.0
    """``unit_bytes`` of the output projection; 0: equal to ``unit_bytes``."""
    root_bytes: float = 0.0
    """Bytes per parameter of an untied embedding that is gathered with the output projection."""
    live_parameters: float = 0.0
    """Parameters that stay gathered in any case, up to those of the stage."""
    workspace_bytes: float = 0.0
    """Workspaces and buckets inside the caching allocator."""
    grouped_workspace_bytes: float = 0.0
    """Additional workspaces if experts are multiplied as a group."""
    placeholder_bytes: float = 0.0
    """Bytes per element of placeholder gradients, which autograd needs if a GEMM adds the weight
    gradient to its sum itself; 0: gradients are added up by other kernels."""
    keeps_head_input: bool = False
    """The gathered input of the output projection stays allocated."""
    fragmentation: float = FRAGMENTATION
    """Share of the bytes of activations and logits that the caching allocator loses."""
    replicated: ProgramMemory | None = None
    """Memory of the program without any sharding, if it differs."""

    def for_zero_stage(self, zero_stage: int) -> ProgramMemory:
        """Return the memory model of the program at a ZeRO stage."""
        return self.replicated if self.replicated is not None and not zero_stage else self


@dataclass(frozen=True, slots=True)
class GradientExchange:
    """Points in time at which a framework reduces gradients and gathers weights."""

    reduces_replicas_once: bool = False
    """Copies of a hybrid shard reduce their gradients once per step, although micro-batches scatter
    gradients (ZeRO stages 2 and 3); False: with every micro-batch."""
    keeps_pipeline_gradients: bool = False
    """In a pipeline, gradients stay unsharded until the last micro-batch, also at ZeRO stages 2
    and 3 (torch.distributed.pipelining)."""
    gathers_once_at_stage_2: bool = False
    """ZeRO stage 2 scatters gradients with every micro-batch but gathers weights once, after the
    optimizer step."""
