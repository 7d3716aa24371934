"""Size of the key-value cache: bytes per token, layers with a sliding window, whole blocks.

Grouped-query attention stores 2 x head dim per key-value head on the rank (arXiv:2305.13245); heads
are repeated if tp exceeds their number. Latent attention stores one vector of rank + rope dim per
token, in full on every tensor rank (arXiv:2405.04434). A sliding window limits the tokens per
layer.
"""

from __future__ import annotations

from parc.compiler.ir.model import Attention, Model


def layer_token_bytes(attention: Attention, tp: int, element_bytes: float) -> float:
    """Return the cache bytes per token and layer on one of ``tp`` ranks."""
    latent = attention.latent
    if latent is not None:
        return (latent.kv_lora_rank + latent.qk_rope_dim) * element_bytes
    heads = max(attention.kv_heads / tp, 1.0)
    return 2 * heads * attention.head_dim * element_bytes


def windowed_layers(model: Model, first: int = 0, layers: int | None = None) -> int:
    """Count the attention layers with a sliding window among ``layers`` layers from ``first`` on.

    If ``full_attention_every`` is n, each n-th layer (1-based) attends to all tokens.
    """
    attention = model.attention
    stop = model.layers if layers is None else first + layers
    if attention.window is None:
        return 0
    every, kinds = attention.full_attention_every, model.layer_kinds
    attending = (layer for layer in range(first, stop) if kinds[layer].mixer == "attention")
    return sum(1 for layer in attending if not every or (layer + 1) % every)


def rounded_tokens(tokens: int, block: int) -> int:
    """Return ``tokens`` rounded up to whole blocks of a paged cache (arXiv:2309.06180)."""
    return -(-tokens // block) * block
