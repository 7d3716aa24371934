"""Bytes of the key-value cache and of recurrent state.

Grouped-query attention stores 2 x head dim elements per token for each key-value head on the rank
(arXiv:2305.13245); heads are repeated if tp exceeds the number of key-value heads. Latent attention
stores one vector of kv_lora_rank + qk_rope_dim elements per token, in full on every tensor-parallel
rank (arXiv:2405.04434). A sliding window limits the tokens that a layer stores.

The recurrent state of linear attention, Mamba and short convolutions does not grow with the
sequence: a recurrence stores one matrix per head, a convolution stores the inputs of its last
tokens. Both are split over tp with the heads (vLLM 0.33, layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.model import Model
from parc.compiler.ir.token_mixers import Attention, Indexer

INDEX_SCALE_BLOCK = 128
"""Number of elements of an index key that share one scale."""


def index_key_bytes(indexer: Indexer) -> float:
    """Return the bytes of an index key in the cache; 0 for a layer without indexer."""
    # Index keys are stored in fp8 with one fp32 scale per block, whatever the format of other keys
    # (vLLM 0.33, models/deepseek_v2.py).
    return 0.0 if indexer.shared else indexer.head_dim * (1 + 4 / INDEX_SCALE_BLOCK)


def cache_bytes_per_token(attention: Attention, tp: int, element_bytes: float) -> float:
    """Return the bytes that one attention layer caches per token on one of ``tp`` ranks.

    ``element_bytes`` is the size of one cached number in bytes.
    """
    latent, indexer = attention.latent, attention.indexer
    if attention.shared_kv:
        return 0.0
    index = index_key_bytes(indexer) if indexer else 0.0
    if latent is not None:
        return (latent.kv_lora_rank + latent.qk_rope_dim) * element_bytes + index
    # With fewer key-value heads than ranks, the engine repeats heads: a rank stores at least one.
    heads = max(attention.kv_heads / tp, 1.0)
    tokens = 1 if attention.compression is None else attention.compression.rate
    return (heads * attention.cached_width * element_bytes + index) / tokens


def window_bytes_next_to_compression(model: Model, tp: int, element_bytes: float) -> float:
    """Return the bytes per sequence that layers with compression cache for their window.

    The result is the mean over all attention layers, and 0 without compression. The window is
    assumed to be full.
    """
    shapes = ((one.attention, share) for one, share in model.attention_models)
    return sum(
        share * max(one.kv_heads / tp, 1.0) * one.cached_width * element_bytes * (one.window or 0)
        for one, share in shapes
        if one.compression is not None
    )


def mean_cache_bytes_per_token(model: Model, tp: int, element_bytes: float) -> float:
    """Return the bytes that an attention layer caches per token, averaged over these layers."""
    return sum(
        share * cache_bytes_per_token(one.attention, tp, element_bytes)
        for one, share in model.attention_models
    )


def windowed_cache_share(model: Model, tp: int) -> float:
    """Return the share of the cached bytes per token that belongs to layers with a window."""
    if not model.variants:
        return count_windowed_layers(model) / max(model.cumulative_layer_counts[-1][0], 1)
    sizes = [
        (share * cache_bytes_per_token(one.attention, tp, 1.0), one.attention.slides)
        for one, share in model.attention_models
    ]
    windowed = sum(size for size, slides in sizes if slides)
    return windowed / (sum(size for size, _ in sizes) or 1.0)


def count_windowed_layers(model: Model, first: int = 0, layers: int | None = None) -> int:
    """Return the number of attention layers with a sliding window in a range of layers.

    The range starts at the layer with index ``first`` and has ``layers`` layers. If ``layers`` is
    None, the range ends with the last layer of the model. If ``full_attention_every`` is n, layers
    n, 2n, 3n, ... (counted from 1) have no window.
    """
    attention = model.attention
    stop = model.layers if layers is None else first + layers
    if model.variants:
        return _count_windowed_variants(model, range(first, stop))
    if attention.window is None:
        return 0
    every, kinds = attention.full_attention_every, model.layer_kinds
    attending = (layer for layer in range(first, stop) if kinds[layer].attends)
    return sum(1 for layer in attending if not every or (layer + 1) % every)


def _count_windowed_variants(model: Model, layers: range) -> int:
    """Return the number of ``layers`` with a window, for a model with layer variants."""
    kinds = [model.layer_kinds[layer] for layer in layers]
    attending = [kind for kind in kinds if kind.attends]
    return sum(model.with_shapes_of(kind).attention.slides for kind in attending)


def round_up_to_blocks(tokens: int, block: int) -> int:
    """Return ``tokens`` rounded up to a multiple of ``block``.

    ``block`` is the number of tokens per block of a paged cache (arXiv:2309.06180).
    """
    return -(-tokens // block) * block


ACTIVATION_BYTES = 2.0
"""Bytes per element of the convolution's inputs, which have the number format of activations."""


def recurrent_state_bytes(model: Model, engine: EngineConstants, tp: int) -> float:
    """Return the state bytes that one recurrent layer stores per sequence on one of ``tp`` ranks.

    The result is 0 if the model has no recurrent layers. If ``tp`` exceeds the number of groups of
    a Mamba layer, each rank stores one whole group.
    """
    states = engine.states
    like_activations = model.family in states.activation_width_families
    element_bytes = ACTIVATION_BYTES if like_activations else states.bytes_per_element
    linear, mamba, convolution = model.linear, model.mamba, model.convolution
    if convolution is not None:
        # The inputs of the previous conv_size - 1 tokens (vLLM 0.33, short_conv_state_shape).
        return convolution.width / tp * (convolution.conv_size - 1) * ACTIVATION_BYTES
    if linear is not None:
        state = linear.value_heads * linear.key_dim * linear.value_dim / tp
        # The convolution needs the inputs of the previous conv_size - 1 tokens.
        inputs = linear.conv_channels / tp * (linear.conv_size - 1)
        return state * element_bytes + inputs * ACTIVATION_BYTES
    if mamba is not None:
        matrices = max(mamba.groups / tp, 1.0) * mamba.matrices_width
        inputs = (mamba.inner_width / tp + matrices) * (mamba.conv_size - 1)
        return mamba.inner_width * mamba.state_size / tp * element_bytes + inputs * ACTIVATION_BYTES
    return 0.0
