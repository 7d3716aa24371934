"""What is trained: the dimensions of one decoder-only transformer, no defaults left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple


class LayerKind(NamedTuple):
    """What one decoder layer is made of; layers of one kind hold and cost the same."""

    mixer: Literal["attention"]
    """What mixes tokens."""
    mlp: Literal["dense", "experts"]

    @property
    def routed(self) -> bool:
        """Whether tokens are sent to experts."""
        return self.mlp == "experts"


DENSE = LayerKind("attention", "dense")
ROUTED = LayerKind("attention", "experts")


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

    def swaps(self, ranks: int, tp: int) -> bool:
        """Whether ``ranks`` can exchange the heads of a tensor rank, of queries and of keys."""
        own = (self.heads // tp, max(self.kv_heads // tp, 1))
        return not any(heads % ranks for heads in own)


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


@dataclass(frozen=True, slots=True)
class Model:
    """One decoder-only transformer, complete."""

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

    @property
    def moe_layers(self) -> int:
        """Routed layers; 0 for a dense model."""
        return self.experts.layers if self.experts else 0

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every decoder layer."""
        return _layer_kinds(self.layers, self.experts.pattern if self.experts else ())

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds that occur, dense ones first."""
        return _kinds(self.layer_kinds)

    @property
    def last_kind(self) -> LayerKind:
        """Of the last decoder layer; prediction layers are built like it."""
        return self.layer_kinds[-1]


@lru_cache(maxsize=64)
def _layer_kinds(layers: int, routed: tuple[bool, ...]) -> tuple[LayerKind, ...]:
    """Asked for by every stage of every split, so that few models are built once each."""
    return tuple(ROUTED if one else DENSE for one in routed) or (DENSE,) * layers


@lru_cache(maxsize=64)
def _kinds(layers: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    order = {kind: index for index, kind in enumerate((DENSE, ROUTED))}
    return tuple(sorted(set(layers), key=order.__getitem__))
