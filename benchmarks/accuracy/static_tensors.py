"""Tensors of parameters, gradients and optimizer state on the last pipeline rank of Megatron.

Without the distributed optimizer every parameter has its own, and all gradients are one buffer;
with it a chunk of the model has two buffers, its experts two more, and every parameter the fp32
parts of them that are the rank's own (Megatron-LM, param_and_grad_buffer.py). Order and shapes
are those of the modules of Megatron-Core with TransformerEngine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from benchmarks.accuracy.memory_rows import MEGATRON
from parc.compiler.ir import Chunk, Experts, LatentAttention, Layout, Model

ALIGNED, BUCKET = 64, 128
"""Elements to which a buffer aligns its parameters, and with the ranks its end."""
Sizes = list[int]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Elements of every parameter of a virtual stage on one rank, in the order of its modules."""

    dense: Sizes
    experts: Sizes


def rounded(size: int, quantum: int) -> int:
    """``size`` as a whole number of quanta."""
    return -(-size // quantum) * quantum


def parameters(model: Model, layout: Layout, chunk: Chunk) -> Parameters:
    """The parameters of one virtual stage."""
    hidden, tp = model.hidden, layout.tp
    table = MEGATRON.padded_vocab(model, tp) * hidden // tp
    norm = _norm(model, hidden)
    found = Parameters([], [])
    if chunk.embedding or chunk.mtp_layers:
        positions = model.position.max_positions * hidden
        found.dense.extend([table] + [positions] * (model.position.kind == "learned"))
    for layer in range(chunk.first_layer, chunk.first_layer + chunk.layers):
        _add_layer(found, model, layout, model.is_moe(layer))
    found.dense.extend(norm * chunk.loss)
    for _ in range(chunk.mtp_layers):
        found.dense.extend([*norm, *norm, 2 * hidden * hidden // tp])
        _add_layer(found, model, layout, model.is_moe(model.layers - 1))
        found.dense.extend(norm)
    tied = chunk.embedding and model.tied_embeddings
    found.dense.extend([table] * (chunk.loss and not tied))
    return found


def _norm(model: Model, width: int) -> Sizes:
    return [width] * (2 if model.norm == "layernorm" else 1)


def _add_layer(found: Parameters, model: Model, layout: Layout, routed: bool) -> None:
    norm = _norm(model, model.hidden)
    latent, experts = model.attention.latent, model.experts
    dense = found.dense
    dense += _attention(model, layout.tp) if latent is None else _latent(model, latent, layout.tp)
    dense += norm
    if routed and experts is not None:
        routed_sizes = _experts(model, experts, layout)
        dense += routed_sizes.dense
        found.experts.extend(routed_sizes.experts)
    else:
        dense += _mlp(model, model.ffn.size // layout.tp, model.ffn.bias)


def _attention(model: Model, tp: int) -> Sizes:
    attention, hidden = model.attention, model.hidden
    fused = (attention.heads + 2 * attention.kv_heads) * attention.head_dim // tp
    outputs = attention.heads * attention.head_dim // tp
    sizes = [outputs * hidden] + [hidden] * attention.output_bias + _norm(model, hidden)
    sizes += [fused * hidden] + [fused] * attention.qkv_bias
    return sizes + 2 * _norm(model, attention.head_dim) * (attention.qk_norm == "head")


def _latent(model: Model, latent: LatentAttention, tp: int) -> Sizes:
    """Latent attention; the norms of its latents go with the norms of queries and keys."""
    hidden, heads = model.hidden, model.attention.heads // tp
    normed = model.attention.qk_norm == "head"
    query, rank = latent.qk_nope_dim + latent.qk_rope_dim, latent.q_lora_rank or 0
    sizes = [*_norm(model, hidden), heads * latent.v_dim * hidden]
    sizes += [hidden] * model.attention.output_bias
    if rank:
        sizes += [rank * hidden, *(_norm(model, rank) * normed)]
    sizes += [heads * query * (rank or hidden), (latent.kv_lora_rank + latent.qk_rope_dim) * hidden]
    sizes += _norm(model, latent.kv_lora_rank) * normed
    return [*sizes, heads * (latent.qk_nope_dim + latent.v_dim) * latent.kv_lora_rank]


def _mlp(model: Model, inner: int, bias: bool) -> Sizes:
    hidden, columns = model.hidden, 2 * inner if model.ffn.gated else inner
    return [columns * hidden] + [columns] * bias + [inner * hidden] + [hidden] * bias


def _experts(model: Model, experts: Experts, layout: Layout) -> Parameters:
    """The router and the shared experts; one matrix of each kind for every expert of the rank."""
    local, inner = experts.count // layout.ep, experts.size // layout.etp
    first, second = _mlp(model, inner, bias=False)
    shared = _mlp(model, experts.shared_size // layout.tp, bias=False)
    dense = [experts.count * model.hidden, *(shared if experts.shared_size else [])]
    return Parameters(dense, local * [first] + local * [second])


def state_tensors(model: Model, layout: Layout, precision: str) -> Sizes:
    """Bytes of every tensor of parameters, gradients and optimizer state on the last rank."""
    gradient, copies = (2, 4) if precision == "fp16" else (4, 3)
    tensors: Sizes = []
    for chunk in layout.split.chunks[-1]:
        found = parameters(model, layout, chunk)
        groups = ((found.dense, layout.dp_shard * layout.cp), (found.experts, layout.edp))
        for sizes, shards in groups:
            if sizes and layout.zero_stage:
                tensors += _sharded(sizes, shards, gradient, copies)
            elif sizes:
                tensors += [gradient * sum(sizes), *(2 * size for size in sizes)]
                tensors += copies * [4 * size for size in sizes]
    return tensors


def _sharded(sizes: Sizes, shards: int, gradient: int, copies: int) -> Sizes:
    """Buffers of a chunk, and the fp32 parts of its parameters that the last shard updates."""
    stop, spans = 0, []
    for size in reversed(sizes):
        start = rounded(stop, ALIGNED)
        stop = start + size
        spans.append((start, stop))
    whole = rounded(stop, lcm(shards, BUCKET))
    first = whole // shards * (shards - 1)
    parts = [stop - max(start, first) for start, stop in spans if stop > first]
    return [2 * whole, gradient * whole, *copies * [4 * part for part in parts]]
