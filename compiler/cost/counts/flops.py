"""Floating-point operations, 2 a multiply-add, of one decoder-only model.

Formulas: Narayanan et al. 2021 (arXiv:2104.04473) eq. 3, with grouped-query attention, gated
MLPs, experts and latent attention; causal attention counts half (Megatron-LM's convention).
Linear attention and Mamba layers as Megatron-LM counts them (training.py, num_floating_point_
operations): their scans by what a recurrence would multiply, not by what chunks do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from parc.compiler.ir import LayerKind, Mamba, Model, Problem

CAUSAL = 0.5
"""Share of the attention matrix that a causal mask keeps."""


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """Forward FLOPs of one layer over a token count."""

    attention_projections: float
    """Projections of the mixer, whatever its kind."""
    attention_core: float
    """Attention core, delta rule or scan."""
    mlp: float
    """Dense MLP, or the shared experts of a routed layer; the router is left out by convention."""
    experts: float
    """Routed experts, at top-k."""

    @property
    def total(self) -> float:
        """All parts."""
        return self.attention_projections + self.attention_core + self.mlp + self.experts


def projection_weights(model: Model) -> int:
    """Weights of the attention projections that a token multiplies with."""
    attention = model.attention
    latent = attention.latent
    if latent is None:
        heads = attention.projected_heads + attention.heads + 2 * attention.kv_heads
        return model.hidden * heads * attention.head_dim
    query_dim = attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim)
    query = model.hidden * query_dim
    if latent.q_lora_rank:
        query = latent.q_lora_rank * (model.hidden + query_dim)
    keys = model.hidden * (latent.kv_lora_rank + latent.qk_rope_dim)
    keys += latent.kv_lora_rank * attention.heads * (latent.qk_nope_dim + latent.v_dim)
    return query + keys + attention.heads * latent.v_dim * model.hidden


def core_width(model: Model) -> int:
    """Sum over heads of query and value width: the core costs 2 s of it a token."""
    attention = model.attention
    if attention.latent is None:
        return 2 * attention.heads * attention.head_dim
    latent = attention.latent
    return attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim)


def mean_span(model: Model, sequence: int) -> float:
    """Keys that a query sees, averaged over the sequence and over windowed and full layers."""
    attention = model.attention
    full = CAUSAL * sequence
    if attention.window is None or attention.window >= sequence:
        return full
    windowed = attention.window * (1 - attention.window / (2 * sequence))
    share = 1 / attention.full_attention_every if attention.full_attention_every else 0.0
    return share * full + (1 - share) * windowed


def layer_flops(model: Model, kind: LayerKind, tokens: float, sequence: int) -> LayerFlops:
    """Forward FLOPs of one layer over ``tokens`` tokens of sequences ``sequence`` long."""
    matrices = 3 if model.ffn.gated else 2
    projections, core = (tokens * flops for flops in _mixer_flops(model, kind, sequence))
    experts = model.experts
    if not kind.routed or experts is None:
        width = model.ffn.size if kind.mlp == "dense" else 0
        return LayerFlops(projections, core, 2 * tokens * model.hidden * matrices * width, 0)
    shared = 2 * tokens * model.hidden * matrices * experts.shared_size
    routed_flops = 2 * tokens * model.hidden * matrices * experts.size * experts.top_k
    return LayerFlops(projections, core, shared, routed_flops)


def _mixer_flops(model: Model, kind: LayerKind, sequence: int) -> tuple[float, float]:
    """(projections, core) of what mixes tokens in a layer of ``kind``, a token."""
    if kind.mixer == "attention":
        core = 2 * core_width(model) * mean_span(model, sequence)
        return 2 * projection_weights(model), core
    part = model.recurrent(kind)
    if part is None:
        return 0.0, 0.0
    projections = 2 * model.hidden * (part.projected + part.inner)
    if isinstance(part, Mamba):
        return projections, 7 * part.inner * part.state_size
    convolution = 2 * part.conv_size * part.conv_channels
    return projections, convolution + 8 * part.value_heads * part.value_dim**2


def head_flops(model: Model, tokens: float) -> float:
    """Forward FLOPs of the output projection."""
    return 2 * tokens * model.hidden * model.vocab


def mtp_flops(model: Model, tokens: float, sequence: int) -> float:
    """Forward FLOPs of one multi-token-prediction layer: a layer, its 2h->h projection, a head."""
    layer = layer_flops(model, model.last_kind, tokens, sequence).total
    return layer + 4 * tokens * model.hidden**2 + head_flops(model, tokens)


def step_flops(problem: Problem) -> float:
    """FLOPs of one optimizer step of the whole job."""
    sequence = problem.job.sequence_length
    return model_flops(problem.model, problem.job.global_batch * sequence, sequence)


def utilization(problem: Problem, seconds: float, world: int) -> float:
    """Model FLOPs utilization of a step on ``world`` GPUs, over the dense peak of the precision.

    Where the GPU has no peak at that precision, over its 16-bit peak.
    """
    gpu = problem.cluster.gpu
    peak = gpu.peak(problem.job.precision) or gpu.peak("bf16") or gpu.peak("fp16") or 1.0
    return step_flops(problem) / (seconds * world * peak * 1e12)


def model_flops(model: Model, tokens: float, sequence: int) -> float:
    """FLOPs of a training step over ``tokens`` tokens: 3 x forward, no recompute."""
    kinds = Counter(model.layer_kinds)
    forward = sum(
        kinds[kind] * layer_flops(model, kind, tokens, sequence).total for kind in model.kinds
    )
    forward += head_flops(model, tokens) + model.mtp_layers * mtp_flops(model, tokens, sequence)
    return 3 * forward
