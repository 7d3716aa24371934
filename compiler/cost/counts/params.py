"""Exact parameter counts, of the whole model and per rank; all results are integers.

Formulas: grouped-query attention (arXiv:2305.13245), latent attention (arXiv:2405.04434),
GShard-style experts (arXiv:2006.16668). Sharding follows the modules of Megatron-Core 0.19:
column-parallel layers split weight and bias; row-parallel layers split only the weight; norms, the
router and the low-rank down-projections of latent attention are not split.
"""

from __future__ import annotations

from collections import Counter

from parc.compiler.ir.model import DENSE, FeedForward, LayerKind, Model
from parc.compiler.ir.token_mixers import (
    Attention,
    Convolution,
    Indexer,
    LatentAttention,
    LinearAttention,
    LowRank,
    Mamba,
)


def norm_params(model: Model, width: int) -> int:
    """Return the number of parameters of one norm over vectors of ``width`` elements.

    RMSNorm has a weight, LayerNorm a weight and a bias.
    """
    if not model.norm_weights:
        return 0
    return width if model.norm == "rmsnorm" else 2 * width


def norm_params_per_layer(model: Model, kind: LayerKind = DENSE) -> int:
    """Return the number of norm parameters of one layer, without the norms inside attention."""
    # ``norms_per_layer`` counts a layer with two parts (mixer and MLP); some layer types have only
    # one.
    return model.norms_per_layer * kind.sub_layers // 2 * norm_params(model, model.hidden)


def final_norm_params(model: Model) -> int:
    """Return the number of parameters of the norm after the last layer.

    The result is 0 if the model has no such norm.
    """
    return norm_params(model, model.hidden) if model.final_norm else 0


def embedding_params(model: Model, vocab: int = 0) -> int:
    """Return the number of parameters of the input embedding.

    ``vocab`` is the size of the padded vocabulary; 0 means the vocabulary of the model.
    """
    return (vocab or model.vocab) * model.hidden


def position_table_params(model: Model) -> int:
    """Return the number of parameters of the table of learned positions.

    The result is 0 if positions are not learned.

    Megatron stores the whole table on every tensor-parallel rank of the first pipeline stage.
    """
    return model.position.max_positions * model.hidden if model.position.kind == "learned" else 0


def output_projection_params(model: Model, vocab: int = 0) -> int:
    """Return the number of parameters of the output projection to the vocabulary.

    The result is 0 if the output projection is tied to the input embedding. ``vocab`` is the size
    of the padded vocabulary; 0 means the vocabulary of the model.
    """
    return 0 if model.tied_embeddings else embedding_params(model, vocab)


def extra_params(model: Model, at: str) -> int:
    """Return the number of parameters of extra weights at ``at``, an ``ExtraWeights.at``."""
    return sum(extra.parameters for extra in model.extra_weights if extra.at == at)


def extra_layer_params(model: Model, kind: LayerKind) -> int:
    """Return the number of parameters of extra weights in one layer; no rank splits them."""
    return sum(extra_params(model, at) for at in model.parts_of(kind))


def indexer_params(model: Model, indexer: Indexer) -> int:
    """Return the number of parameters of the indexer in one layer; no rank splits them.

    They are the query projection, the key projection with a LayerNorm, and the projection to one
    weight per head (transformers, modeling_deepseek_v32.py). In layers with compressed keys, the
    index keys are compressed like them, instead of the key projection (modeling_deepseek_v4.py).
    """
    if indexer.shared:
        return 0
    attention, width = model.attention, indexer.head_dim
    latent, low_rank = attention.latent, attention.low_rank
    rank = latent.q_lora_rank if latent else low_rank.queries if low_rank else None
    queries = (rank or model.hidden) * indexer.heads * width
    weights = model.hidden * indexer.heads if indexer.head_weights else 0
    if attention.compression is None:
        return queries + weights + model.hidden * width + 2 * width
    keys = attention.compression.parameters(model.hidden, width, norm_params(model, width))
    return queries + weights + keys


def attention_params(model: Model, tp: int = 1) -> int:
    """Return the number of attention parameters of one layer on one of ``tp`` ranks."""
    attention = model.attention
    more = indexer_params(model, attention.indexer) if attention.indexer else 0
    more += model.hidden * attention.heads // tp if attention.head_gate else 0
    if attention.latent is not None:
        return more + _latent_attention_params(model, attention.latent, tp)
    outputs = attention.heads * attention.value_width
    # If tp > kv_heads, Megatron splits the fused weight evenly and gathers its output, so that no
    # weight is repeated (SelfAttention.linear_qkv: query + 2 x key-value rows, over tp).
    queries = attention.query_projection_heads * attention.head_dim
    fused = (queries + attention.key_value_projection_width) // tp
    weights = model.hidden * fused + outputs // tp * model.hidden
    if attention.low_rank is not None:
        ranks = low_rank_projection_weights(model, attention.low_rank)
        weights = sum(ranks) + model.hidden * attention.key_value_projection_width
        more += norm_params(model, attention.low_rank.queries)
    if attention.compression is not None:
        width = attention.kv_heads * attention.cached_width
        norm = norm_params(model, width)
        more += attention.compression.parameters(model.hidden, width, norm)
    biases = fused * attention.qkv_bias + model.hidden * attention.output_bias
    sinks = attention.heads // tp if attention.sinks else 0
    return weights + biases + sinks + more + _qk_norm_params(model, attention, tp)


def low_rank_projection_weights(model: Model, ranks: LowRank) -> tuple[int, int]:
    """Return the numbers of weights of the low-rank query and output projections of one layer.

    The first product of the output projection joins the heads of one group only (transformers 5.23,
    modeling_deepseek_v4.py, DeepseekV4GroupedLinear). No rank splits them, because no framework
    with tensor parallelism supports them.
    """
    attention = model.attention
    queries = ranks.queries * (model.hidden + attention.heads * attention.head_dim)
    inputs = attention.heads * attention.value_width
    return queries, ranks.output * (inputs + ranks.output_groups * model.hidden)


def mixer_params(model: Model, kind: LayerKind, tp: int = 1) -> int:
    """Return the number of parameters of a layer's token mixer on one of ``tp`` ranks.

    The norm before the token mixer is not counted.
    """
    attention = attention_params(model, tp) if kind.attends else 0
    part = model.recurrent_mixer(kind)
    if isinstance(part, LinearAttention):
        shards = tp if part.kind == "lightning" else 1  # its norm covers the heads of all ranks
        norm = norm_params(model, part.norm_width) // shards
        return attention + _linear_attention_params(model.hidden, part, tp) + norm
    if isinstance(part, Convolution):
        return attention + _convolution_params(model.hidden, part, tp)
    return attention + (0 if part is None else _mamba_params(model.hidden, part, tp))


def _linear_attention_params(hidden: int, linear: LinearAttention, tp: int) -> int:
    """Return the number of parameters of one linear-attention mixer on one of ``tp`` ranks.

    They are the weights of the projections and of the convolution, and the parameters of the decay.
    The norm of the outputs is not counted.
    """
    # Projections and convolution have no bias (Megatron-Core 0.19, ssm/gated_delta_net;
    # transformers 5.20, modeling_kimi_linear.py and modeling_minimax.py).
    convolution = linear.conv_channels * linear.conv_size
    projections = hidden * (linear.input_projection_width + linear.inner_width)
    projections += linear.gate_weights
    return (projections + convolution + linear.decay_parameters) // tp


def _convolution_params(hidden: int, part: Convolution, tp: int) -> int:
    """Return the number of parameters of one short convolution on one of ``tp`` ranks.

    They are the weights of the two projections and of the convolution, and their biases
    (transformers 5.20, modeling_lfm2.py, Lfm2ShortConv).
    """
    columns = part.input_projection_width
    split = hidden * (columns + part.inner_width) + part.conv_channels * part.conv_size
    biases = (columns + part.conv_channels) // tp + hidden if part.bias else 0
    return split // tp + biases


def _mamba_params(hidden: int, mamba: Mamba, tp: int) -> int:
    """Return the number of parameters of one Mamba mixer on one of ``tp`` ranks.

    They are the weights of the projections, of the convolution with its bias and of the inner norm,
    and decays, step sizes and skip weights (Megatron-Core 0.19, ssm/mamba_mixer.py; transformers
    5.23, modeling_jamba.py).
    """
    convolution = mamba.conv_channels * (mamba.conv_size + 1)
    projections = hidden * (mamba.input_projection_width + mamba.inner_width)
    projections += sum(rows * columns for rows, columns in mamba.step_projections)
    return (projections + convolution + mamba.small_parameters) // tp


def _qk_norm_params(model: Model, attention: Attention, tp: int) -> int:
    """Return the number of parameters of one layer's query and key norms on one of ``tp`` ranks.

    If each head is normalized separately, all heads and ranks have the same weights. If all heads
    are normalized together, the weights are split over tp.
    """
    if attention.qk_norm == "none":
        return 0
    if attention.qk_norm == "head":
        return (1 if attention.shared_kv else 2) * norm_params(model, attention.head_dim)
    # At least one key-value head is on every rank, even if tp exceeds their number.
    heads = attention.heads // tp + max(attention.kv_heads // tp, 1)
    return norm_params(model, heads * attention.head_dim)


def _latent_attention_params(model: Model, latent: LatentAttention, tp: int) -> int:
    """Return the number of parameters of latent attention in one layer on one of ``tp`` ranks.

    Up-projections and the output projection are split over tp. Every rank has the whole
    down-projections and norms.
    """
    heads = model.attention.heads // tp
    query_dim = latent.qk_nope_dim + latent.qk_rope_dim
    query_rank = latent.q_lora_rank or 0
    query_input = latent.q_lora_rank or model.hidden
    whole = model.hidden * (query_rank + latent.kv_lora_rank + latent.qk_rope_dim)
    if query_rank:
        whole += norm_params(model, query_rank)
    whole += norm_params(model, latent.kv_lora_rank)
    key_value = latent.kv_lora_rank * (latent.qk_nope_dim + latent.v_dim)
    return whole + heads * (query_input * query_dim + key_value + latent.v_dim * model.hidden)


def mlp_params(hidden: int, size: int, ffn: FeedForward, *, bias: bool, tp: int = 1) -> int:
    """Return the number of parameters of one MLP on one of ``tp`` ranks.

    ``hidden`` is the width of the MLP's input and output, ``size`` its inner width.
    """
    inner = size // tp
    # A gated MLP has two input projections, stored as one weight.
    columns = 2 * inner if ffn.gated else inner
    return hidden * (columns + inner) + (columns + hidden if bias else 0)


def dense_mlp_params(model: Model, tp: int = 1) -> int:
    """Return the number of MLP parameters of one dense layer on one of ``tp`` ranks."""
    return mlp_params(model.hidden, model.ffn.size, model.ffn, bias=model.ffn.bias, tp=tp)


def expert_params(model: Model, etp: int = 1) -> int:
    """Return the number of parameters of one routed expert on one of ``etp`` ranks.

    The result is 0 if the model has no experts. ``etp`` is the tensor-parallel size of experts.
    """
    if model.experts is None:
        return 0
    width, experts = model.expert_input_width, model.experts
    return mlp_params(width, experts.size, model.ffn, bias=experts.bias, tp=etp)


def expert_projection_params(model: Model) -> int:
    """Return the number of parameters that project one layer's tokens to and from the experts.

    The result is 0 unless the experts work on a latent width.
    """
    return 2 * model.hidden * model.experts.latent_size if model.experts else 0


def shared_expert_params(model: Model, tp: int = 1) -> int:
    """Return the number of parameters of a layer's shared experts on one of ``tp`` ranks.

    The gate of the shared experts is included. The result is 0 if the model has no shared experts.
    """
    experts = model.experts
    if experts is None or not experts.shared_size:
        return 0
    width = experts.shared_size
    body = mlp_params(model.hidden, width, model.ffn, bias=experts.bias, tp=tp)
    return body + (model.hidden if experts.shared_gate else 0)


def router_params(model: Model) -> int:
    """Return the number of parameters of the router of one layer.

    The result is 0 if the model has no experts. A router bias is counted only if it is a trained
    parameter; some models store the bias as a buffer.
    """
    experts = model.experts
    if experts is None:
        return 0
    return experts.count * (model.hidden + (experts.router_bias == "parameter"))


def layer_params_on_rank(model: Model, layer: int, tp: int, etp: int, ep: int) -> tuple[int, int]:
    """Return (number of dense parameters, number of routed-expert parameters) of a layer on a rank.

    ``layer`` is the index of the layer. All parameters outside routed experts count as dense.
    Gradients of dense and of routed-expert parameters are reduced over different process groups.
    The parallel sizes must divide the model dimensions that they split.
    """
    return layer_kind_params_on_rank(model, model.layer_kinds[layer], (tp, etp, ep))


def layer_kind_params_on_rank(
    model: Model, kind: LayerKind, degrees: tuple[int, int, int]
) -> tuple[int, int]:
    """Return (number of dense parameters, number of routed-expert parameters) of a layer on a rank.

    ``kind`` is the type of the layer, and ``degrees`` are the parallel sizes (tp, etp, ep). All
    parameters outside routed experts count as dense.
    """
    tp, etp, ep = degrees
    model = model.with_shapes_of(kind)
    dense = mixer_params(model, kind, tp) + norm_params_per_layer(model, kind)
    dense += extra_layer_params(model, kind)
    if kind.mlp == "dense":
        dense += dense_mlp_params(model, tp)
    if not kind.routed or model.experts is None:
        return dense, 0
    dense += router_params(model) + shared_expert_params(model, tp)
    dense += expert_projection_params(model)
    return dense, model.experts.count // ep * expert_params(model, etp)


def norm_and_router_params(model: Model, kind: LayerKind) -> int:
    """Return the number of parameters of the norms and of the router of one layer of type ``kind``.

    No parallel axis divides them.
    """
    return norm_params_per_layer(model, kind) + (router_params(model) if kind.routed else 0)


def mtp_params(model: Model) -> int:
    """Return the number of parameters of one multi-token-prediction layer.

    Embedding and output projection are not counted, because the layer shares them with the model.
    """
    return sum(mtp_params_on_rank(model, tp=1, etp=1, ep=1))


def mtp_params_on_rank(model: Model, tp: int, etp: int, ep: int) -> tuple[int, int]:
    """Return (dense parameters, routed-expert parameters) of one prediction layer on one rank.

    A multi-token-prediction layer consists of a layer like the last decoder layer, two norms on its
    inputs, a norm on its output, and a projection from 2 x hidden to hidden (DeepSeek-V3,
    arXiv:2412.19437, section 2.2).
    """
    dense, expert = layer_params_on_rank(model, model.layers - 1, tp, etp, ep)
    # eh_proj of Megatron-Core is column-parallel (multi_token_prediction.py).
    projection = 2 * model.hidden * model.hidden // tp
    return dense + projection + 3 * norm_params(model, model.hidden), expert


def total_params(model: Model, *, mtp: bool = False) -> int:
    """Return the number of parameters of the whole model.

    Multi-token-prediction layers are counted only if ``mtp`` is True.
    """
    kinds = Counter(model.layer_kinds)
    parts = (
        embedding_params(model),
        position_table_params(model),
        extra_params(model, "embedding") + extra_params(model, "output"),
        sum(
            n * sum(layer_kind_params_on_rank(model, kind, (1, 1, 1))) for kind, n in kinds.items()
        ),
        final_norm_params(model),
        output_projection_params(model),
        model.mtp_layers * mtp_params(model) if mtp else 0,
    )
    return sum(parts)
