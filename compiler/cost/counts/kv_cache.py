"""Key-value cache of serving: bytes of a token, layers that see a window, whole blocks.

Grouped-query attention keeps 2 x head dim for every key-value head on the rank (arXiv:2305.13245;
heads are repeated where tp exceeds them); latent attention keeps one vector of rank + rope dim
that every tensor rank holds whole (arXiv:2405.04434). A sliding window caps the tokens of a layer.
"""

from __future__ import annotations

from parc.compiler.ir.model import Attention, Model


def layer_token_bytes(attention: Attention, tp: int, element_bytes: float) -> float:
    """Bytes that one token keeps in one layer on one of ``tp`` ranks."""
    latent = attention.latent
    if latent is not None:
        return (latent.kv_lora_rank + latent.qk_rope_dim) * element_bytes
    heads = max(attention.kv_heads / tp, 1.0)
    return 2 * heads * attention.head_dim * element_bytes


def windowed_layers(model: Model, first: int = 0, layers: int | None = None) -> int:
    """How many of ``layers`` layers from ``first`` on see a window and not every token.

    Every n-th layer (1-based) is full where ``full_attention_every`` is n.
    """
    attention = model.attention
    stop = model.layers if layers is None else first + layers
    if attention.window is None:
        return 0
    every, kinds = attention.full_attention_every, model.layer_kinds
    seen = (layer for layer in range(first, stop) if kinds[layer].mixer == "attention")
    return sum(1 for layer in seen if not every or (layer + 1) % every)


def rounded_tokens(tokens: int, block: int) -> int:
    """``tokens`` in whole blocks of a paged cache (arXiv:2309.06180)."""
    return -(-tokens // block) * block
