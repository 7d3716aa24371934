"""Seconds of one engine step: some requests decode, some prefill, on one rank of each kind.

Every matrix multiplication is the larger of its weight traffic and its FLOPs; attention of the
decoding requests is the larger of its cache traffic and its FLOPs (latent attention computes more
than 200 FLOPs a byte); collectives are a latency and bytes over the link (Thakur et al. 2005 ring).
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.counts.flops import core_width, mean_span
from parc.compiler.cost.serving.constants import WEIGHT_BYTES
from parc.compiler.cost.serving.context import context_seconds
from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.experts import routed_seconds
from parc.compiler.cost.serving.memory import kv_bytes_per_layer
from parc.compiler.cost.serving.recurrence import RECURRENT_KERNELS, recurrent_seconds
from parc.compiler.cost.serving.shard import mixer_weight_bytes
from parc.compiler.ir import Model
from parc.compiler.ir.serving import StepTerms

ATTENTION_KERNELS = 5
"""Kernels of attention under a CUDA graph: norm, 2 GEMMs, rotary and cache write, attention."""
MLP_KERNELS = 4
"""Kernels of a dense MLP: norm, 2 GEMMs, activation."""
ROUTED_KERNELS = 8
"""What routing adds to them: router, top-k, sort, 2 grouped GEMMs for 2, combine, and the casts."""
LATENT_KERNELS = 6
"""What latent attention adds: low-rank projections, their norms, absorbed up-projections."""
QUANTISE_KERNELS = {"fp8": 2, "nvfp4": 4}
"""Casts of an attention and an MLP that are not fused into the kernel before."""
STREAM_BYTES = 12
"""Bytes a token and hidden unit of norm, residual and activations of half a layer (as in
training)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one DP rank does in one step; numbers are means and need not be whole."""

    decode: float
    """Requests that decode."""
    context: float
    """Tokens that each of them attends to."""
    prefill: float = 0.0
    """Prompt tokens."""
    span: float = 0.0
    """Keys that a prompt token sees, on average."""


def step_terms(deployment: Deployment, batch: Batch) -> StepTerms:
    """One pass of ``batch`` through one pipeline stage, head and host included."""
    part, setup = deployment.shard, deployment.setup
    layers = part.layers
    verified = batch.decode * (1 + setup.draft_tokens)
    pcp = deployment.layout.pcp
    own = (verified + batch.prefill) / pcp
    linear = WEIGHT_BYTES[setup.weights]
    mlp = layers.dense * deployment.gemm_seconds(part.mlp, own, linear)
    mlp += layers.routed * routed_seconds(deployment, own)
    heads = verified + batch.prefill / max(batch.span * 2, 1.0)
    engine = deployment.engine
    return StepTerms(
        projections=_projection_seconds(deployment, own),
        attention=layers.attention * _attention_seconds(deployment, batch)
        + layers.recurrent * recurrent_seconds(deployment, batch.decode, batch.prefill),
        mlp=mlp,
        communication=_communication_seconds(deployment, own)
        + layers.attention * context_seconds(deployment, verified / pcp, batch.prefill / pcp),
        launch=_launch_seconds(deployment, own),
        head=deployment.gemm_seconds(part.head, heads, 2.0),
        host=engine.step_seconds + engine.sequence_seconds * batch.decode,
    )


def _projection_seconds(deployment: Deployment, tokens: float) -> float:
    """Projections of the mixers of a stage."""
    part = deployment.shard
    wide = mixer_weight_bytes(deployment.model, deployment.setup)
    seconds = part.layers.attention * deployment.gemm_seconds(
        part.attention.projections, tokens, wide
    )
    return seconds + part.layers.recurrent * deployment.gemm_seconds(
        part.recurrent.projections, tokens, wide
    )


def _attention_seconds(deployment: Deployment, batch: Batch) -> float:
    """Attention of one layer: the cache of the decoding requests, the core of the prompts.

    Ranks of pcp share the tokens. Ranks of dcp share a request's cache, not its FLOPs: each has
    the heads of all of them and a share of the tokens.
    """
    model, layout = deployment.model, deployment.layout
    attention = model.attention
    context = _mean_context(model, batch.context)
    kv = kv_bytes_per_layer(model, layout.tp, deployment.setup)
    read = batch.decode * _mean_context(model, batch.context, layout.dcp) * kv
    read /= deployment.memory_rate
    width = 2 * attention.heads * attention.head_dim
    if attention.latent is not None:  # absorbed: scores over the latent, values are the latent
        latent = attention.latent
        width = attention.heads * (2 * latent.kv_lora_rank + latent.qk_rope_dim)
    verified = batch.decode * (1 + deployment.setup.draft_tokens)
    decode = 2 * verified * context * width / layout.tp / deployment.attention_rate
    core = 2 * batch.prefill * core_width(model) * batch.span / layout.tp
    return (max(read, decode) + core / deployment.attention_rate) / layout.pcp


def _mean_context(model: Model, context: float, ranks: int = 1) -> float:
    """Keys that a decoding token reads on one of ``ranks``, averaged over layers.

    The ranks share the keys of full layers; each reads all of a window.
    """
    attention = model.attention
    if attention.window is None or attention.window >= context:
        return context / ranks
    share = 1 / attention.full_attention_every if attention.full_attention_every else 0.0
    return share * context / ranks + (1 - share) * attention.window


def prompt_span(model: Model, tokens: float) -> float:
    """Keys that a token of a prompt of ``tokens`` sees, on average."""
    return mean_span(model, int(tokens) or 1)


def _communication_seconds(deployment: Deployment, tokens: float) -> float:
    """Collectives of a stage: one after each mixer, one after the MLP or the experts.

    ``tokens``: those of one rank's share of a step.
    """
    layout, layers, links = deployment.layout, deployment.shard.layers, deployment.links
    nbytes = 2 * tokens * deployment.model.hidden
    reduce = links.all_reduce_seconds(nbytes, layout.tp)
    seconds = (layers.mixers + layers.dense) * reduce
    if layout.dp * layout.pcp == 1 or deployment.model.experts is None:
        return seconds + layers.routed * reduce
    # A token visits the ranks that hold a part of one of its experts.
    group = layout.tp * layout.pcp * layout.dp
    visits = min(layout.expert_tp * min(deployment.model.experts.top_k, layout.ep), group)
    exchange = 2 * links.all_to_all_seconds(nbytes / layout.tp * visits, group)
    return seconds + layers.routed * exchange


def _launch_seconds(deployment: Deployment, tokens: float) -> float:
    """Fixed cost of the kernels of a stage, and the traffic of those that only stream."""
    layers, model = deployment.shard.layers, deployment.model
    kernels = layers.attention * ATTENTION_KERNELS + layers.recurrent * RECURRENT_KERNELS
    kernels += (layers.dense + layers.routed) * MLP_KERNELS + layers.routed * ROUTED_KERNELS
    if model.attention.latent is not None:
        kernels += layers.attention * LATENT_KERNELS
    kernels += layers.halves / 2 * QUANTISE_KERNELS.get(deployment.setup.weights, 0)
    stream = layers.halves * STREAM_BYTES * tokens * model.hidden / deployment.memory_rate
    gaps = layers.routed * deployment.engine.routed_seconds
    return kernels * deployment.hardware.kernel_seconds + gaps + stream
