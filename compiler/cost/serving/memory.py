"""Memory of one serving rank: weights, overhead, and the blocks of its cache.

The capacity follows vLLM's gpu_worker and kv_cache_planning: (budget - weights - overhead) / bytes
per token. A request of a model with recurrent layers needs space for their states as well.

A paged cache stores keys, values and recurrent states in one pool of blocks. A page is one layer's
part of a block, and the pages of all layers have equal size. If a model has recurrent layers, the
tokens per block are raised until a state fits into one page, and states are padded to it (vLLM,
platforms/interface.py, _align_hybrid_block_size). Layers form groups of one type and of nearly
equal size; a block has one page per layer of a group, and a request occupies separate blocks in
each group (v1/core/kv_cache_planning.py, _get_kv_cache_groups_uniform_page_size; 0.33).
"""

from __future__ import annotations

from math import ceil, lcm

from parc.compiler.cost.counts.cache import (
    mean_cache_bytes_per_token,
    recurrent_state_bytes,
    window_bytes_next_to_compression,
    windowed_cache_share,
)
from parc.compiler.cost.serving.draft import draft_cache_bytes_per_token, draft_weights_bytes
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.serving.shard import (
    KV_BYTES,
    RankWeights,
    bytes_of_rank,
    layers_of_longest_stage,
)
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.engine_constants import StatePageConstants
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup


@frozen
class CacheBlocks:
    """Block size and groups of layers in the cache of a model on one tensor-parallel rank."""

    tokens: int
    """Tokens per block."""
    page_bytes: float
    """Bytes per page, which is the part of a block that belongs to one layer."""
    attention: int
    """Number of groups of attention layers. Per group, a request occupies one block for each
    ``tokens`` tokens."""
    recurrent: int
    """Number of groups of recurrent layers."""
    blocks_per_state: int = 0
    """Maximum number of blocks that a request occupies in each group of recurrent layers."""

    def pages_per_block(self, model: Model, first: int, layers: int) -> int:
        """Return the number of pages per cache block on one pipeline stage.

        A block has one page for each layer of the largest layer group on the stage. The stage
        starts at the layer with index ``first`` and has ``layers`` layers.
        """
        stage = LayerCounts.in_range(model, first, layers)
        pages = 1
        if self.attention:
            pages = max(pages, ceil(stage.attention / self.attention))
        if self.recurrent:
            pages = max(pages, ceil(stage.recurrent / self.recurrent))
        return pages

    def blocks_of_request(self, tokens: int, shards: int) -> int:
        """Return the number of blocks that a request of ``tokens`` tokens occupies on one rank.

        The tokens are divided among ``shards`` ranks, but each of these ranks stores all recurrent
        states.
        """
        return self.attention * ceil(ceil(tokens / shards) / self.tokens) + self.blocks_for_states

    def longest_request_tokens(self, blocks: int, shards: int) -> int | None:
        """Return the tokens of the longest request that fits into ``blocks`` blocks per rank.

        The tokens of a request are divided among ``shards`` ranks. The result is None if the length
        is unlimited, because the model has only recurrent states.
        """
        if not self.attention:
            return None if blocks >= self.blocks_for_states else 0
        return max(blocks - self.blocks_for_states, 0) // self.attention * self.tokens * shards

    @property
    def blocks_for_states(self) -> int:
        """Return the maximum number of blocks that the recurrent states of one request occupy."""
        return self.recurrent * self.blocks_per_state


def cache_blocks(model: Model, setup: ServingSetup, tp: int, block_tokens: int) -> CacheBlocks:
    """Return the block size and layer groups of the cache of ``model`` on one of ``tp`` ranks.

    ``block_tokens`` is the configured number of tokens per block. If the model has recurrent
    layers, blocks can be longer.

    Raises:
        ValueError: the model has recurrent layers, and the engine declares no policy for them.
    """
    token_bytes = mean_cache_bytes_per_token(model, tp, KV_BYTES[setup.kv])
    layers = LayerCounts.in_range(model)
    if not layers.recurrent:
        return CacheBlocks(block_tokens, block_tokens * token_bytes, 1, 0)
    policy = setup.engine.states.pages
    if policy is None:
        raise ValueError(
            f"engine {setup.engine.name} declares no states.pages, which the recurrent layers of "
            f"{model.name} need"
        )
    state = recurrent_state_bytes(model, setup.engine, tp)
    # Without attention, a block holds one recurrent state, whatever its number of tokens.
    if not layers.attention:
        return CacheBlocks(block_tokens, state, 0, 1, policy.blocks_per_request)
    # Kernels and the prefix cache require blocks of whole chunks.
    step = max(block_tokens, policy.kernel_tokens)
    if model.linear is not None:
        step = lcm(step, policy.prefix_chunk_tokens)
    # The smallest block in which one layer's keys and values are at least as large as one state.
    tokens = step * max(ceil(state / (step * token_bytes)), 1)
    groups = _layer_groups(layers, policy)
    return CacheBlocks(tokens, tokens * token_bytes, *groups, policy.blocks_per_request)


def _layer_groups(layers: LayerCounts, policy: StatePageConstants) -> tuple[int, int]:
    """Return (number of attention groups, number of recurrent groups) of layers in the cache.

    Usually, each group has as many layers as the model has layers of the less frequent type. If
    both types are about equally frequent, there is one group per type, and the smaller group is
    padded.
    """
    few, many = sorted((layers.attention, layers.recurrent))
    size = many if many < policy.single_group_below * few else few
    return ceil(layers.attention / size), ceil(layers.recurrent / size)


def kv_bytes_per_token(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Return the cache bytes per token on one rank of the longest stage, summed over its layers.

    In grouped-query attention, a layer stores 2 x max(1, kv heads / tp) x head dim elements per
    token. In latent attention, it stores one vector of kv_lora_rank + qk_rope_dim elements, which
    is not divided by tp. Decode context parallelism divides the tokens among the dcp ranks.
    """
    return _cache_bytes_per_token_and_sequence(model, layout, setup)[0] / layout.dcp


def _cache_bytes_per_token_and_sequence(
    model: Model, layout: ServingLayout, setup: ServingSetup
) -> tuple[float, float]:
    """Return (cache bytes per token, cache bytes per sequence) on one rank of the longest stage.

    A running request has one recurrent state per recurrent layer. Further states in the prefix
    cache are not counted, because the engine can evict them.
    """
    per_token, per_sequence = _layers_bytes_per_token_and_sequence(model, layout, setup)
    return per_token + draft_cache_bytes_per_token(setup, layout.tp), per_sequence


def _layers_bytes_per_token_and_sequence(
    model: Model, layout: ServingLayout, setup: ServingSetup
) -> tuple[float, float]:
    """Return the same bytes for the layers of the model, without the layers of a draft."""
    # If the engine stores recurrent states in cache blocks, each state is padded to a whole block.
    # Blocks are then so long that half of the last attention block, which is empty on average,
    # counts as bytes per sequence.
    layers = layers_of_longest_stage(model, layout)
    whole = LayerCounts.in_range(model)
    if not whole.recurrent or setup.engine.states.pages is None:
        attention = layers * whole.attention / model.layers
        recurrent = layers * whole.recurrent / model.layers
        state = recurrent_state_bytes(model, setup.engine, layout.tp)
        window = window_bytes_next_to_compression(model, layout.tp, KV_BYTES[setup.kv])
        per_token = attention * kv_bytes_per_layer(model, layout.tp, setup)
        return per_token, recurrent * state + attention * window
    blocks = cache_blocks(model, setup, layout.tp, setup.engine.memory.default_block_tokens)
    block = (
        blocks.pages_per_block(model, 0, model.layers) * layers / model.layers * blocks.page_bytes
    )
    # On average half of the last attention block is empty; each group of recurrent layers has one
    # block.
    per_sequence = (blocks.attention / 2 + blocks.recurrent) * block
    return blocks.attention * block / blocks.tokens, per_sequence


def kv_bytes_per_layer(model: Model, tp: int, setup: ServingSetup) -> float:
    """Return the bytes that one attention layer caches per token on one of ``tp`` ranks."""
    return mean_cache_bytes_per_token(model, tp, KV_BYTES[setup.kv])


def request_cache_bytes(
    model: Model, layout: ServingLayout, setup: ServingSetup, tokens: float
) -> float:
    """Return the bytes that a request of ``tokens`` tokens occupies in the cache of one rank.

    Layers with a sliding window store no more tokens than the window has.
    """
    window = model.attention.window
    per_token, per_sequence = _cache_bytes_per_token_and_sequence(model, layout, setup)
    per_token /= layout.dcp
    if window is None or window >= tokens:
        return per_token * tokens + per_sequence
    short = windowed_cache_share(model, layout.tp)
    return per_token * ((1 - short) * tokens + short * window * layout.dcp) + per_sequence


def _bytes_left_for_cache(
    total: float, setup: ServingSetup, weights: float, overhead: float
) -> float:
    """Return the bytes left for the cache on a device of ``total`` bytes.

    The result is negative if weights and overhead do not fit. ``engine.memory.budget`` selects the
    formula by which the engine computes its memory budget.
    """
    memory = setup.engine.memory
    share = memory.default_share if setup.memory_share is None else setup.memory_share
    if share is None:
        reserve = (memory.reserve_bytes or 0.0) / total
        share = 1 - min(reserve, memory.reserve_device_share or 1.0)
    # "free": a share of the memory left after loading (TensorRT-LLM). "static": weights and cache
    # share a fixed part (SGLang). Otherwise a part of the device for everything (vLLM).
    if memory.budget == "free":
        return (total - weights - overhead) * share
    if memory.budget == "static":
        return total * share - memory.context_bytes / 2 - weights
    return total * share - weights - overhead


def serving_memory(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout, part: RankWeights
) -> ServingMemory:
    """Return the memory of the fullest rank if layers are split evenly into pipeline stages.

    ``part`` is the result of ``count_rank_weights``.
    """
    weights = bytes_of_rank(model, layout, setup, part) + draft_weights_bytes(setup, layout)
    overhead = overhead_bytes(model, setup, layout.tp)
    left = available_cache_bytes(cluster.gpu.memory_bytes, setup, weights, overhead)
    per_token = kv_bytes_per_token(model, layout, setup)
    tokens = left / per_token if per_token else 0.0
    return ServingMemory(weights, overhead, left, per_token, tokens)


def overhead_bytes(model: Model, setup: ServingSetup, tp: int) -> float:
    """Return the bytes per rank in addition to weights and cache.

    They are the temporary tensors of the largest step, CUDA graphs, communication buffers and the
    CUDA context.
    """
    if setup.overhead_bytes is not None:
        return setup.overhead_bytes
    engine, tokens = setup.engine, setup.step_token_limit
    # The largest step stores hidden states, a wide intermediate and fp32 logits of its sequences.
    # One of three tensors of the hidden size contains the residual streams.
    streams = 4 + 2 * model.residual_streams
    width = model.hidden * streams + max(model.ffn.size, model.hidden) * 4 / tp
    return engine.memory.context_bytes + engine.memory.workspace_bytes_per_element * tokens * width


def available_cache_bytes(
    total: float, setup: ServingSetup, weights: float, overhead: float
) -> float:
    """Return the bytes left for the cache on a device of ``total`` bytes.

    The result is 0 if weights and overhead do not fit.
    """
    return max(_bytes_left_for_cache(total, setup, weights, overhead), 0.0)
