"""Bytes of the key-value cache and of recurrent state.

Grouped-query attention stores 2 x head dim per key-value head on the rank (arXiv:2305.13245); heads
are repeated if tp exceeds their number. Latent attention stores one vector of rank + rope dim per
token, in full on every tensor rank (arXiv:2405.04434). A sliding window limits the tokens per
layer.

The recurrent state of linear attention and Mamba does not grow with the sequence: the recurrence
stores one matrix per head, the convolution the inputs of its last tokens. Both are split over tp
with the heads (vLLM 0.33, layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

from parc.compiler.ir.engine_constants import EngineConstants
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


ACTIVATION_BYTES = 2.0
"""Bytes per element of the convolution's inputs, which are stored like activations."""


def state_bytes(model: Model, engine: EngineConstants, tp: int) -> float:
    """Return the bytes that one sequence stores in one recurrent layer, per rank.

    The result is 0 for models without recurrent layers. If ``tp`` exceeds the number of groups of a
    Mamba layer, each rank stores one whole group.
    """
    states = engine.states
    like_activations = model.family in states.activation_width_families
    element_bytes = ACTIVATION_BYTES if like_activations else states.bytes_per_element
    linear, mamba = model.linear, model.mamba
    if linear is not None:
        state = linear.value_heads * linear.key_dim * linear.value_dim / tp
        inputs = linear.conv_channels / tp * (linear.conv_size - 1)
        return state * element_bytes + inputs * ACTIVATION_BYTES
    if mamba is not None:
        matrices = 2 * max(mamba.groups / tp, 1.0) * mamba.state_size
        inputs = (mamba.inner / tp + matrices) * (mamba.conv_size - 1)
        return mamba.inner * mamba.state_size / tp * element_bytes + inputs * ACTIVATION_BYTES
    return 0.0
