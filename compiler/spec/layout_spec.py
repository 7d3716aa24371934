"""Sections ``layout`` and ``goals.limits``: pinned values, and limits of the search.

The search decides all keys of ``layout`` that are absent or ``auto``. ``goals.limits`` are the
parallel sizes from which it can choose, by axis.
"""

from __future__ import annotations

from typing import Annotated, Literal

from parc.compiler.spec.base import Count, NotBool, Strict

Auto = Literal["auto"]


class RecomputeSpec(Strict):
    """Activation recomputation, in Megatron's terms."""

    granularity: Literal["none", "selective", "full"]
    """Parts of a layer that the backward pass computes again: none, the listed modules, or the
    whole layer."""
    modules: tuple[str, ...] = ()
    """With selective: modules to recompute, any of core_attn, mlp, moe, moe_act, layernorm,
    mla_up_proj, shared_experts."""
    method: Literal["uniform", "block"] | None = None
    """With full: recompute all layers in blocks (uniform), or the first layers of each model chunk
    (block)."""
    layers: Count | None = None
    """With full: layers per block (uniform), or recomputed layers per model chunk (block)."""


class OffloadSpec(Strict):
    """Memory in which optimizer state and weights are kept between uses."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Memory of the optimizer state, which is also updated there: GPU memory (none), host memory
    (cpu) or NVMe."""
    parameters: Literal["none", "cpu", "nvme"] = "none"
    """Memory of the weights, which are fetched layer by layer: GPU memory (none), host memory (cpu)
    or NVMe. Only for ZeRO-3 and FSDP."""
    nvme_path: str = ""
    """Folder on the local NVMe of each host. Required if optimizer or parameters is nvme."""


class ZeroPlusSpec(Strict):
    """ZeRO++ of DeepSpeed; requires zero_stage: 3."""

    hpz: Count = 1
    """Ranks that share a secondary copy of the weights (hpZ). Valid values: the number of GPUs per
    host, or 1 for no copy."""
    quantized_weights: bool = False
    """Gather weights in 8 bit (qwZ)."""
    quantized_gradients: bool = False
    """Reduce gradients in 4 bit (qgZ)."""


class LayoutSpec(Strict):
    """Pinned values of the layout. The search decides keys that are absent or auto."""

    tp: Count | Auto = "auto"
    """Tensor parallel size."""
    cp: Count | Auto = "auto"
    """Context parallel size."""
    pp: Count | Auto = "auto"
    """Pipeline parallel size: number of pipeline stages."""
    vpp: Count | Auto = "auto"
    """Virtual pipeline size: model chunks per pipeline rank. 1 turns interleaving off."""
    dp: Count | Auto = "auto"
    """Data parallel size. It usually follows from the GPUs and the other sizes:
    GPUs / (tp x cp x pp)."""
    ep: Count | Auto = "auto"
    """Expert parallel size."""
    etp: Count | Auto = "auto"
    """Tensor parallel size inside an expert."""
    micro_batch: Count | Auto = "auto"
    """Sequences per micro-batch."""
    sequence_parallel: bool | Auto = "auto"
    """Megatron's sequence parallelism. auto turns it on if tp > 1."""
    recompute: Literal["auto", "none", "selective", "full"] | RecomputeSpec = "auto"
    """Activation recomputation. selective recomputes core_attn, full recomputes each layer; a
    mapping selects modules or layers."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], NotBool] | Auto = "auto"
    """ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 gradients too, 3 weights too. Megatron
    supports 0 and 1; FSDP is 3, or 2 if weights are not resharded after the forward pass."""
    dp_shard: Count | Auto = "auto"
    """Data-parallel ranks that shard one copy of the state. A value below dp is hybrid sharding
    (HSDP)."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"] | Auto = "auto"
    """Pipeline schedule. auto is 1f1b, or interleaved if vpp > 1."""
    cp_comm: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] | Auto = "auto"
    """Communication of context parallelism: a ring (p2p), an all-gather of keys and values, an
    all-to-all that exchanges heads for tokens (a2a, Ulysses), or a2a among neighbours and a ring
    between those groups (a2a+p2p)."""
    cp_a2a: Count | Auto = "auto"
    """With cp_comm: a2a+p2p, the neighbouring ranks that exchange heads for tokens. auto is as many
    as share an NVLink domain with their tensor-parallel ranks."""
    offload: Literal["none", "cpu"] | OffloadSpec | Auto = "auto"
    """Offload of optimizer state and weights. cpu offloads the optimizer state. auto offloads only
    with frameworks that support it, and only if no other layout fits in memory."""
    zero_plus: ZeroPlusSpec | None = None
    """ZeRO++ of DeepSpeed. If absent, it is not used."""
    first_stage_layers: Count | Auto = "auto"
    """Decoder layers on the first pipeline rank."""
    last_stage_layers: Count | Auto = "auto"
    """Decoder layers on the last pipeline rank."""
    pipeline_layout: str | None = None
    """Megatron's layout string, which assigns layers to stages: Et*3|(tt|)*29,m|L."""
    count_embedding: bool | Auto = "auto"
    """Count the embedding as a layer when the layers are split evenly over stages."""
    count_loss: bool | Auto = "auto"
    """Count the output layer with the loss as a layer when the layers are split evenly over
    stages."""
    order: Literal["auto", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = "auto"
    """Rank order of Megatron, fastest axis first."""


class AxisLimit(Strict):
    """Limit of one axis; all conditions that are set must be met."""

    min: Count | None = None
    """Smallest value. If absent, 1."""
    max: Count | None = None
    """Largest value. If absent, there is no upper limit."""
    only: tuple[Count, ...] = ()
    """Allowed values. If empty, all values are allowed."""
    ban: tuple[Count, ...] = ()
    """Values that are not allowed."""


class LimitsSpec(Strict):
    """Limits of the axes that the search decides. Pinned values must meet them too."""

    tp: AxisLimit | None = None
    """Limit of the tensor parallel size."""
    cp: AxisLimit | None = None
    """Limit of the context parallel size."""
    pp: AxisLimit | None = None
    """Limit of the pipeline parallel size."""
    vpp: AxisLimit | None = None
    """Limit of the virtual pipeline size (model chunks per pipeline rank)."""
    dp: AxisLimit | None = None
    """Limit of the data parallel size."""
    ep: AxisLimit | None = None
    """Limit of the expert parallel size."""
    etp: AxisLimit | None = None
    """Limit of the tensor parallel size inside an expert."""
    micro_batch: AxisLimit | None = None
    """Limit of the sequences per micro-batch."""
