"""Time of one engine step, in which some requests decode and some prefill.

A matrix multiplication takes the longer of its weight traffic and its FLOPs. Attention of decoding
requests takes the longer of its cache traffic and its FLOPs (latent attention computes more than
200 FLOPs per byte). Collectives take a latency plus bytes over the link (ring of Thakur et al.,
2005).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.counts.cache import cache_bytes_per_token, index_key_bytes
from parc.compiler.cost.counts.flops import mean_visible_keys
from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.layer_seconds import (
    RECURRENT_KERNELS,
    context_parallel_seconds,
    expert_seconds,
    recurrent_layer_seconds,
)
from parc.compiler.cost.serving.shard import KV_BYTES, WEIGHT_BYTES, mixer_weight_bytes
from parc.compiler.ir import Model
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import StepTerms

ATTENTION_KERNELS = 5
"""Kernels per attention layer under a CUDA graph: norm, 2 GEMMs, rotary and cache write,
attention."""
MLP_KERNELS = 4
"""Kernels per dense MLP: norm, 2 GEMMs, activation."""
ROUTED_KERNELS = 8
"""Additional kernels per routed layer: router, top-k, sort, combine, casts, and the grouped GEMMs
in place of the GEMMs of the MLP."""
LATENT_KERNELS = 6
"""Additional kernels per layer of latent attention: low-rank projections, the norms of these
projections, absorbed up-projections."""
QUANTIZE_KERNELS = {"fp8": 2, "nvfp4": 4}
"""Casts per pair of attention and MLP that are not fused into the preceding kernel, by weight
format."""
ADAPTER_KERNELS = 8
"""Kernels per layer with LoRA adapters: two for each of queries with keys and values, attention
output, MLP input, and MLP output (vLLM 0.33, lora/ops/triton_ops: shrink and expand)."""
STREAM_BYTES = 12
"""Bytes per token and hidden unit of norm, residual and activations of one residual block, as in
training."""


@frozen
class StepBatch:
    """Work of one data-parallel rank in one engine step.

    The numbers are means and can be fractions.
    """

    decode: float
    """Number of decoding requests."""
    context: float
    """Tokens that each decoding request attends to."""
    prefill: float = 0.0
    """Number of prompt tokens."""
    span: float = 0.0
    """Mean number of keys that a prompt token attends to."""


def engine_step_seconds(deployment: Deployment, batch: StepBatch) -> StepTerms:
    """Return the time in seconds of one engine step on one pipeline stage, by term.

    ``batch`` is the work of the step. Output projection and host work are included.
    """
    part, setup = deployment.shard, deployment.setup
    layers = part.layers
    # Speculative decoding checks all draft tokens of a request in the same step.
    verified = batch.decode * (1 + setup.draft_tokens)
    pcp = deployment.layout.pcp
    own = (verified + batch.prefill) / pcp
    linear = WEIGHT_BYTES[setup.weights]
    mlp = layers.dense * deployment.gemm_seconds(part.mlp, own, linear)
    mlp += layers.routed * expert_seconds(deployment, own)
    attention = layers.attention * _attention_seconds(deployment, batch)
    if layers.recurrent:
        attention += layers.recurrent * recurrent_layer_seconds(
            deployment, batch.decode, batch.prefill
        )
    # Only the last token of a prompt needs logits; a prompt has about 2 x span tokens.
    heads = verified + batch.prefill / max(batch.span * 2, 1.0)
    host_seconds = _host_seconds(deployment, batch.decode)
    overlaps = deployment.engine.scheduling.overlaps_host
    terms = StepTerms(
        projections=_projection_seconds(deployment, own)
        + (_adapter_seconds(deployment, own) if setup.lora is not None else 0.0),
        attention=attention,
        mlp=mlp,
        communication=_communication_seconds(deployment, own)
        + layers.attention
        * context_parallel_seconds(deployment, verified / pcp, batch.prefill / pcp),
        launch=_launch_seconds(deployment, own),
        head=deployment.gemm_seconds(part.head, heads, 2.0),
        host=0.0 if overlaps else host_seconds,
        draft=_draft_seconds(deployment, batch) if deployment.draft is not None else 0.0,
    )
    wait = host_seconds - terms.total_seconds
    return replace(terms, host=wait) if overlaps and wait > 0 else terms


def _host_seconds(deployment: Deployment, decode: float) -> float:
    """Return the seconds that the host takes to prepare a step with ``decode`` requests."""
    host = deployment.engine.scheduling
    return host.step_seconds + host.sequence_seconds * decode


def seconds_through_all_stages(deployment: Deployment, batch: StepBatch) -> StepTerms:
    """Return the time in seconds that a token needs to pass all pipeline stages, by term.

    ``batch`` is the work of one of ``deployment.ranks``, which is split equally over its
    micro-batches. All stages are assumed to take as long as the last one, which has the output
    projection.
    """
    layout, parts = deployment.layout, deployment.rank_micro_batches
    if layout.pp == 1:
        return engine_step_seconds(deployment, batch)
    share = StepBatch(batch.decode / parts, batch.context, batch.prefill / parts, batch.span)
    terms = engine_step_seconds(deployment, share)
    return terms.through_stages(layout.pp, _hop_seconds(deployment, share.decode + share.prefill))


def _hop_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the seconds in which a stage sends ``tokens`` tokens of a micro-batch to the next."""
    layout = deployment.layout
    nbytes = 2 * tokens * deployment.model.hidden
    return deployment.links.message_seconds(nbytes / layout.pcp, layout.tp * layout.pcp)


def host_floor_seconds(deployment: Deployment, decode: float) -> float:
    """Return the seconds below which the host keeps a step of ``decode`` requests on all stages.

    The result is 0 if the GPU waits during all host work, which is then a part of every step.
    """
    if not deployment.engine.scheduling.overlaps_host:
        return 0.0
    pp, share = deployment.layout.pp, decode / deployment.rank_micro_batches
    hop = _hop_seconds(deployment, share) if pp > 1 else 0.0
    return (_host_seconds(deployment, share) + hop) * pp


def _draft_seconds(deployment: Deployment, batch: StepBatch) -> float:
    """Return the seconds that the draft takes to propose the tokens of a step.

    The draft runs once per token that it proposes. Its first pass also computes the cache of the
    prompts. The host prepares all passes together with the step, so its time is not added.
    """
    draft = deployment.draft
    if draft is None:
        return 0.0
    first = engine_step_seconds(draft, batch)
    seconds = first.total_seconds - first.host
    if batch.decode and deployment.setup.draft_tokens > 1:
        later = engine_step_seconds(draft, StepBatch(batch.decode, batch.context))
        passes = deployment.setup.draft_tokens - 1
        seconds += passes * (later.total_seconds - later.host)
    return seconds


def _projection_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the time in seconds of the projections in all token mixers of a stage."""
    part = deployment.shard
    wide = mixer_weight_bytes(deployment.model, deployment.setup)
    seconds = part.layers.attention * deployment.gemm_seconds(
        part.attention.projections, tokens, wide
    )
    return seconds + part.layers.recurrent * deployment.gemm_seconds(
        part.recurrent.projections, tokens, wide
    )


def _adapter_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the seconds that LoRA adapters take to process the tokens of a step.

    Each token belongs to a request that may use another adapter. A step therefore reads the weights
    of up to ``active`` adapters, and computes both products with separate small kernels.
    """
    part, lora = deployment.shard, deployment.setup.lora
    if lora is None:
        return 0.0
    read = min(lora.active, tokens) * part.adapter * 2 / deployment.memory_bytes_per_second
    computed = 2 * tokens * part.adapter / deployment.gemm_flops_per_second(2.0)
    launched = ADAPTER_KERNELS * deployment.hardware.kernel_seconds
    return part.layers.attention * (launched + max(read, computed))


def _attention_seconds(deployment: Deployment, batch: StepBatch) -> float:
    """Return the time in seconds of the attention core of one layer in a step.

    Decoding requests read the cache. Prompts compute attention over their own tokens.
    """
    # Prefill context-parallel (pcp) ranks divide the tokens. Decode context-parallel (dcp) ranks
    # divide the cache of a request but not its FLOPs, because each rank computes the heads of all
    # dcp ranks for its part of the tokens.
    model, layout = deployment.model, deployment.layout
    context = _mean_context(model, batch.context)
    width, per_key = deployment.attention_widths
    # Every decoding request reads its whole cache once per step.
    read = batch.decode * _cache_bytes_read(deployment, batch.context)
    read /= deployment.memory_bytes_per_second
    verified = batch.decode * (1 + deployment.setup.draft_tokens)
    decode = 2 * verified * context * width / layout.tp / deployment.attention_flops_per_second
    core = 2 * batch.prefill * per_key * batch.span / layout.tp
    core = core / deployment.attention_flops_per_second + _indexer_seconds(deployment, batch)
    return (max(read, decode) + core) / layout.pcp


def prompt_attention_seconds(deployment: Deployment, tokens: float, span: float) -> float:
    """Return the attention core's part of the seconds that prompt tokens take on all stages.

    It is the part of ``seconds_through_all_stages`` that grows with ``span``, the mean number of
    keys to which one of the ``tokens`` prompt tokens attends.
    """
    # The core is linear in the tokens, so that it can be computed for all micro-batches at once.
    core = _attention_seconds(deployment, StepBatch(0.0, 0.0, tokens, span))
    return deployment.shard.layers.attention * core * deployment.micro_batches


def _cache_bytes_read(deployment: Deployment, context: float) -> float:
    """Return the bytes of keys and values that a decoding request reads in one layer on one rank.

    ``context`` is the number of cached tokens. The result is the mean over all attention layers.
    """
    model, layout = deployment.model, deployment.layout
    if not deployment.compresses_cache:
        return _mean_context(model, context, layout.dcp) * deployment.kv_bytes_per_layer
    element = KV_BYTES[deployment.setup.kv]
    return sum(
        share
        * _mean_context(one, context, layout.dcp)
        * cache_bytes_per_token(replace(one.attention, compression=None), layout.tp, element)
        for one, share in model.attention_models
    )


def _indexer_seconds(deployment: Deployment, batch: StepBatch) -> float:
    """Return the seconds that the indexer of one layer takes to score the tokens of a step.

    It reads the index keys of the whole context, of which the attention core reads only the
    selected tokens.
    """
    model, layout = deployment.model, deployment.layout
    indexer = model.attention.indexer
    if indexer is None:
        return 0.0
    # Layers that share selected keys score nothing.
    share = sum(
        part
        for one, part in model.attention_models
        if one.attention.indexer is not None and not one.attention.indexer.shared
    )
    if not share:
        return 0.0
    rates = (one.attention.compression for one, _ in model.attention_models)
    rate = next((part.rate for part in rates if part is not None), 1)
    context = batch.context / layout.dcp / rate
    read = batch.decode * context * index_key_bytes(indexer) / deployment.memory_bytes_per_second
    scored = batch.decode * (1 + deployment.setup.draft_tokens) * context
    scored += batch.prefill * batch.span / rate
    flops = 2 * indexer.heads * indexer.head_dim * scored
    return share * max(read, flops / deployment.attention_flops_per_second)


def _mean_context(model: Model, context: float, ranks: int = 1) -> float:
    """Return the number of keys that a decoding token reads on one rank, averaged over layers.

    ``context`` is the number of cached tokens. In a layer without a sliding window, each of
    ``ranks`` ranks reads an equal part of the keys. In a layer with a window, each rank reads all
    keys of the window.
    """
    if model.variants:
        shares = model.attention_models
        return sum(share * _mean_context(one, context, ranks) for one, share in shares)
    attention = model.attention
    if attention.compression is not None:
        entries = context / attention.compression.rate
        selected = attention.indexer.top_k if attention.indexer else entries
        return min(entries, selected) / ranks + min(context, attention.window or context)
    if attention.indexer is not None:
        return min(context, attention.indexer.top_k) / ranks
    if attention.window is None or attention.window >= context:
        return context / ranks
    share = 1 / attention.full_attention_every if attention.full_attention_every else 0.0
    # A request is in the middle of a chunk on average.
    window = attention.window / 2 if attention.chunked else attention.window
    return share * context / ranks + (1 - share) * window


def mean_visible_prompt_keys(model: Model, tokens: float) -> float:
    """Return the mean number of keys to which a token attends in a prompt of ``tokens`` tokens."""
    return mean_visible_keys(model, int(tokens) or 1)


def _communication_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the time in seconds of the collectives of a pipeline stage.

    Each mixer and each MLP ends with an all-reduce. If experts are distributed over several
    tensor-parallel groups, each routed MLP has two all-to-alls instead of the all-reduce.
    ``tokens`` is the number of tokens that one rank processes in a step.
    """
    layout, layers, links = deployment.layout, deployment.shard.layers, deployment.links
    nbytes = 2 * tokens * deployment.model.hidden
    reduce = links.all_reduce_seconds(nbytes, layout.tp)
    seconds = (layers.token_mixers + layers.dense) * reduce
    if layout.dp * layout.pcp == 1 or deployment.model.experts is None:
        return seconds + layers.routed * reduce
    # A token is sent to each rank that stores a part of one of its experts.
    group = layout.tp * layout.pcp * layout.dp
    # The top-k experts of a token are on at most ep different ranks.
    visits = min(layout.ranks_per_expert * min(deployment.model.experts.top_k, layout.ep), group)
    exchange = 2 * links.all_to_all_seconds(nbytes / layout.tp * visits, group)
    return seconds + layers.routed * exchange


def _launch_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the time in seconds of kernel overhead and element-wise kernels of a pipeline stage.

    ``tokens`` is the number of tokens that one rank processes in a step.
    """
    layers, model = deployment.shard.layers, deployment.model
    kernels = layers.attention * ATTENTION_KERNELS + layers.recurrent * RECURRENT_KERNELS
    kernels += (layers.dense + layers.routed) * MLP_KERNELS + layers.routed * ROUTED_KERNELS
    if model.attention.latent is not None:
        kernels += layers.attention * LATENT_KERNELS
    blocks = layers.residual_block_count
    kernels += blocks / 2 * QUANTIZE_KERNELS.get(deployment.setup.weights, 0)
    moved = blocks * STREAM_BYTES * tokens * model.hidden
    stream = moved / deployment.memory_bytes_per_second
    # The small kernels of a routed layer leave the GPU idle between them.
    gaps = layers.routed * deployment.engine.scheduling.routed_layer_seconds
    return kernels * deployment.hardware.kernel_seconds + gaps + stream
