"""The memory of one serving rank: weights, overhead, and how many tokens its cache holds.

The capacity is the arithmetic of vLLM's gpu_worker and kv_cache_planning: budget - weights -
overhead, over the bytes of a token; a request of a model with recurrent layers takes their states
beside its tokens.
"""

from __future__ import annotations

from parc.compiler.cost.counts.kv_cache import layer_token_bytes, windowed_layers
from parc.compiler.cost.counts.recurrent_state import state_bytes
from parc.compiler.cost.serving.cache_blocks import cache_blocks
from parc.compiler.cost.serving.constants import (
    CONTEXT_BYTES,
    ENGINES,
    KV_BYTES,
    SGLANG_RESERVE_BYTES,
    SGLANG_RESERVE_SHARE,
    WORKSPACE_BYTES_PER_TOKEN,
)
from parc.compiler.cost.serving.shard import Layers, weights_bytes
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup

BLOCK_TOKENS = 16
"""Tokens of a block where nothing else is known: vLLM's default."""


def kv_bytes_per_token(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Bytes of one token on one rank, all layers of the fullest stage that keep keys and values.

    Grouped-query attention: 2 x max(1, kv heads / tp) x head dim; latent attention: one vector of
    kv_lora_rank + qk_rope_dim, not divided by tp. Decode context parallelism divides tokens.
    """
    return _kept(model, layout, setup)[0] / layout.dcp


def _kept(model: Model, layout: ServingLayout, setup: ServingSetup) -> tuple[float, float]:
    """(bytes a token, bytes a sequence beside them) on a rank of the fullest stage.

    vLLM pads states to whole blocks, and a block is so long that half of the last one counts. A
    request that runs has one state a layer; what the prefix cache keeps beside it can be evicted.
    """
    layers = max(layout.stages) if layout.stages else -(-model.layers // layout.pp)
    every = Layers.of(model.layer_kinds)
    if not every.recurrent or setup.engine != "vllm":
        kept = layers * every.attention / model.layers
        states = layers * every.recurrent / model.layers
        state = state_bytes(model, setup.engine, layout.tp)
        return kept * kv_bytes_per_layer(model, layout.tp, setup), states * state
    blocks = cache_blocks(model, setup, layout.tp, BLOCK_TOKENS)
    block = blocks.layers(model, 0, model.layers) * layers / model.layers * blocks.page_bytes
    per_sequence = (blocks.attention / 2 + blocks.recurrent) * block
    return blocks.attention * block / blocks.tokens, per_sequence


def kv_bytes_per_layer(model: Model, tp: int, setup: ServingSetup) -> float:
    """Bytes of one token and layer on one of ``tp`` ranks."""
    return layer_token_bytes(model.attention, tp, KV_BYTES[setup.kv])


def request_bytes(model: Model, layout: ServingLayout, setup: ServingSetup, tokens: float) -> float:
    """Cache of one request of ``tokens`` on one rank; windowed layers keep their window."""
    window = model.attention.window
    per_token, per_sequence = _kept(model, layout, setup)
    per_token /= layout.dcp
    if window is None or window >= tokens:
        return per_token * tokens + per_sequence
    short = windowed_layers(model) / max(Layers.of(model.layer_kinds).attention, 1)
    return per_token * ((1 - short) * tokens + short * window * layout.dcp) + per_sequence


def _left(total: float, setup: ServingSetup, weights: float, overhead: float) -> float:
    """Bytes for the cache, by what the engine's share is a share of."""
    engine = ENGINES[setup.engine]
    share = engine.memory_share if setup.memory_share is None else setup.memory_share
    if share is None:
        share = 1 - min(SGLANG_RESERVE_BYTES / total, SGLANG_RESERVE_SHARE)
    if engine.budget == "free":
        return (total - weights - overhead) * share
    if engine.budget == "static":
        return total * share - CONTEXT_BYTES / 2 - weights
    return total * share - weights - overhead


def serving_memory(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout
) -> ServingMemory:
    """The budget of the fullest rank."""
    weights = weights_bytes(model, layout, setup)
    overhead = overhead_bytes(model, setup, layout.tp)
    left = cache_bytes(cluster.gpu.memory_bytes, setup, weights, overhead)
    per_token = kv_bytes_per_token(model, layout, setup)
    tokens = left / per_token if per_token else 0.0
    return ServingMemory(weights, overhead, left, per_token, tokens)


def overhead_bytes(model: Model, setup: ServingSetup, tp: int) -> float:
    """Activations of the largest step, graphs, communication buffers and context of a rank."""
    if setup.overhead_bytes is not None:
        return setup.overhead_bytes
    tokens = setup.max_batched_tokens or ENGINES[setup.engine].max_batched_tokens
    # The largest step keeps hidden states, a wide intermediate and fp32 logits of its sequences.
    width = model.hidden * 6 + max(model.ffn.size, model.hidden) * 4 / tp
    return CONTEXT_BYTES + WORKSPACE_BYTES_PER_TOKEN * tokens * width


def cache_bytes(total: float, setup: ServingSetup, weights: float, overhead: float) -> float:
    """Bytes of a device of ``total`` that are left for the cache; 0 where nothing is."""
    return max(_left(total, setup, weights, overhead), 0.0)
