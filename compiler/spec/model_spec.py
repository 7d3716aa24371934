"""``model:`` as a mapping; a catalog file and a Hugging Face config are read into the same."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import (
    Count,
    CountOrZero,
    NonNegativeFloat,
    NonNegativeInt,
    NotBool,
    PositiveFloat,
    PositiveInt,
)


class LatentSpec(Strict):
    """Multi-head latent attention."""

    q_lora_rank: PositiveInt | None = None
    """Rank of the query projection; absent: full rank."""
    kv_lora_rank: PositiveInt | None = None
    """Rank of the shared key-value projection; needed unless base has it."""
    qk_nope_dim: PositiveInt | None = None
    """Head dim of queries and keys without position; needed unless base has it."""
    qk_rope_dim: PositiveInt | None = None
    """Head dim of queries and keys with rotary position; needed unless base has it."""
    v_dim: PositiveInt | None = None
    """Head dim of values; needed unless base has it."""


class LinearAttentionSpec(Strict):
    """Gated DeltaNet in place of attention, but in every n-th layer."""

    key_heads: Count | None = None
    """Heads of queries and of keys; needed unless base has it."""
    value_heads: Count | None = None
    """Heads of values, a multiple of key_heads; needed unless base has it."""
    key_dim: PositiveInt | None = None
    """Width of a head of queries and keys; needed unless base has it."""
    value_dim: PositiveInt | None = None
    """Width of a head of values; needed unless base has it."""
    conv_size: Count = 4
    """Width of the causal convolution over queries, keys and values."""
    full_attention_every: Count = 4
    """Every n-th layer has attention."""


class MambaSpec(Strict):
    """Mamba-2 layers, where the pattern has an M."""

    heads: Count | None = None
    """Heads; needed unless base has it."""
    head_dim: PositiveInt | None = None
    """Width of a head; needed unless base has it."""
    state_size: PositiveInt | None = None
    """Numbers of state a channel; needed unless base has it."""
    groups: Count = 1
    """Groups of heads that share the matrices of the state."""
    conv_size: Count = 4
    """Width of the causal convolution."""


class ExpertsSpec(Strict):
    """Mixture of experts."""

    count: Count | None = None
    """Routed experts a layer; needed unless base has it."""
    top_k: Count | None = None
    """Routed experts a token visits; needed unless base has it."""
    size: PositiveInt | None = None
    """Hidden width of one routed expert; needed unless base has it."""
    shared_size: NonNegativeInt = 0
    """Total hidden width of the shared experts; 0: none."""
    shared_gate: bool = False
    """The shared expert has a sigmoid gate (Qwen2-MoE)."""
    first_dense_layers: CountOrZero = 0
    """Leading layers that are dense."""
    every: Count = 1
    """Every n-th layer routes, counted so that layer n-1 is the first."""
    bias: bool = False
    """Experts carry biases."""
    score_function: Literal["softmax", "sigmoid"] = "softmax"
    """How router scores are normalised."""
    pre_softmax: bool = False
    """Scores are normalised before the top-k is taken."""
    groups: Count = 1
    """Expert groups of group-limited routing."""
    group_top_k: Count = 1
    """Groups a token may visit."""
    router_bias: Literal["none", "parameter", "buffer"] = "none"
    """Router bias: trained, or the load-balancing buffer of DeepSeek-V3."""
    scaling_factor: PositiveFloat = 1.0
    """Factor on the combined expert output."""
    aux_loss_coefficient: NonNegativeFloat = 0.0
    """Weight of the load-balancing loss."""


class PositionSpec(Strict):
    """Position encoding."""

    kind: Literal["rope", "yarn", "learned", "none"] = "rope"
    """Rotary, rotary with YaRN, a learned table, or none."""
    base: PositiveFloat = 10000.0
    """Rotary base (rope_theta)."""
    percent: PositiveFloat = 1.0
    """Share of the head dim that is rotated."""
    scaling: Literal["none", "llama3", "linear", "yarn"] = "none"
    """Rotary scaling for long contexts."""
    scaling_factor: PositiveFloat = 1.0
    """Factor of the scaling."""
    max_positions: PositiveInt | None = None
    """Longest context, in tokens; needed unless base has it."""
    original_max_positions: PositiveInt | None = None
    """Context before scaling; absent: max_positions."""
    mscale: PositiveFloat = 1.0
    """YaRN attention scale."""
    mscale_all_dim: NonNegativeFloat = 0.0
    """YaRN attention scale for all dims."""


class ModelSpec(Strict):
    """A decoder-only transformer."""

    base: str | None = None
    """Catalog name or config.json to start from; the other keys change it."""
    name: str | None = None
    """Name for reports."""
    family: str | None = None
    """Hugging Face model_type that it follows."""
    layers: Count | None = None
    """Decoder layers, multi-token prediction not counted."""
    hidden: PositiveInt | None = None
    """Width of the residual stream."""
    ffn: NonNegativeInt | None = None
    """Hidden width of the dense MLP; 0 where all layers route."""
    heads: Count | None = None
    """Attention heads."""
    kv_heads: Count | None = None
    """Key-value heads; absent: as many as heads."""
    head_dim: PositiveInt | None = None
    """Width of one head; absent: hidden / heads."""
    vocab: PositiveInt | None = None
    """Vocabulary before padding."""
    gated: bool | None = None
    """The MLP has a gate (SwiGLU, GeGLU); absent: true."""
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"] | None = None
    """Activation of the MLP; absent: silu."""
    mlp_bias: bool | None = None
    """Biases in the MLP; absent: false."""
    qkv_bias: bool | None = None
    """Biases on queries, keys and values; absent: false."""
    attention_output_bias: bool | None = None
    """Bias on the attention output; absent: false."""
    qk_norm: Literal["none", "head", "full"] | None = None
    """Norm on queries and keys; absent: none."""
    window: PositiveInt | None = None
    """Sliding-window length, in tokens; absent: full attention."""
    full_attention_every: PositiveInt | None = None
    """Every n-th layer ignores the window (Gemma 2: 2); absent: every layer keeps it."""
    sinks: bool | None = None
    """One learned attention sink a head (gpt-oss)."""
    latent: LatentSpec | None = None
    """Multi-head latent attention instead of grouped-query attention."""
    attention_gate: bool | None = None
    """A sigmoid gate on the attention output (Qwen3-Next); absent: none."""
    linear_attention: LinearAttentionSpec | None = None
    """Gated DeltaNet layers between the attention layers (Qwen3-Next)."""
    mamba: MambaSpec | None = None
    """Mamba-2 layers (Nemotron-H); needs a pattern."""
    pattern: Annotated[str, StringConstraints(pattern=r"^[M*E-]+$", max_length=4096)] | None = None
    """Layers of one part each, a letter a layer: M Mamba, * attention, - dense MLP, E experts."""
    experts: ExpertsSpec | None = None
    """Mixture of experts; absent: dense."""
    norm: Literal["rmsnorm", "layernorm"] | None = None
    """Kind of norm; absent: rmsnorm."""
    norm_epsilon: PositiveFloat | None = None
    """Absent: 1e-5."""
    norms_per_layer: Annotated[Literal[1, 2, 4], NotBool] | None = None
    """Norms a layer: 2 pre-norm, 1 parallel block, 4 sandwich (Gemma 2); absent: 2."""
    final_norm: bool | None = None
    """Norm after the last layer; absent: true."""
    position: PositionSpec | None = None
    """Position encoding."""
    tied_embeddings: bool | None = None
    """Input and output embedding are one matrix; absent: false."""
    mtp_layers: CountOrZero | None = None
    """Multi-token-prediction layers to train; absent: 0."""
    source: str | None = None
    """Where the numbers are from."""
