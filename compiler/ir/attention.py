"""Dimensions of softmax attention: grouped queries, latent attention, and sparse selection."""

from __future__ import annotations

from typing import Literal

from parc.compiler.ir.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Dimensions of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)."""

    q_lora_rank: int | None
    """LoRA rank of the query projection; None if the projection has full rank."""
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class Indexer:
    """Indexer of sparse attention, which scores all earlier tokens with small heads of its own.

    Each query then attends only to the ``top_k`` keys with the highest scores (DeepSeek-V3.2).
    """

    heads: int
    head_dim: int
    """Width of an index query; the index keys have a single head of this width."""
    top_k: int
    head_weights: bool = True
    """True if each token has a weight per head, from a projection of its own."""
    shared: bool = False
    """True if the layer uses the keys that an earlier layer selected, and has no indexer."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Dimensions of softmax attention, either grouped-query or latent.

    If ``latent`` is set, its projections replace those of grouped-query attention.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    qk_norm: Literal["none", "head", "full"]
    """Normalization of queries and keys: none, per head with head_dim weights (Qwen3), or over all
    heads together (full)."""
    window: int | None
    """Sliding-window length in tokens; None = full causal attention."""
    latent: LatentAttention | None
    sinks: bool
    """True if each head has a learned sink logit (gpt-oss)."""
    full_attention_every: int
    """Distance n between layers that ignore ``window`` and attend to the full context: layers n,
    2n, ... (Gemma 2: n = 2, Gemma 3: n = 6); 0 if no layer does."""
    gate: bool
    """True if a sigmoid gate scales the attention output; the gate has a projection as wide as the
    queries (Qwen3-Next)."""
    value_dim: int = 0
    """Head dim of values if it differs from ``head_dim`` (MiMo-V2-Flash); otherwise 0."""
    chunked: bool = False
    """True if ``window`` is the length of chunks, so that queries attend only to keys of their own
    chunk (Llama 4)."""
    indexer: Indexer | None = None
    """Indexer that selects the keys of each query; None = all visible keys."""

    @property
    def value_width(self) -> int:
        """Head dim of values in grouped-query attention."""
        return self.value_dim or self.head_dim

    @property
    def query_projection_heads(self) -> int:
        """Number of heads in the output of the query projection.

        This is the number of query heads, doubled if the projection also computes a gate.
        """
        return (2 if self.gate else 1) * self.heads

    def can_exchange_heads(self, ranks: int, tp: int) -> bool:
        """Return True if ``ranks`` ranks can exchange attention heads for tokens (Ulysses).

        On each of the ``tp`` tensor-parallel ranks, the number of query heads and the number of
        key-value heads must both be divisible by ``ranks``.
        """
        # With fewer key-value heads than tp ranks, every rank has a copy of one head, hence max().
        own = (self.heads // tp, max(self.kv_heads // tp, 1))
        return not any(heads % ranks for heads in own)
