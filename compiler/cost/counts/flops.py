"""Floating-point operations (FLOPs) of a decoder-only model; a multiply-add counts as 2.

Formulas: Narayanan et al. 2021 (arXiv:2104.04473), eq. 3, extended to grouped-query attention,
gated MLPs, experts and latent attention. Causal attention counts half, as in Megatron-LM. Linear
attention and Mamba layers are counted as in Megatron-LM (training.py,
num_floating_point_operations): scans count the operations of the recurrence, not of its chunks.
"""

from __future__ import annotations

from collections import Counter

from parc.compiler.cost.counts.adapters import adapter_params
from parc.compiler.cost.counts.params import indexer_params, low_rank_projection_weights
from parc.compiler.ir import (
    Convolution,
    LayerKind,
    LinearAttention,
    LoraAdapters,
    Mamba,
    Model,
    Problem,
)
from parc.compiler.ir.frozen import frozen

CAUSAL = 0.5
"""Share of the attention matrix that is not masked by causal attention."""


@frozen
class LayerFlops:
    """Forward FLOPs of one layer over a number of tokens, by part of the layer."""

    attention_projections: float
    """Projections of the token mixer."""
    attention_core: float
    """Attention core, delta rule or scan."""
    mlp: float
    """Dense MLP, or the shared experts of a routed layer. By convention, the router is not
    counted."""
    experts: float
    """Routed experts: each token is processed by its top-k experts."""

    @property
    def total(self) -> float:
        """Return the forward FLOPs of the whole layer."""
        return self.attention_projections + self.attention_core + self.mlp + self.experts


def projection_weights(model: Model) -> int:
    """Return the number of weights in the attention projections of one layer.

    Each weight costs 2 FLOPs per token.
    """
    attention = model.attention
    latent = attention.latent
    gate = model.hidden * attention.heads if attention.head_gate else 0
    if latent is None:
        queries = attention.query_projection_heads * attention.head_dim
        outputs = attention.heads * attention.value_width
        keys = model.hidden * attention.key_value_projection_width
        if (part := attention.compression) is not None:
            keys += part.parameters(model.hidden, attention.kv_heads * attention.cached_width, 0)
        if attention.low_rank is not None:
            return gate + keys + sum(low_rank_projection_weights(model, attention.low_rank))
        return gate + keys + model.hidden * (queries + outputs)
    query_dim = attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim)
    query = model.hidden * query_dim
    if latent.q_lora_rank:
        query = latent.q_lora_rank * (model.hidden + query_dim)
    keys = model.hidden * (latent.kv_lora_rank + latent.qk_rope_dim)
    keys += latent.kv_lora_rank * attention.heads * (latent.qk_nope_dim + latent.v_dim)
    return gate + query + keys + attention.heads * latent.v_dim * model.hidden


def query_and_value_width(model: Model) -> int:
    """Return the width of a query plus the width of a value, summed over all attention heads.

    A token that attends to s keys costs 2 x s x this width FLOPs in the attention core.
    """
    attention = model.attention
    if attention.latent is None:
        return attention.heads * (attention.head_dim + attention.value_width)
    latent = attention.latent
    return attention.heads * (latent.qk_nope_dim + latent.qk_rope_dim + latent.v_dim)


def mean_keys_in_window(window: int, sequence: int) -> float:
    """Return the mean number of keys of a query that attends to at most ``window`` keys."""
    if window >= sequence:
        return CAUSAL * sequence
    # Queries attend to min(position, window) keys; this is the mean over all positions.
    return window * (1 - window / (2 * sequence))


def mean_visible_keys(model: Model, sequence: int) -> float:
    """Return the mean number of keys that a query attends to.

    The mean is over all positions of a sequence of ``sequence`` tokens and over all attention
    layers.
    """
    if model.variants:
        shares = model.attention_models
        return sum(share * mean_visible_keys(one, sequence) for one, share in shares)
    attention = model.attention
    entries = sequence if attention.compression is None else sequence // attention.compression.rate
    full = CAUSAL * entries
    if attention.indexer is not None:
        full = mean_keys_in_window(attention.indexer.top_k, entries)
    if attention.compression is not None:
        return full + mean_keys_in_window(attention.window or sequence, sequence)
    if attention.window is None or attention.window >= sequence:
        return full
    windowed = mean_keys_in_window(attention.window, sequence)
    if attention.chunked:
        windowed = CAUSAL * attention.window
    # Every n-th layer attends to all tokens; without such layers the share is 0.
    share = 1 / attention.full_attention_every if attention.full_attention_every else 0.0
    return share * full + (1 - share) * windowed


def layer_flops(model: Model, kind: LayerKind, tokens: float, sequence: int) -> LayerFlops:
    """Return the forward FLOPs of one layer of type ``kind`` for ``tokens`` tokens.

    ``sequence`` is the number of tokens per sequence.
    """
    matrices = 3 if model.ffn.gated else 2
    model = model.with_shapes_of(kind)
    projections, core = (tokens * flops for flops in _mixer_flops(model, kind, sequence))
    experts = model.experts
    if not kind.routed or experts is None:
        width = model.ffn.size if kind.mlp == "dense" else 0
        return LayerFlops(projections, core, 2 * tokens * model.hidden * matrices * width, 0)
    shared = 2 * tokens * model.hidden * (matrices * experts.shared_size + 2 * experts.latent_size)
    routed_flops = 2 * tokens * model.expert_input_width * matrices * experts.size * experts.top_k
    return LayerFlops(projections, core, shared, routed_flops)


def _mixer_flops(model: Model, kind: LayerKind, sequence: int) -> tuple[float, float]:
    """Return (FLOPs of the projections, FLOPs of the core) of a token mixer in the forward pass.

    The FLOPs are per token. ``sequence`` is the number of tokens per sequence.
    """
    # Two FLOPs per weight and token, and two per element of the core and visible key.
    extra = 2 * multiplied_extra_weights(model, kind)
    core: float = 0.0
    if kind.attends:
        core = 2 * query_and_value_width(model) * mean_visible_keys(model, sequence)
        core += _indexer_flops(model, sequence)
        extra += 2 * projection_weights(model)
    part = model.recurrent_mixer(kind)
    if part is None:
        return extra, core
    projections, scan = _recurrence_flops(model.hidden, part)
    return extra + projections, core + scan


def _recurrence_flops(
    hidden: int, part: LinearAttention | Mamba | Convolution
) -> tuple[float, float]:
    """Return (FLOPs of the projections, FLOPs of the recurrence) of one layer per token."""
    projections = 2 * hidden * (part.input_projection_width + part.inner_width)
    if isinstance(part, Mamba):
        projections += 2 * sum(rows * columns for rows, columns in part.step_projections)
        # Operations of the Mamba scan as Megatron-LM counts them: 7 per element of the state.
        return projections, 7 * part.inner_width * part.state_size
    convolution = 2 * part.conv_size * part.conv_channels
    if isinstance(part, Convolution):
        # One product per channel for each of the two gates.
        return projections, convolution + 2 * part.inner_width
    projections += 2 * part.gate_weights
    if part.kind == "lightning":
        # Two products per element of the state: keys times values, and queries times state.
        return projections, 4 * part.value_heads * part.key_dim * part.value_dim
    # The delta rule as Megatron-LM counts it: 4 products of 2 FLOPs per element of a state of
    # value_dim x value_dim.
    return projections, convolution + 8 * part.value_heads * part.value_dim**2


def multiplied_extra_weights(model: Model, kind: LayerKind) -> int:
    """Return the number of extra weights of one layer that multiply each token."""
    places = model.parts_of(kind)
    return sum(one.parameters for one in model.extra_weights if one.multiplied and one.at in places)


def _indexer_flops(model: Model, sequence: int) -> float:
    """Return the forward FLOPs per token of a layer's indexer: projections and index scores."""
    indexer = model.attention.indexer
    if indexer is None or indexer.shared:
        return 0.0
    # The indexer scores all earlier tokens or compressed entries, not only those that it selects.
    compression = model.attention.compression
    entries = sequence if compression is None else sequence // compression.rate
    scores = indexer.heads * indexer.head_dim * CAUSAL * entries
    return 2 * (indexer_params(model, indexer) + scores)


def output_projection_flops(model: Model, tokens: float) -> float:
    """Return the forward FLOPs of the output projection to the vocabulary for ``tokens`` tokens."""
    return 2 * tokens * model.hidden * model.vocab


def mtp_flops(model: Model, tokens: float, sequence: int) -> float:
    """Return the forward FLOPs of one multi-token-prediction layer for ``tokens`` tokens.

    The layer consists of a decoder layer, a projection from 2 x hidden to hidden, and the output
    projection.
    """
    layer = layer_flops(model, model.last_kind, tokens, sequence).total
    return layer + 4 * tokens * model.hidden**2 + output_projection_flops(model, tokens)


def step_flops(problem: Problem) -> float:
    """Return the FLOPs of one training step over the global batch.

    Recomputed activations are not counted.
    """
    sequence, lora = problem.job.sequence_length, problem.job.lora
    tokens = problem.job.global_batch * sequence
    if lora is None:
        return model_flops(problem.model, tokens, sequence)
    return _adapter_step_flops(problem.model, lora, tokens, sequence)


def _adapter_step_flops(model: Model, lora: LoraAdapters, tokens: float, sequence: int) -> float:
    """Return the FLOPs of a training step that trains only LoRA adapters.

    Frozen weights need two products, the output and the gradient of the input; adapters and the
    attention core need those of ``model_flops``. MTP layers are not part of such jobs.
    """
    flops = 2 * output_projection_flops(model, tokens)
    for kind, count in Counter(model.layer_kinds).items():
        layer = layer_flops(model, kind, tokens, sequence)
        adapters = 2 * tokens * adapter_params(model, kind, lora)
        frozen = layer.total - layer.attention_core
        flops += count * (2 * frozen + 3 * (layer.attention_core + adapters))
    return flops


def model_flops_utilization(problem: Problem, seconds: float, world: int) -> float:
    """Return the model FLOPs utilization (MFU, a fraction) of a training step on ``world`` GPUs.

    ``seconds`` is the time of the step. MFU is relative to the dense peak of the GPUs at the job's
    precision. If the data sheet has no peak at this precision, the 16-bit peak is used.
    """
    gpu = problem.cluster.gpu
    peak = (
        gpu.peak_rate(problem.job.precision)
        or gpu.peak_rate("bf16")
        or gpu.peak_rate("fp16")
        or 1.0
    )
    return step_flops(problem) / (seconds * world * peak * 1e12)


def model_flops(model: Model, tokens: float, sequence: int) -> float:
    """Return the FLOPs of a training step over ``tokens`` tokens.

    The result is 3 x the FLOPs of the forward pass. Recomputed activations are not counted.
    ``sequence`` is the number of tokens per sequence.
    """
    kinds = Counter(model.layer_kinds)
    forward = sum(
        kinds[kind] * layer_flops(model, kind, tokens, sequence).total for kind in model.kinds
    )
    forward += output_projection_flops(model, tokens) + model.mtp_layers * mtp_flops(
        model, tokens, sequence
    )
    # The backward pass computes two products per forward product: the gradients of input and
    # weight.
    return 3 * forward
