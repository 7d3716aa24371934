"""Weights and KV cache of one serving rank, and how many tokens the cache holds.

Sharding follows vLLM: column- and row-parallel linear layers are split over tp, key-value heads are
repeated where tp exceeds them, low-rank projections of latent attention, the router and norms are
whole on every rank, the vocabulary is padded to 64 rows. The capacity is the arithmetic of vLLM's
gpu_worker and kv_cache_planning: budget - weights - overhead, over the bytes of a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kv_cache import layer_token_bytes, windowed_layers
from parc.compiler.cost.params import expert_params, mlp_params, norm_params, router_params
from parc.compiler.cost.serving_constants import (
    CONTEXT_BYTES,
    ENGINES,
    KV_BYTES,
    SGLANG_RESERVE_BYTES,
    SGLANG_RESERVE_SHARE,
    WEIGHT_BYTES,
    WORKSPACE_BYTES_PER_TOKEN,
)
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup

VOCAB_MULTIPLE = 64
"""vLLM pads the vocabulary to a multiple of this (DEFAULT_VOCAB_PADDING_SIZE)."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Elements on the fullest rank of a deployment, by part; layers are those of its stage."""

    dense_layers: float
    routed_layers: float
    attention: float
    """Projections of one layer."""
    attention_rest: float
    """Norms and biases of one layer."""
    mlp: float
    """The MLP of a dense layer."""
    shared: float
    """Shared experts of a routed layer."""
    router: float
    expert: float
    """One routed expert, the part on this rank."""
    experts: float
    """Routed experts of a layer that the rank holds, whole or in part."""
    embedding: float
    """Input embedding and output projection, those that the stage holds."""
    head: float
    """Output projection alone, whether or not it is the embedding."""

    @property
    def layers(self) -> float:
        """Layers of the stage."""
        return self.dense_layers + self.routed_layers


def shard(model: Model, layout: ServingLayout) -> Shard:
    """What the fullest rank holds; the first stage of a pipeline is taken for the fullest."""
    tp, pp = layout.tp, layout.pp
    layers = max(layout.stages) if layout.stages else -(-model.layers // pp)
    routed = layers * model.moe_layers / model.layers
    vocab = -(-model.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    head = vocab * model.hidden / tp
    projections, rest = attention_elements(model, tp)
    experts = model.experts
    return Shard(
        dense_layers=layers - routed,
        routed_layers=routed,
        attention=projections,
        attention_rest=rest + model.norms_per_layer * norm_params(model, model.hidden),
        mlp=mlp_params(model.hidden, model.ffn.size, model.ffn, bias=False) / tp,
        shared=_shared(model) / tp,
        router=router_params(model),
        expert=expert_params(model) / layout.expert_tp if experts else 0.0,
        experts=_held(experts.count + layout.redundant_experts, layout.ep) if experts else 0.0,
        embedding=head if pp > 1 or model.tied_embeddings else 2 * head,
        head=head,
    )


def _held(experts: int, ep: int) -> float:
    """Experts of the rank that holds most; only whole ones where ranks share them unevenly."""
    return float(-(-experts // ep))


def _shared(model: Model) -> float:
    """Weights of all shared experts of a routed layer."""
    experts = model.experts
    if experts is None or not experts.shared_size:
        return 0.0
    return mlp_params(model.hidden, experts.shared_size, model.ffn, bias=False)


def attention_elements(model: Model, tp: int) -> tuple[float, float]:
    """(projection weights, the rest) of one layer's attention on one of ``tp`` ranks."""
    attention, hidden = model.attention, model.hidden
    latent = attention.latent
    if latent is None:
        width = attention.heads * attention.head_dim / tp
        keys = max(attention.kv_heads / tp, 1.0) * attention.head_dim
        norms = 2 * attention.head_dim if attention.qk_norm == "head" else 0.0
        biases = (width + 2 * keys) * attention.qkv_bias
        return hidden * (2 * width + 2 * keys), norms + biases
    query = latent.qk_nope_dim + latent.qk_rope_dim
    rank = latent.q_lora_rank or 0
    whole = hidden * (rank + latent.kv_lora_rank + latent.qk_rope_dim)
    values = latent.kv_lora_rank * (latent.qk_nope_dim + latent.v_dim)
    heads = attention.heads / tp
    split = heads * ((rank or hidden) * query + values + latent.v_dim * hidden)
    return whole + split, float(rank + latent.kv_lora_rank)


def parameters(part: Shard, final_norm: float = 0.0) -> float:
    """Elements on the rank."""
    layer = part.attention + part.attention_rest
    routed = part.router + part.shared + part.experts * part.expert
    return (
        part.layers * layer
        + part.dense_layers * part.mlp
        + part.routed_layers * routed
        + part.embedding
        + final_norm
    )


def attention_weight_bytes(model: Model, setup: ServingSetup) -> float:
    """Bytes of one attention weight.

    Published nvfp4 checkpoints of latent-attention models leave attention in 16 bit
    (nvidia/DeepSeek-R1-FP4 model card: linear operators of the experts are quantised).
    """
    if setup.weights == "nvfp4" and model.attention.latent is not None:
        return WEIGHT_BYTES["bf16"]
    return WEIGHT_BYTES[setup.weights]


def weights_bytes(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Bytes of weights on the fullest rank; embeddings, norms and routers stay in 16 bit."""
    part = shard(model, layout)
    final = 2 * norm_params(model, model.hidden) if layout.pp == 1 else 0.0
    return shard_bytes(model, part, setup) + final


def shard_bytes(model: Model, part: Shard, setup: ServingSetup) -> float:
    """Bytes of ``part`` without a final norm; embeddings, norms and routers stay in 16 bit."""
    linear = WEIGHT_BYTES[setup.weights]
    layer = part.attention * attention_weight_bytes(model, setup) + 2 * part.attention_rest
    routed = 2 * part.router + linear * (part.shared + part.experts * part.expert)
    total = part.layers * layer + part.dense_layers * part.mlp * linear
    return total + part.routed_layers * routed + 2 * part.embedding


def kv_bytes_per_token(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Bytes of one token on one rank, all layers of the fullest stage.

    Grouped-query attention: 2 x max(1, kv heads / tp) x head dim; latent attention: one vector of
    kv_lora_rank + qk_rope_dim, not divided by tp. Decode context parallelism divides tokens.
    """
    layers = max(layout.stages) if layout.stages else -(-model.layers // layout.pp)
    return layers * kv_bytes_per_layer(model, layout.tp, setup) / layout.dcp


def kv_bytes_per_layer(model: Model, tp: int, setup: ServingSetup) -> float:
    """Bytes of one token and layer on one of ``tp`` ranks."""
    return layer_token_bytes(model.attention, tp, KV_BYTES[setup.kv])


def request_bytes(model: Model, layout: ServingLayout, setup: ServingSetup, tokens: float) -> float:
    """Cache of one request of ``tokens`` on one rank; windowed layers keep their window."""
    window = model.attention.window
    per_token = kv_bytes_per_token(model, layout, setup)
    if window is None or window >= tokens:
        return per_token * tokens
    short = windowed_layers(model) / model.layers
    return per_token * ((1 - short) * tokens + short * window * layout.dcp)


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
    return ServingMemory(weights, overhead, left, per_token, left / per_token)


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
