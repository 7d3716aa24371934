"""Dimensions of a decoder-only model, with all defaults of the spec applied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple


class LayerKind(NamedTuple):
    """Composition of a decoder layer; layers of equal kind have equal memory and cost."""

    mixer: Literal["attention", "linear", "mamba", "none"]
    """Token mixer: softmax attention, linear attention, a state space model, or none."""
    mlp: Literal["dense", "experts", "none"]

    @property
    def routed(self) -> bool:
        """True if the layer sends tokens to experts."""
        return self.mlp == "experts"

    @property
    def parts(self) -> int:
        """Number of sub-layers; each has a separate residual connection."""
        return (self.mixer != "none") + (self.mlp != "none")


DENSE = LayerKind("attention", "dense")
ROUTED = LayerKind("attention", "experts")
LAYER_LETTERS = {
    "M": LayerKind("mamba", "none"),
    "*": LayerKind("attention", "none"),
    "-": LayerKind("none", "dense"),
    "E": LayerKind("none", "experts"),
}
"""Letters of ``Model.pattern``, which are those of Megatron-Core's hybrid layer pattern."""
KINDS = (DENSE, ROUTED, LayerKind("linear", "dense"), LayerKind("linear", "experts"))
KIND_ORDER = {kind: index for index, kind in enumerate((*KINDS, *LAYER_LETTERS.values()))}
"""Sort key of ``Model.kinds``: all kinds that exist, in order."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): LoRA ranks and head dims."""

    q_lora_rank: int | None
    """Rank of the query projection; None = full rank."""
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention; ``latent`` replaces the projections of grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    qk_norm: Literal["none", "head", "full"]
    """Norm of queries and keys: per head with head_dim weights (Qwen3), or over all heads."""
    window: int | None
    """Sliding-window length in tokens; None = full causal attention."""
    latent: LatentAttention | None
    sinks: bool
    """True if each head has a learned sink logit (gpt-oss)."""
    full_attention_every: int
    """Period n of the layers that ignore ``window`` (Gemma 2: 2, Gemma 3: 6); 0 = none."""
    gate: bool
    """True if a sigmoid of an equally wide projection gates the output (Qwen3-Next)."""

    @property
    def projected_heads(self) -> int:
        """Output heads of the query projection: the queries, and the gate if there is one."""
        return (2 if self.gate else 1) * self.heads

    def swaps(self, ranks: int, tp: int) -> bool:
        """Return True if ``ranks`` ranks can exchange heads for tokens (Ulysses).

        Both the query heads and the key-value heads per tensor-parallel rank must be divisible by
        ``ranks``.
        """
        own = (self.heads // tp, max(self.kv_heads // tp, 1))
        return not any(heads % ranks for heads in own)


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated DeltaNet (arXiv:2412.06464), in all layers except the attention layers."""

    key_heads: int
    """Number of query heads and of key heads; several value heads share one of them."""
    value_heads: int
    key_dim: int
    value_dim: int
    conv_size: int
    """Width of the causal convolution over queries, keys and values."""
    full_attention_every: int
    """Period n of the layers that have softmax attention instead (Qwen3-Next: 4)."""

    @property
    def key_width(self) -> int:
        """Width of all query heads together, which is also the width of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def inner(self) -> int:
        """Width of all value heads together, of the gate and of the output projection's input."""
        return self.value_heads * self.value_dim

    @property
    def projected(self) -> int:
        """Output width of the input projection.

        It has queries, keys, values, gate, and two numbers per value head: decay, update rate.
        """
        return 2 * self.key_width + 2 * self.inner + 2 * self.value_heads

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.inner


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-2 (arXiv:2405.21060): a state space model with ``state_size`` states per channel."""

    heads: int
    head_dim: int
    state_size: int
    groups: int
    """Groups of heads that share the input and output matrices (B and C) of the state."""
    conv_size: int

    @property
    def inner(self) -> int:
        """Inner width of the layer: heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: the inner width, and the matrices B and C of all groups."""
        return self.inner + 2 * self.groups * self.state_size

    @property
    def projected(self) -> int:
        """Output width of the input projection: convolution channels, gate, step size per head."""
        return self.conv_channels + self.inner + self.heads


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Dense MLP; experts use the same activation."""

    size: int
    """Hidden width; 0 if no layer is dense (Mixtral, Qwen3-MoE)."""
    gated: bool
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"]
    bias: bool


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed and shared experts of the layers for which ``pattern`` is True."""

    count: int
    top_k: int
    size: int
    """Hidden width of one routed expert."""
    shared_size: int
    """Total hidden width of the shared experts; 0 = none."""
    shared_gate: bool
    pattern: tuple[bool, ...]
    """True for each decoder layer with routed experts, False for the other layers."""
    bias: bool
    """True if experts have biases (gpt-oss)."""
    score_function: Literal["softmax", "sigmoid"]
    pre_softmax: bool
    """True if scores are normalized before the top-k selection instead of after it."""
    groups: int
    """Expert groups of group-limited routing; 1 = routing is not limited."""
    group_top_k: int
    """Expert groups to which one token can be routed."""
    router_bias: Literal["none", "parameter", "buffer"]
    """``buffer``: load-balancing bias of DeepSeek-V3, which Megatron does not train."""
    scaling_factor: float
    """Factor on the combined output of the routed experts."""
    aux_loss_coefficient: float
    """Weight of the load-balancing loss; 0 = no such loss."""

    @property
    def layers(self) -> int:
        """Number of layers with routed experts."""
        return sum(self.pattern)


@dataclass(frozen=True, slots=True)
class Position:
    """Position encoding. ``learned`` adds an embedding of ``max_positions`` rows."""

    kind: Literal["rope", "yarn", "learned", "none"]
    base: float
    percent: float
    """Share of the head dim to which the rotation applies."""
    scaling: Literal["none", "llama3", "linear", "yarn"]
    scaling_factor: float
    max_positions: int
    original_max_positions: int
    mscale: float
    mscale_all_dim: float


@dataclass(frozen=True)  # no slots, because cached_property needs a __dict__
class Model:
    """Decoder-only model with all dimensions."""

    name: str
    family: str
    """Hugging Face ``model_type`` of the architecture (llama, mixtral, qwen3_moe, ...)."""
    layers: int
    """Decoder layers without multi-token-prediction layers."""
    hidden: int
    vocab: int
    attention: Attention
    ffn: FeedForward
    experts: Experts | None
    norm: Literal["rmsnorm", "layernorm"]
    norm_epsilon: float
    norms_per_layer: int
    """1 for a parallel block, 2 for pre-norm, 4 if sub-layer outputs are normalized too (Gemma 2
    and 3)."""
    final_norm: bool
    position: Position
    tied_embeddings: bool
    mtp_layers: int
    """Multi-token-prediction layers that are trained (DeepSeek-V3: 1); 0 = none."""
    source: str
    """Origin of the numbers: a page, or a file of the user."""
    left_out: str
    """Description of the family's computations that have no field here; tensor shapes are exact."""
    linear: LinearAttention | None
    mamba: Mamba | None
    pattern: str
    """Layer pattern of a model whose layers have a single part (Nemotron-H), one letter per layer:
    M = Mamba, * = attention, - = dense MLP, E = experts. Empty for any other model."""

    @property
    def moe_layers(self) -> int:
        """Number of layers with routed experts; 0 for a dense model."""
        return self.experts.layers if self.experts else 0

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kind of each decoder layer, in order."""
        if self.pattern:
            return tuple(LAYER_LETTERS[letter] for letter in self.pattern)
        every = self.linear.full_attention_every if self.linear else 1
        routed = self.experts.pattern if self.experts else (False,) * self.layers
        return tuple(
            LayerKind("linear" if (n + 1) % every else "attention", "experts" if one else "dense")
            for n, one in enumerate(routed)
        )

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Distinct kinds of the layers, dense kinds first."""
        return tuple(sorted(set(self.layer_kinds), key=KIND_ORDER.__getitem__))

    @property
    def dense_layers(self) -> int:
        """Number of layers with a dense MLP."""
        return sum(kind.mlp == "dense" for kind in self.layer_kinds)

    def recurrent(self, kind: LayerKind) -> LinearAttention | Mamba | None:
        """Return the recurrent token mixer of a layer of ``kind``, or None if it has none."""
        return {"linear": self.linear, "mamba": self.mamba}.get(kind.mixer)

    def fused_norms(self, kind: LayerKind) -> tuple[bool, bool]:
        """Return (mixer, MLP): True if TransformerEngine fuses the norm into the next projection.

        It can only fuse a norm into a single projection; latent attention and experts have several
        (Megatron-Core 0.19, models/gpt/gpt_layer_specs.py).
        """
        latent = kind.mixer == "attention" and self.attention.latent is not None
        return kind.mixer != "none" and not latent, kind.mlp == "dense"

    @property
    def last_kind(self) -> LayerKind:
        """Kind of the last decoder layer, which multi-token-prediction layers copy."""
        return self.layer_kinds[-1]
