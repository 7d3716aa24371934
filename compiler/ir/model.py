"""What is trained: the dimensions of one decoder-only model, no defaults left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple


class LayerKind(NamedTuple):
    """What one decoder layer is made of; layers of one kind hold and cost the same."""

    mixer: Literal["attention", "linear", "mamba", "none"]
    """What mixes tokens: softmax attention, linear attention, a state space, or nothing."""
    mlp: Literal["dense", "experts", "none"]

    @property
    def routed(self) -> bool:
        """Whether tokens are sent to experts."""
        return self.mlp == "experts"

    @property
    def parts(self) -> int:
        """Sub-layers, each with a residual connection of its own."""
        return (self.mixer != "none") + (self.mlp != "none")


DENSE = LayerKind("attention", "dense")
ROUTED = LayerKind("attention", "experts")
LETTERS = {
    "M": LayerKind("mamba", "none"),
    "*": LayerKind("attention", "none"),
    "-": LayerKind("none", "dense"),
    "E": LayerKind("none", "experts"),
}
"""Letters of ``Model.pattern``, as Megatron-Core has them."""
KINDS = (DENSE, ROUTED, LayerKind("linear", "dense"), LayerKind("linear", "experts"))
ORDER = {kind: index for index, kind in enumerate((*KINDS, *LETTERS.values()))}
"""Every kind there is, in the order in which ``Model.kinds`` has them."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): ranks and head dims."""

    q_lora_rank: int | None
    """None: the query is projected at full rank."""
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of every layer. ``latent`` replaces the projections of grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    qk_norm: Literal["none", "head", "full"]
    """``head``: weights of head_dim for queries and keys (Qwen3); ``full``: over all heads."""
    window: int | None
    """Sliding-window length in tokens; None where every token sees all before it."""
    latent: LatentAttention | None
    sinks: bool = False
    """One learned sink logit a head (gpt-oss)."""
    full_attention_every: int = 0
    """Every n-th layer ignores ``window`` (Gemma 2: 2, Gemma 3: 6); 0: every layer keeps it."""
    gate: bool = False
    """The output is gated by a sigmoid of a projection as wide as itself (Qwen3-Next)."""

    @property
    def projected_heads(self) -> int:
        """Heads that the query projection puts out: queries, and their gate where there is one."""
        return (2 if self.gate else 1) * self.heads

    def swaps(self, ranks: int, tp: int) -> bool:
        """Whether ``ranks`` can exchange the heads of a tensor rank, of queries and of keys."""
        own = (self.heads // tp, max(self.kv_heads // tp, 1))
        return not any(heads % ranks for heads in own)


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated DeltaNet (arXiv:2412.06464) in place of attention, but in every n-th layer."""

    key_heads: int
    """Heads of queries and of keys; value heads share them."""
    value_heads: int
    key_dim: int
    value_dim: int
    conv_size: int
    """Width of the causal convolution over queries, keys and values."""
    full_attention_every: int
    """Every n-th layer has attention (Qwen3-Next: 4)."""

    @property
    def keys(self) -> int:
        """Width of all queries, and of all keys."""
        return self.key_heads * self.key_dim

    @property
    def inner(self) -> int:
        """Width of all values, of their gate, and of what the output projection takes in."""
        return self.value_heads * self.value_dim

    @property
    def projected(self) -> int:
        """Width of the input projection: queries, keys, values, their gate, and two a head."""
        return 2 * self.keys + 2 * self.inner + 2 * self.value_heads

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.inner


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-2 (arXiv:2405.21060): a state space with a state of ``state_size`` a channel."""

    heads: int
    head_dim: int
    state_size: int
    groups: int
    """Heads of a group share the input and output matrix of the state."""
    conv_size: int

    @property
    def inner(self) -> int:
        """Width of the layer's inside."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: the inside, and both matrices of the state."""
        return self.inner + 2 * self.groups * self.state_size

    @property
    def projected(self) -> int:
        """Width of the input projection: what is convolved, the gate, a step size a head."""
        return self.convolved + self.inner + self.heads


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The dense MLP; also the activation that experts use."""

    size: int
    """0 where no layer is dense (Mixtral, Qwen3-MoE)."""
    gated: bool
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"]
    bias: bool


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed and shared experts of the layers whose ``pattern`` entry is True."""

    count: int
    top_k: int
    size: int
    """Hidden width of one routed expert."""
    shared_size: int
    """Total hidden width of the shared experts; 0 for none."""
    shared_gate: bool
    pattern: tuple[bool, ...]
    """One entry a decoder layer: True where the layer routes."""
    bias: bool
    """Experts carry biases (gpt-oss)."""
    score_function: Literal["softmax", "sigmoid"]
    pre_softmax: bool
    """Scores are normalised before the top-k is taken."""
    groups: int
    """Expert groups for group-limited routing; 1 for none."""
    group_top_k: int
    router_bias: Literal["none", "parameter", "buffer"]
    """``buffer``: the load-balancing bias of DeepSeek-V3, not a trained parameter in Megatron."""
    scaling_factor: float
    aux_loss_coefficient: float

    @property
    def layers(self) -> int:
        """Number of routed layers."""
        return sum(self.pattern)


@dataclass(frozen=True, slots=True)
class Position:
    """How positions enter. ``learned`` adds an embedding of ``max_positions`` rows."""

    kind: Literal["rope", "yarn", "learned", "none"]
    base: float
    percent: float
    """Share of the head dim that is rotated."""
    scaling: Literal["none", "llama3", "linear", "yarn"]
    scaling_factor: float
    max_positions: int
    original_max_positions: int
    mscale: float = 1.0
    mscale_all_dim: float = 0.0


@dataclass(frozen=True)  # no slots: what follows from the pattern is worked out once
class Model:
    """One decoder-only model, complete."""

    name: str
    family: str
    """The Hugging Face ``model_type`` it follows (llama, mixtral, qwen3_moe, deepseek_v3, ...)."""
    layers: int
    """Decoder layers, multi-token-prediction layers not counted."""
    hidden: int
    vocab: int
    attention: Attention
    ffn: FeedForward
    experts: Experts | None
    norm: Literal["rmsnorm", "layernorm"]
    norm_epsilon: float
    norms_per_layer: int
    """2 for pre-norm, 4 where sub-layer outputs are normed too (Gemma 2 and 3)."""
    final_norm: bool
    position: Position
    tied_embeddings: bool
    mtp_layers: int
    """Multi-token-prediction depth that is trained (DeepSeek-V3: 1); 0 for none."""
    source: str
    """Where the numbers are from: a page, or the file that the user named."""
    left_out: str = ""
    """Computations of the family that have no field here, in words; shapes are exact."""
    linear: LinearAttention | None = None
    mamba: Mamba | None = None
    pattern: str = ""
    """Where layers have one part each (Nemotron-H), a letter for every layer, as Megatron-Core
    has them: M Mamba, * attention, - dense MLP, E experts."""

    @property
    def moe_layers(self) -> int:
        """Routed layers; 0 for a dense model."""
        return self.experts.layers if self.experts else 0

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every decoder layer."""
        if self.pattern:
            return tuple(LETTERS[letter] for letter in self.pattern)
        every = self.linear.full_attention_every if self.linear else 1
        routed = self.experts.pattern if self.experts else (False,) * self.layers
        return tuple(
            LayerKind("linear" if (n + 1) % every else "attention", "experts" if one else "dense")
            for n, one in enumerate(routed)
        )

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds that occur, dense ones first."""
        return tuple(sorted(set(self.layer_kinds), key=ORDER.__getitem__))

    @property
    def dense_layers(self) -> int:
        """Layers with a dense MLP."""
        return sum(kind.mlp == "dense" for kind in self.layer_kinds)

    def recurrent(self, kind: LayerKind) -> LinearAttention | Mamba | None:
        """The recurrence that mixes tokens in a layer of ``kind``; None where it has none."""
        return {"linear": self.linear, "mamba": self.mamba}.get(kind.mixer)

    def fused_norms(self, kind: LayerKind) -> tuple[bool, bool]:
        """Whether TransformerEngine makes the norms before mixer and MLP parts of what is behind.

        It does so before one projection alone; latent attention and experts have several
        (Megatron-Core 0.19, models/gpt/gpt_layer_specs.py).
        """
        latent = kind.mixer == "attention" and self.attention.latent is not None
        return kind.mixer != "none" and not latent, kind.mlp == "dense"

    @property
    def last_kind(self) -> LayerKind:
        """Of the last decoder layer; prediction layers are built like it."""
        return self.layer_kinds[-1]
