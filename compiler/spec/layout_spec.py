"""``layout:``: every key is a pin; ``auto`` or absent means decide."""

from __future__ import annotations

from typing import Annotated, Literal

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Count, NotBool

Auto = Literal["auto"]


class RecomputeSpec(Strict):
    """Activation recompute, in Megatron's words."""

    granularity: Literal["none", "selective", "full"]
    """What is computed again in the backward pass."""
    modules: tuple[str, ...] = ()
    """For selective: core_attn, mlp, moe, moe_act, layernorm, mla_up_proj, shared_experts."""
    method: Literal["uniform", "block"] | None = None
    """For full: uniform or block."""
    layers: Count | None = None
    """For full: layers a block (uniform), or layers of each chunk (block)."""


class OffloadSpec(Strict):
    """What is kept outside of the GPU between its uses."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Optimizer state and its update: in GPU memory, in that of the host, or on NVMe."""
    parameters: Literal["none", "cpu", "nvme"] = "none"
    """Weights, fetched layer by layer: ZeRO-3 and FSDP alone."""
    nvme_path: str = ""
    """Folder on the local NVMe of every host."""


class ZeroPlusSpec(Strict):
    """ZeRO++ of DeepSpeed, with zero_stage: 3."""

    hpz: Count = 1
    """Ranks that keep a second, whole copy of the weights (hpZ); the GPUs of a host, or 1."""
    quantized_weights: bool = False
    """Gather weights in 8 bit (qwZ)."""
    quantized_gradients: bool = False
    """Reduce gradients in 4 bit (qgZ)."""


class LayoutSpec(Strict):
    """Pins. What is absent or auto is decided."""

    tp: Count | Auto = "auto"
    """Tensor parallelism."""
    cp: Count | Auto = "auto"
    """Context parallelism."""
    pp: Count | Auto = "auto"
    """Pipeline parallelism."""
    vpp: Count | Auto = "auto"
    """Virtual stages a pipeline rank; 1: no interleaving."""
    dp: Count | Auto = "auto"
    """Data parallelism; usually what is left."""
    ep: Count | Auto = "auto"
    """Expert parallelism."""
    etp: Count | Auto = "auto"
    """Tensor parallelism inside an expert."""
    micro_batch: Count | Auto = "auto"
    """Sequences a micro-batch."""
    sequence_parallel: bool | Auto = "auto"
    """Megatron's sequence parallelism; auto: on where tp > 1."""
    recompute: Literal["auto", "none", "selective", "full"] | RecomputeSpec = "auto"
    """Activation recompute."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], NotBool] | Auto = "auto"
    """0: every rank keeps all state; 1: the optimizer is sharded, 2: gradients too, 3: weights
    too. Megatron has 0 and 1; FSDP is 3, or 2 where weights stay gathered after the forward."""
    dp_shard: Count | Auto = "auto"
    """Data-parallel ranks that share one state; fewer than dp: hybrid sharding (HSDP)."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"] | Auto = "auto"
    """Pipeline schedule."""
    cp_comm: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] | Auto = "auto"
    """How context parallelism sees all keys: ring, gather, heads for tokens (Ulysses), or Ulysses
    among neighbours and a ring over these."""
    cp_a2a: Count | Auto = "auto"
    """With cp_comm: a2a+p2p, the neighbours that exchange heads for tokens; auto: as many as fit
    the NVLink domain beside tp."""
    offload: Literal["none", "cpu"] | OffloadSpec | Auto = "auto"
    """What leaves the GPU between its uses; cpu: the optimizer; auto: nothing, or what makes a
    framework's layout fit that fits in no other way."""
    zero_plus: ZeroPlusSpec | None = None
    """ZeRO++ of DeepSpeed."""
    first_stage_layers: Count | Auto = "auto"
    """Decoder layers on the first pipeline rank."""
    last_stage_layers: Count | Auto = "auto"
    """Decoder layers on the last pipeline rank."""
    pipeline_layout: str | None = None
    """Megatron's layout string: Et*3|(tt|)*29,m|L."""
    count_embedding: bool | Auto = "auto"
    """Count the embedding as a layer when stages are split evenly."""
    count_loss: bool | Auto = "auto"
    """Count the loss as a layer when stages are split evenly."""
    order: Literal["auto", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = "auto"
    """Rank order of Megatron, fastest axis first."""
