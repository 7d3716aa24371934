"""What a training program keeps in memory beyond what a layout says: number formats and kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from parc.compiler.ir import NO_OFFLOAD, Gpu, Offload

MIB = 2**20
BLOCK_BYTES = 512
"""The caching allocator of torch hands out multiples of this."""
GROUPED_STREAMS = 4
"""Streams of TransformerEngine's grouped matrix products, each with a workspace (gemm.py)."""
BEFORE_HOPPER = ("volta", "ampere", "ada")
FRAGMENTATION = 0.08
"""Fitted on 85 readings of reserved and device memory of three programs; published: 5 to 10 %."""
EXPANDING_FRAGMENTATION = 0.05
"""Megatron, which PARC starts with expandable segments; an assumption: nothing tells it apart."""
SCALARS = 7
"""Tensors of one element that Megatron keeps; each takes a block of the allocator."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes a parameter before any sharding, and the ZeRO stage that shards each of the three."""

    weight: float
    gradient: float
    optimizer: float
    cast: float = 0.0
    """Low-precision copies of a linear weight, kept between micro-batches; never sharded."""
    casts_head: bool = False
    """The output projection has such a copy too."""
    step: float = 0.0
    """fp32 gradients that the optimizer makes of 16-bit ones when activations are gone; sharded
    as the optimizer is. In fp16 they are counted with the optimizer, as Megatron-LM counts."""
    gathered: float = 0.0
    """Not 0: weights are sharded at stage 2 as well, beside a copy of so many bytes that stays
    gathered from the forward pass to the backward (FSDP2 without resharding). In a pipeline it
    stays at stage 3 too, and gradients are added up whole until the last micro-batch
    (torch.distributed.pipelining/stage.py, backward_maybe_with_nosync)."""

    def on_rank(
        self,
        zero_stage: int,
        shards: int,
        pipelined: bool = False,
        offload: Offload = NO_OFFLOAD,
        hpz: int = 1,
    ) -> tuple[float, float, float]:
        """(weight, gradient, optimizer) in the GPU of one of ``shards`` ranks.

        Stage 1 shards the optimizer, 2 the gradients too, 3 the weights too (ZeRO,
        arXiv:1910.02054, figure 1). Megatron's distributed optimizer is stage 1. With the
        optimizer on the host, gradients follow it as they are reduced (arXiv:2101.06840), at
        stage 1 once a step. ``hpz`` ranks keep a second copy of the weights (arXiv:2306.10209).
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
class Runtime:
    """One training program. The defaults are those of Megatron-Core as PARC starts it."""

    name: str
    """Unique among the runtimes that price one problem: it is a key of the memo."""
    state: StateBytes
    saved_bytes: float = 2.0
    """Bytes an element of what a linear layer saves for its weight gradient; fp8: 1."""
    fused_attention: bool = True
    """False: the attention matrix is kept (Korthikanti's 5 a s^2 b / t)."""
    attention_dropout: bool = False
    hidden_dropout: bool = False
    residual_bytes: float = 2.0
    """Bytes an element of the residual stream; under autocast, with fp32 weights: 4."""
    norm_copies: float = 1.0
    """Copies of the residual stream that a norm keeps; unfused RMSNorm in fp32: 3."""
    fused_norms: bool = True
    """A norm is a part of the linear layer behind it (TransformerEngine's LayerNormLinear), which
    keeps what it puts out, whatever is recomputed; not the norms before latent attention and
    before experts."""
    input_copies: float = 1.0
    """16-bit copies of what a norm puts out, where every product makes its own."""
    rotary_copies: float = 0.0
    """16-bit copies of queries and keys that unfused rotary embedding keeps."""
    output_copies: float = 0.0
    """16-bit copies of the attention output, where its layout is not that of the projection."""
    activation_copies: float = 0.0
    """16-bit tensors of width ffn that an unfused gated activation keeps beside its inputs."""
    repeats_keys: bool = False
    """Keys and values are kept once for every query head."""
    gathers_again: bool = True
    """Backward gathers sequence-parallel inputs once more; DTensor keeps them gathered."""
    last_product: bool = False
    """Selective recompute by operator keeps the layer's last product, which backward never reads;
    a compiler drops it."""
    fused_projection: bool = False
    """Queries, keys and values are one product, so that all of it is kept by that recompute."""
    keeps_reduced: bool = False
    """It also keeps what tensor parallelism has reduced and scattered, twice a layer."""
    loss_bytes: float = 6.0
    """Bytes a logit at the peak: 16-bit logits and fp32 softmax; Megatron's fused loss: 10."""
    split_loss_bytes: float = 0.0
    """The same where tensor parallelism splits the vocabulary; 0: no other."""
    whole_logits: bool = False
    """Tensor-parallel ranks gather the logits, and each has the loss over the whole vocabulary."""
    loss_parts: int = 1
    """Parts of a micro-batch whose logits and loss come one after the other."""
    head_input_bytes: float = 4.0
    """Bytes an element of what the final norm keeps and the output projection reads."""
    loss_kept_bytes: float = 4.0
    """Of these, what stays until backward: the softmax; with several heads only one peaks."""
    gathered_units: float = 2.0
    """Layers that ZeRO-3 or FSDP hold in gathered form: the current one and the prefetched."""
    unit_bytes: float = 2.0
    """Bytes a parameter of a gathered layer."""
    head_unit_bytes: float = 0.0
    """The same of the output projection; 0: no other."""
    root_bytes: float = 0.0
    """The same of an embedding that is not the projection, where both are gathered together."""
    live_parameters: float = 0.0
    """Parameters that stay gathered in any case, if the stage has so many."""
    workspace_bytes: float = 0.0
    """Workspaces and buckets inside the caching allocator."""
    grouped_workspace_bytes: float = 0.0
    """Workspaces beside those where experts are multiplied as a group."""
    placeholder_bytes: float = 0.0
    """Bytes an element of the gradients that stand in for fused ones; 0: gradients are not
    added up by the GEMM that makes them."""
    keeps_head_input: bool = False
    """The gathered input of the output projection stays allocated."""
    fragmentation: float = FRAGMENTATION
    """Share of what is allocated for activations and logits that the caching allocator loses."""
    replicated: Runtime | None = None
    """What the program is where nothing is sharded, if that differs."""

    def at(self, zero_stage: int) -> Runtime:
        """The program at a ZeRO stage."""
        return self.replicated if self.replicated is not None and not zero_stage else self


def megatron(precision: str, gpu: Gpu) -> Runtime:
    """Megatron-Core with TransformerEngine: fp32 gradients, flash attention, unfused loss.

    Sources: Megatron-LM docs, dist_optimizer.md (bf16 6 + 12/d, fp16 4 + 16/d); its
    functional-test records for the workspaces and the cached casts.
    """
    state = StateBytes(2.0, 4.0, 12.0, cast_bytes(precision, gpu))
    if precision == "fp16":
        state = StateBytes(2.0, 2.0, 16.0)
    return Runtime(
        name="megatron",
        state=state,
        saved_bytes=SAVED_BYTES.get(precision, 2.0),
        workspace_bytes=workspace_bytes(gpu),
        grouped_workspace_bytes=GROUPED_STREAMS * engine_workspace_bytes(gpu),
        placeholder_bytes=2.0,
        keeps_head_input=True,
        fragmentation=EXPANDING_FRAGMENTATION,
    )


def megatron_fp8_parameters(precision: str, gpu: Gpu) -> Runtime:
    """Megatron with fp8-param-gather: the quantised weights are the parameters."""
    runtime = megatron(precision, gpu)
    return replace(runtime, name="megatron fp8 parameters", state=fp8_parameters(precision, gpu))


SAVED_BYTES = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Low-precision formats save the quantised input of a linear layer, with its block scales."""


def cast_bytes(precision: str, gpu: Gpu) -> float:
    """Quantised weights that TransformerEngine caches over the micro-batches of a step.

    Per-tensor fp8 keeps a transposed copy where the tensor cores take one layout alone (Hopper);
    block formats are scaled along rows and along columns, so both are kept.
    """
    if precision == "fp8":
        return 2.0 if gpu.generation in ("ada", "hopper") else 1.0
    return 2 * SAVED_BYTES[precision] if precision in SAVED_BYTES else 0.0


def workspace_bytes(gpu: Gpu) -> float:
    """CuBLAS for the forward and the backward thread, TransformerEngine's own, and scalars.

    torch gives cuBLAS 8.125 MiB a thread before Hopper and 32 MiB since, unless
    CUBLAS_WORKSPACE_CONFIG says otherwise. Megatron's functional-test records hold exactly this
    much beside parameters.
    """
    libraries = (16.25 if gpu.generation in BEFORE_HOPPER else 64.0) * MIB
    return libraries + engine_workspace_bytes(gpu) + SCALARS * BLOCK_BYTES


def engine_workspace_bytes(gpu: Gpu) -> float:
    """TransformerEngine's workspace of one stream: 4 MiB, since Hopper 32 MiB and 1 KiB."""
    return 4.0 * MIB if gpu.generation in BEFORE_HOPPER else 32.0 * MIB + 1024


def fp8_parameters(precision: str, gpu: Gpu) -> StateBytes:
    """fp8-param-gather: the quantised weights are the parameters, fp32 masters stay sharded."""
    return StateBytes(max(cast_bytes(precision, gpu), 1.0), 4.0, 12.0)


def fsdp2() -> Runtime:
    """FSDP2 of torch with mixed precision: fp32 weights, gradients and moments, all sharded.

    A gathered unit holds its 16-bit weights and, in the backward pass, 16-bit gradients. The loss
    of torch keeps 16-bit logits, fp32 logits, their log-softmax and its gradient: 2 + 4 + 4 + 4.
    Over a split vocabulary (torch.distributed.tensor.parallel.loss) the backward pass has the
    log-softmax, a one-hot gradient, the softmax and their sum in fp32 at once: 16.
    """
    return Runtime(
        name="fsdp2",
        fused_norms=False,
        state=StateBytes(4.0, 4.0, 8.0, gathered=2.0),
        unit_bytes=4.0,
        gathers_again=False,
        loss_bytes=14.0,
        split_loss_bytes=16.0,
        workspace_bytes=64.0 * MIB,
    )


DEEPSPEED_BUCKETS_BYTES = 2e9
"""Default reduce and all-gather buckets: 5e8 elements of 16 bit each (its configuration page)."""
DEEPSPEED_REST_BYTES = 3e9
"""Fitted on 64 readings of nvidia-smi in BigScience's tr11-176B log: median error 3 %."""


DEEPSPEED_LIVE_PARAMETERS = 1e9
"""Default of stage3_max_live_parameters and stage3_max_reuse_distance (its configuration page)."""


def deepspeed(precision: str, gradient_bytes: float = 4.0) -> Runtime:
    """DeepSpeed ZeRO: 16-bit gradients, fp32 master, gradient and two moments; two buckets.

    Its bf16 optimizer accumulates gradients in fp32 on every rank, unless ``gradient_bytes`` is 2.
    """
    extra = 4.0 if precision == "bf16" and gradient_bytes > 2 else 0.0
    return Runtime(
        name="deepspeed",
        fused_norms=False,
        state=StateBytes(2.0, 2.0 + extra, 16.0 - extra),
        live_parameters=DEEPSPEED_LIVE_PARAMETERS,
        workspace_bytes=DEEPSPEED_BUCKETS_BYTES + DEEPSPEED_REST_BYTES,
    )


def with_gradients(runtime: Runtime, gradient_bytes: float, precision: str) -> Runtime:
    """Megatron's ``runtime`` that keeps ``gradient_bytes`` a gradient.

    Its optimizer copies gradients in 16 bit to fp32 (distrib_optimizer.py,
    _copy_model_grads_to_main_grads) and frees the copies before the next step.
    """
    step = 4.0 if gradient_bytes < 4 and precision != "fp16" else 0.0
    return replace(runtime, state=replace(runtime.state, gradient=gradient_bytes, step=step))


def unfused(runtime: Runtime) -> Runtime:
    """``runtime`` with the attention matrix and dropout masks of 2022."""
    return replace(
        runtime,
        fused_attention=False,
        fused_norms=False,
        attention_dropout=True,
        hidden_dropout=True,
    )
