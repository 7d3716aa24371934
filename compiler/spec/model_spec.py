"""Section ``model``; catalog files and Hugging Face configs are converted to the same models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from parc.compiler.spec.base import (
    Count,
    CountOrZero,
    NonNegativeFloat,
    NonNegativeInt,
    NotBool,
    PositiveFloat,
    PositiveInt,
    Strict,
)


class LatentSpec(Strict):
    """Multi-head latent attention (MLA)."""

    q_lora_rank: PositiveInt | None = None
    """LoRA rank of the query projection. If absent, the projection has full rank."""
    kv_lora_rank: PositiveInt | None = None
    """LoRA rank of the shared key-value projection. Required unless base sets it."""
    qk_nope_dim: PositiveInt | None = None
    """Head dim of queries and keys without position encoding. Required unless base sets it."""
    qk_rope_dim: PositiveInt | None = None
    """Head dim of queries and keys with rotary position encoding. Required unless base sets it."""
    v_dim: PositiveInt | None = None
    """Head dim of values. Required unless base sets it."""


class LinearAttentionSpec(Strict):
    """Linear attention (Gated DeltaNet), in all layers except each full_attention_every-th."""

    key_heads: Count | None = None
    """Number of query heads and of key heads. Required unless base sets it."""
    value_heads: Count | None = None
    """Number of value heads, a multiple of key_heads. Required unless base sets it."""
    key_dim: PositiveInt | None = None
    """Head dim of queries and keys. Required unless base sets it."""
    value_dim: PositiveInt | None = None
    """Head dim of values. Required unless base sets it."""
    conv_size: Count = 4
    """Kernel width of the causal convolution over queries, keys and values."""
    full_attention_every: Count = 4
    """Period n of the layers that have softmax attention."""


class MambaSpec(Strict):
    """Mamba-2 layers, which are the layers with letter M in the pattern."""

    heads: Count | None = None
    """Number of heads. Required unless base sets it."""
    head_dim: PositiveInt | None = None
    """Width of a head. Required unless base sets it."""
    state_size: PositiveInt | None = None
    """States per channel. Required unless base sets it."""
    groups: Count = 1
    """Groups of heads that share the matrices B and C of the state."""
    conv_size: Count = 4
    """Kernel width of the causal convolution."""


class ExpertsSpec(Strict):
    """Mixture of experts."""

    count: Count | None = None
    """Routed experts per layer. Required unless base sets it."""
    top_k: Count | None = None
    """Routed experts per token. Required unless base sets it."""
    size: PositiveInt | None = None
    """Hidden width of one routed expert. Required unless base sets it."""
    shared_size: NonNegativeInt = 0
    """Total hidden width of the shared experts. 0 means no shared experts."""
    shared_gate: bool = False
    """Gate the output of the shared experts with a sigmoid (Qwen2-MoE)."""
    first_dense_layers: CountOrZero = 0
    """Number of leading layers without routed experts."""
    every: Count = 1
    """Period n of the layers with routed experts; layer n is the first of them."""
    bias: bool = False
    """Biases in the experts."""
    score_function: Literal["softmax", "sigmoid"] = "softmax"
    """Function that converts router logits to scores."""
    pre_softmax: bool = False
    """Normalize scores before the top-k selection instead of after it."""
    groups: Count = 1
    """Expert groups of group-limited routing. 1 does not limit the routing."""
    group_top_k: Count = 1
    """Expert groups to which one token can be routed."""
    router_bias: Literal["none", "parameter", "buffer"] = "none"
    """Bias of the router: none, a trained parameter, or the load-balancing buffer of
    DeepSeek-V3."""
    scaling_factor: PositiveFloat = 1.0
    """Factor on the combined output of the routed experts."""
    aux_loss_coefficient: NonNegativeFloat = 0.0
    """Weight of the load-balancing loss. 0 turns it off."""


class PositionSpec(Strict):
    """Position encoding."""

    kind: Literal["rope", "yarn", "learned", "none"] = "rope"
    """Position encoding: rotary, rotary with YaRN, a learned table, or none."""
    base: PositiveFloat = 10000.0
    """Rotary base (rope_theta)."""
    percent: PositiveFloat = 1.0
    """Share of the head dim to which the rotation applies."""
    scaling: Literal["none", "llama3", "linear", "yarn"] = "none"
    """Scaling of the rotary frequencies for long contexts."""
    scaling_factor: PositiveFloat = 1.0
    """Factor of the scaling."""
    max_positions: PositiveInt | None = None
    """Longest context, in tokens. Required unless base sets it."""
    original_max_positions: PositiveInt | None = None
    """Context before scaling, in tokens. If absent, max_positions."""
    mscale: PositiveFloat = 1.0
    """YaRN attention scale."""
    mscale_all_dim: NonNegativeFloat = 0.0
    """YaRN attention scale that applies to all dims."""


class ModelSpec(Strict):
    """Decoder-only transformer. Keys that are absent are taken from base, if it is set."""

    base: str | None = None
    """Catalog name, or path of a config.json, to start from. The other keys override its values."""
    name: str | None = None
    """Name in reports."""
    family: str | None = None
    """Hugging Face model_type of the architecture."""
    layers: Count | None = None
    """Decoder layers without multi-token-prediction layers."""
    hidden: PositiveInt | None = None
    """Hidden size: width of the residual stream."""
    ffn: NonNegativeInt | None = None
    """Hidden width of the dense MLP. 0 if all layers have routed experts."""
    heads: Count | None = None
    """Attention heads."""
    kv_heads: Count | None = None
    """Key-value heads. If absent, the number of heads (no grouped queries)."""
    head_dim: PositiveInt | None = None
    """Width of one head. If absent, hidden / heads."""
    vocab: PositiveInt | None = None
    """Vocabulary size before padding."""
    gated: bool | None = None
    """Use an MLP with a gate (SwiGLU, GeGLU). If absent, true."""
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"] | None = None
    """Activation function of the MLP. If absent, silu."""
    mlp_bias: bool | None = None
    """Biases in the MLP. If absent, false."""
    qkv_bias: bool | None = None
    """Biases on queries, keys and values. If absent, false."""
    attention_output_bias: bool | None = None
    """Bias on the attention output. If absent, false."""
    qk_norm: Literal["none", "head", "full"] | None = None
    """Norm of queries and keys: per head, or over all heads (full). If absent, none."""
    window: PositiveInt | None = None
    """Sliding-window length, in tokens. If absent, full causal attention."""
    full_attention_every: PositiveInt | None = None
    """Period n of the layers that ignore the window (Gemma 2: 2). If absent, all layers use it."""
    sinks: bool | None = None
    """Learned attention sinks, one per head (gpt-oss). If absent, false."""
    latent: LatentSpec | None = None
    """Multi-head latent attention. If absent, grouped-query attention."""
    attention_gate: bool | None = None
    """Sigmoid gate on the attention output (Qwen3-Next). If absent, false."""
    linear_attention: LinearAttentionSpec | None = None
    """Linear attention layers between the softmax attention layers (Qwen3-Next). If absent,
    none."""
    mamba: MambaSpec | None = None
    """Mamba-2 layers (Nemotron-H). Requires a pattern. If absent, none."""
    pattern: Annotated[str, StringConstraints(pattern=r"^[M*E-]+$", max_length=4096)] | None = None
    """Layer pattern of a model whose layers have a single part, one letter per layer: M for Mamba,
    * for attention, - for a dense MLP, E for experts. If absent, each layer has a token mixer and
    an MLP."""
    experts: ExpertsSpec | None = None
    """Mixture of experts. If absent, all layers are dense."""
    norm: Literal["rmsnorm", "layernorm"] | None = None
    """Kind of the norms. If absent, rmsnorm."""
    norm_epsilon: PositiveFloat | None = None
    """Epsilon of the norms. If absent, 1e-5."""
    norms_per_layer: Annotated[Literal[1, 2, 4], NotBool] | None = None
    """Norms per layer: 2 for pre-norm, 1 for a parallel block, 4 if sub-layer outputs are
    normalized too (Gemma 2). If absent, 2."""
    final_norm: bool | None = None
    """Norm after the last layer. If absent, true."""
    position: PositionSpec | None = None
    """Position encoding."""
    tied_embeddings: bool | None = None
    """Input and output embeddings share one matrix. If absent, false."""
    mtp_layers: CountOrZero | None = None
    """Multi-token-prediction layers to train. If absent, 0."""
    source: str | None = None
    """Origin of the numbers."""
