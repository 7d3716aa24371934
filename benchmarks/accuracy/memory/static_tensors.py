"""Sizes of parameters, gradients and optimizer state on the last pipeline rank of Megatron.

Without the distributed optimizer every parameter has a separate tensor and all gradients share one
buffer. With it a model chunk has two buffers and its experts two more, and every parameter has fp32
parts for the rank's shard (Megatron-LM, param_and_grad_buffer.py). A buffer is sharded bucket by
bucket. An embedding that two stages share is one bucket. If gradients are reduced during the
backward pass, the first chunk of the first stage has several buckets. Order and shapes are those of
Megatron-Core's modules with TransformerEngine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from parc.backends.megatron.tokenizers import padded_rows
from parc.compiler.ir import Experts, LatentAttention, Layout, Model, ModelChunk

ALIGNED, BUCKET = 64, 128
"""Elements to which a buffer aligns its parameters, and (together with the ranks) its end."""
BUCKET_ELEMENTS, BUCKET_ELEMENTS_PER_RANK = 40_000_000, 1_000_000
"""Minimum size of every bucket except the last (distributed_data_parallel.py)."""
Sizes = list[int]


@dataclass(frozen=True, slots=True)
class ParameterSizes:
    """Elements of every parameter of a virtual stage on one rank, in the order of its modules."""

    dense: Sizes
    experts: Sizes


def round_up(size: int, quantum: int) -> int:
    """Round ``size`` up to a multiple of ``quantum``."""
    return -(-size // quantum) * quantum


def parameters(model: Model, layout: Layout, chunk: ModelChunk) -> ParameterSizes:
    """Return the parameters of one virtual stage."""
    hidden, tp = model.hidden, layout.tp
    table = padded_rows(model.vocab, tp) * hidden // tp
    norm = _norm_parameters(model, hidden)
    found = ParameterSizes([], [])
    if chunk.embedding or chunk.mtp_layers:
        positions = model.position.max_positions * hidden
        found.dense.extend([table] + [positions] * (model.position.kind == "learned"))
    for layer in range(chunk.first_layer, chunk.first_layer + chunk.layers):
        _add_layer(found, model, layout, model.layer_kinds[layer].routed)
    found.dense.extend(norm * chunk.loss)
    for _ in range(chunk.mtp_layers):
        found.dense.extend([*norm, *norm, 2 * hidden * hidden // tp])
        _add_layer(found, model, layout, model.last_kind.routed)
        found.dense.extend(norm)
    tied = chunk.embedding and model.tied_embeddings
    found.dense.extend([table] * (chunk.loss and not tied))
    return found


def _norm_parameters(model: Model, width: int) -> Sizes:
    return [width] * (2 if model.norm == "layernorm" else 1)


def _add_layer(found: ParameterSizes, model: Model, layout: Layout, routed: bool) -> None:
    norm = _norm_parameters(model, model.hidden)
    latent, experts = model.attention.latent, model.experts
    dense = found.dense
    dense += (
        _attention_parameters(model, layout.tp)
        if latent is None
        else _latent_attention_parameters(model, latent, layout.tp)
    )
    dense += norm
    if routed and experts is not None:
        routed_sizes = _expert_parameters(model, experts, layout)
        dense += routed_sizes.dense
        found.experts.extend(routed_sizes.experts)
    else:
        dense += _mlp_parameters(model, model.ffn.size // layout.tp, model.ffn.bias)


def _attention_parameters(model: Model, tp: int) -> Sizes:
    attention, hidden = model.attention, model.hidden
    fused = (attention.heads + 2 * attention.kv_heads) * attention.head_dim // tp
    outputs = attention.heads * attention.head_dim // tp
    sizes = [outputs * hidden] + [hidden] * attention.output_bias + _norm_parameters(model, hidden)
    sizes += [fused * hidden] + [fused] * attention.qkv_bias
    return sizes + 2 * _norm_parameters(model, attention.head_dim) * (attention.qk_norm == "head")


def _latent_attention_parameters(model: Model, latent: LatentAttention, tp: int) -> Sizes:
    """Return the parameters of latent attention.

    The latents have norms if queries and keys have norms.
    """
    hidden, heads = model.hidden, model.attention.heads // tp
    normed = model.attention.qk_norm == "head"
    query, rank = latent.qk_nope_dim + latent.qk_rope_dim, latent.q_lora_rank or 0
    sizes = [*_norm_parameters(model, hidden), heads * latent.v_dim * hidden]
    sizes += [hidden] * model.attention.output_bias
    if rank:
        sizes += [rank * hidden, *(_norm_parameters(model, rank) * normed)]
    sizes += [heads * query * (rank or hidden), (latent.kv_lora_rank + latent.qk_rope_dim) * hidden]
    sizes += _norm_parameters(model, latent.kv_lora_rank) * normed
    return [*sizes, heads * (latent.qk_nope_dim + latent.v_dim) * latent.kv_lora_rank]


def _mlp_parameters(model: Model, inner: int, bias: bool) -> Sizes:
    hidden, columns = model.hidden, 2 * inner if model.ffn.gated else inner
    return [columns * hidden] + [columns] * bias + [inner * hidden] + [hidden] * bias


def _expert_parameters(model: Model, experts: Experts, layout: Layout) -> ParameterSizes:
    """Return router, shared experts, and one matrix of each type per expert of the rank."""
    local, inner = experts.count // layout.ep, experts.size // layout.etp
    first, second = _mlp_parameters(model, inner, bias=False)
    shared = _mlp_parameters(model, experts.shared_size // layout.tp, bias=False)
    dense = [experts.count * model.hidden, *(shared if experts.shared_size else [])]
    return ParameterSizes(dense, local * [first] + local * [second])


@dataclass(frozen=True, slots=True)
class Buffer:
    """Parameters of one chunk that are updated together."""

    sizes: Sizes
    """Elements of every parameter, in the order of the modules."""
    whole: int
    """Elements of the gradient buffer, and of the parameter buffer."""
    parts: Sizes
    """Elements of the fp32 parts that the last shard updates, in the order of its optimizer."""
    sharded: bool

    def bytes(self, precision: str) -> Sizes:
        """Return the bytes of every tensor that stays: parameters, gradients, fp32 parts and
        moments."""
        gradient, copies = element_bytes(precision)
        parameters = [2 * self.whole] if self.sharded else [2 * size for size in self.sizes]
        return [*parameters, gradient * self.whole, *copies * [4 * part for part in self.parts]]


def element_bytes(precision: str) -> tuple[int, int]:
    """Return (bytes per gradient, fp32 numbers per parameter; in fp16 one is a gradient)."""
    return (2, 4) if precision == "fp16" else (4, 3)


def buffers(model: Model, layout: Layout, overlapped: bool) -> list[Buffer]:
    """Return all buffers of the last rank.

    ``overlapped`` means that gradients are reduced during the backward pass.
    """
    made = []
    for index, chunk in enumerate(layout.split.chunks[-1]):
        found = parameters(model, layout, chunk)
        ranks = layout.dp * layout.cp
        limit = max(BUCKET_ELEMENTS, BUCKET_ELEMENTS_PER_RANK * ranks)
        if layout.pp > 1 or index or not overlapped:
            limit = sum(found.dense)
        shared = _shared_embedding(model, layout, chunk, len(found.dense))
        made.append(
            _build_buffer(layout, found.dense, _split_into_buckets(found.dense, shared, limit))
        )
        if found.experts:
            one = [list(reversed(range(len(found.experts))))]
            made.append(_build_buffer(layout, found.experts, one, experts=True))
    return made


def _shared_embedding(model: Model, layout: Layout, chunk: ModelChunk, count: int) -> int:
    """Return the index of the parameter that the first stage shares, or -1."""
    if layout.pp == 1 or chunk.embedding:
        return -1
    if chunk.mtp_layers:
        return 0
    return count - 1 if chunk.loss and model.tied_embeddings else -1


def _split_into_buckets(sizes: Sizes, shared: int, limit: int) -> list[list[int]]:
    """Return the parameters of every bucket, from last to first; a bucket ends at ``limit``
    elements."""
    cuts, held = [len(sizes)], 0
    for index in reversed(range(len(sizes))):
        held += sizes[index]
        if index in (shared, shared + 1) or held >= limit or index == 0:
            cuts, held = [*cuts, index], 0
    return [list(reversed(range(start, stop))) for stop, start in pairwise(cuts) if start < stop]


def _build_buffer(
    layout: Layout, sizes: Sizes, buckets: list[list[int]], experts: bool = False
) -> Buffer:
    """Return a buffer of ``buckets``, which only the distributed optimizer pads."""
    if not layout.zero_stage:
        return Buffer(sizes, sum(sizes), sizes, sharded=False)
    shards = layout.edp if experts else layout.dp_shard * layout.cp
    whole, parts = 0, []
    for bucket in buckets:
        length, own = _last_shard([sizes[index] for index in bucket], shards)
        whole += length
        parts += own
    return Buffer(sizes, whole, parts, sharded=True)


def _last_shard(sizes: Sizes, shards: int) -> tuple[int, Sizes]:
    """Return (elements of a bucket, elements of each parameter in its last shard)."""
    stop, spans = 0, []
    for size in sizes:
        start = round_up(stop, ALIGNED)
        stop = start + size
        spans.append((start, stop))
    whole = round_up(stop, lcm(shards, BUCKET))
    first = whole // shards * (shards - 1)
    return whole, [stop - max(start, first) for start, stop in spans if stop > first]
