"""Weights of a model on one rank of a serving engine, by part, in elements and in bytes.

Byte sizes follow from number formats, not from the engine. Shares of data-sheet rates belong to GPU
generations (``Generation.serving``), other constants to engines.

Sharding follows vLLM: column- and row-parallel linear layers are split over tp; key-value heads are
repeated if tp exceeds their number; low-rank projections of latent attention, the router and norms
are whole on every rank; the vocabulary is padded. A Mamba layer with one group repeats it on every
rank; heads of linear attention and Mamba are split.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.counts.flops import multiplied_extra_weights
from parc.compiler.cost.counts.params import (
    expert_params,
    expert_projection_params,
    extra_params,
    indexer_params,
    low_rank_projection_weights,
    mlp_params,
    norm_params,
    router_params,
)
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.ir import LayerKind, Mixer, Model
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingLayout, ServingSetup

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0 + 4 / 128**2,
    "int4": 0.5 + 2.5 / 128,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
}
"""Bytes per weight, including scales. Scales belong to blocks of 128 x 128 weights in fp8 (fp32
scale), to groups of 128 in int4 (fp16 scale, 4-bit zero), to blocks of 16 in nvfp4 (fp8 scale), and
to blocks of 32 in mxfp4 (8-bit scale)."""
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes per element of the key-value cache."""


@frozen
class MixerWeights:
    """Weight elements of the token mixer of one layer on one rank."""

    projections: float
    """Weights of linear layers, which quantized formats store in fewer bits."""
    unquantized: float
    """Norms, biases, convolution, decay and step size, stored in 16 bit."""


@frozen
class RankWeights:
    """Weight elements on the fullest rank of a deployment, by part of the model."""

    layers: LayerCounts
    """Layers of the rank's stage."""
    attention: MixerWeights
    """Attention of one layer."""
    recurrent: MixerWeights
    """Recurrent mixer of one layer; zeros for models without one."""
    norm: float
    """Norms of one residual block."""
    mlp: float
    """MLP of one dense layer."""
    shared: float
    """Shared experts of one routed layer."""
    router: float
    """Router of one routed layer, with the gate of the shared experts."""
    expert: float
    """Part of one routed expert that is on this rank."""
    experts: float
    """Number of routed experts per layer of which this rank stores the whole or a part."""
    embedding: float
    """Input embedding and output projection, if they are on the stage."""
    head: float
    """Output projection, even if it shares the weights of the embedding."""
    adapter: float = 0.0
    """One LoRA adapter of one layer; 0 without adapters."""


def count_rank_weights(model: Model, layout: ServingLayout, setup: ServingSetup) -> RankWeights:
    """Return the number of weight elements on the fullest rank, by part of the model.

    The fullest rank is assumed to store the embedding and to have as many layers as the longest
    stage. Layer types are assumed to be distributed evenly over the stages.
    """
    tp, pp = layout.tp, layout.pp
    # Engines pad the vocabulary to whole blocks of rows before they split it over tp.
    multiple = setup.engine.sharding.vocab_multiple
    vocab = -(-model.vocab // multiple) * multiple
    head = vocab * model.hidden / tp
    experts, sizes = model.experts, model.ffn_sizes
    mean_size = sum(sizes) / len(sizes) if model.variants and sizes else model.ffn.size
    return RankWeights(
        layers=LayerCounts.in_range(model).multiplied_by(
            layers_of_longest_stage(model, layout) / model.layers
        ),
        attention=attention_elements(model, tp),
        recurrent=recurrent_elements(model, tp),
        # A layer has two residual blocks, one of its mixer and one of its MLP.
        norm=model.norms_per_layer / 2 * norm_params(model, model.hidden)
        + sum(x.parameters for x in model.extra_weights if x.at == "layers" and not x.multiplied)
        / 2,
        mlp=mlp_params(model.hidden, 1, model.ffn, bias=False) * mean_size / tp
        + extra_params(model, "dense"),
        shared=_shared_expert_elements(model) / tp,
        router=router_params(model)
        + (model.hidden if experts and experts.shared_size and experts.shared_gate else 0)
        + expert_projection_params(model)
        + extra_params(model, "experts"),
        expert=expert_params(model) / layout.ranks_per_expert if experts else 0.0,
        experts=_max_experts_per_rank(model, layout),
        embedding=(head if pp > 1 or model.tied_embeddings else 2 * head)
        + extra_params(model, "embedding")
        + extra_params(model, "output"),
        head=head,
        adapter=0.0 if setup.lora is None else setup.lora.rank * adapter_width(model, tp),
    )


def adapter_width(model: Model, tp: int) -> float:
    """Return the weights of a LoRA adapter of rank 1 in one dense layer, on one of ``tp`` ranks.

    The adapter of a matrix has a matrix of its input width and one of its output width, each times
    the rank. Like the matrix itself, only one of the two is split over tp (vLLM 0.33,
    lora/layers/column_parallel_linear.py and row_parallel_linear.py).
    """
    attention, hidden = model.attention, model.hidden
    queries = attention.query_projection_heads * attention.head_dim / tp
    keys = max(attention.kv_heads / tp, 1.0) * attention.head_dim
    output = attention.heads * attention.head_dim / tp
    inner, inputs = model.ffn.size / tp, 2 if model.ffn.gated else 1
    mixer = 3 * hidden + queries + 2 * keys + output + hidden
    return mixer + inputs * (hidden + inner) + inner + hidden


def layers_of_longest_stage(model: Model, layout: ServingLayout) -> int:
    """Return the number of layers of the longest pipeline stage.

    If ``layout.stages`` is empty, the stages are assumed to be equal, except for rounding.
    """
    return max(layout.stages) if layout.stages else -(-model.layers // layout.pp)


def _max_experts_per_rank(model: Model, layout: ServingLayout) -> float:
    """Return the largest number of experts that a rank stores.

    The quotient of experts and ranks is rounded up, because expert parallelism (ep) never splits an
    expert.
    """
    if model.experts is None:
        return 0.0
    return float(-(-(model.experts.count + layout.redundant_experts) // layout.ep))


def _shared_expert_elements(model: Model) -> float:
    """Return the number of weights in the shared experts of one layer, before tp splits them."""
    experts = model.experts
    if experts is None or not experts.shared_size:
        return 0.0
    return mlp_params(model.hidden, experts.shared_size, model.ffn, bias=False)


def attention_elements(model: Model, tp: int) -> MixerWeights:
    """Return the number of attention weights of one layer on one of ``tp`` ranks.

    If layers have different shapes, the result is the mean over all attention layers.
    """
    parts = [(_attention_elements(one, tp), share) for one, share in model.attention_models]
    multiplied = multiplied_extra_weights(model, LayerKind("attention", "none"))
    # Other extra weights of all layers are counted with the norms.
    small = [one for one in model.extra_weights if one.at == "attention" and not one.multiplied]
    return MixerWeights(
        sum(share * part.projections for part, share in parts) + multiplied,
        sum(share * part.unquantized for part, share in parts) + sum(x.parameters for x in small),
    )


def _attention_elements(model: Model, tp: int) -> MixerWeights:
    """Return the number of attention weights of one layer of a model without layer variants."""
    attention, hidden = model.attention, model.hidden
    latent, indexer = attention.latent, attention.indexer
    # Every rank has the whole indexer.
    index = float(indexer_params(model, indexer) if indexer else 0)
    index += hidden * attention.heads / tp if attention.head_gate else 0.0
    if latent is None:
        width = attention.heads * attention.value_width / tp
        queries = attention.query_projection_heads * attention.head_dim / tp
        groups = max(attention.kv_heads / tp, 1.0)
        keys = groups * (attention.head_dim + attention.value_width) / 2
        # Norms per head have the same weights for all heads: one for queries, one for keys.
        norms = 2 * attention.head_dim if attention.qk_norm == "head" else 0.0
        if attention.shared_kv:
            keys, norms = 0.0, norms / 2
        elif attention.keys_as_values or attention.joint_kv:
            keys /= 2
        biases = (queries + 2 * keys) * attention.qkv_bias
        projections = hidden * (queries + width + 2 * keys)
        if attention.low_rank is not None:
            ranks = low_rank_projection_weights(model, attention.low_rank)
            projections = sum(ranks) / tp + 2 * hidden * keys
        if attention.compression is not None:
            groups *= attention.cached_width
            index += attention.compression.parameters(hidden, round(groups), 0)
        return MixerWeights(index + projections, norms + biases)
    query = latent.qk_nope_dim + latent.qk_rope_dim
    rank = latent.q_lora_rank or 0
    whole = hidden * (rank + latent.kv_lora_rank + latent.qk_rope_dim)
    values = latent.kv_lora_rank * (latent.qk_nope_dim + latent.v_dim)
    heads = attention.heads / tp
    split = heads * ((rank or hidden) * query + values + latent.v_dim * hidden)
    return MixerWeights(index + whole + split, float(rank + latent.kv_lora_rank))


def recurrent_elements(model: Model, tp: int) -> MixerWeights:
    """Return the number of weights of one layer's recurrent mixer on one of ``tp`` ranks.

    Both numbers are zero if the model has only softmax attention.
    """
    if not any(kind.recurrent for kind in model.kinds):
        return MixerWeights(0.0, 0.0)
    mixer: Mixer = "linear" if model.linear else "mamba" if model.mamba else "convolution"
    part = _recurrent_elements(model, tp)
    extra = multiplied_extra_weights(model, LayerKind(mixer, "none"))
    small = sum(x.parameters for x in model.extra_weights if x.at == mixer and not x.multiplied)
    return MixerWeights(part.projections + extra, part.unquantized + small)


def _recurrent_elements(model: Model, tp: int) -> MixerWeights:
    """Return the weights of one layer's recurrent mixer, without extra weights."""
    # Decay and step size of linear attention stay in 16 bit because their projection is too narrow
    # for blocks of scales (vLLM 0.33, layers/mamba/gdn). Vectors with one fp32 number per head
    # count as two 16-bit elements per number.
    hidden, linear, mamba = model.hidden, model.linear, model.mamba
    if (part := model.convolution) is not None:
        rows = (part.input_projection_width + part.inner_width) / tp
        small = part.conv_channels * part.conv_size / tp
        biases = (part.input_projection_width + part.conv_channels) / tp + hidden
        return MixerWeights(hidden * rows, small + biases * part.bias)
    if linear is not None and linear.kind != "gated-delta-net":
        wide = hidden * (linear.input_projection_width + linear.inner_width) + linear.gate_weights
        small = linear.conv_channels * linear.conv_size + 2 * linear.decay_parameters
        return MixerWeights(wide / tp, small / tp + linear.norm_width)
    if linear is not None:
        narrow = 2 * linear.value_heads
        wide = linear.input_projection_width - narrow + linear.inner_width
        rest = hidden * narrow + linear.conv_channels * linear.conv_size + 3 * linear.value_heads
        return MixerWeights(hidden * wide / tp, rest / tp + linear.value_dim)
    if mamba is not None:
        matrices = max(mamba.groups / tp, 1.0) * mamba.matrices_width
        steps = 0 if mamba.step_rank else mamba.heads
        rows = (3 * mamba.inner_width + steps) / tp + matrices
        inner = sum(wide * narrow for wide, narrow in mamba.step_projections) / tp
        convolution = (mamba.inner_width / tp + matrices) * (mamba.conv_size + 1)
        # One fp32 number per head for the decay, which counts as two elements.
        small = (mamba.small_parameters + mamba.heads) / tp
        return MixerWeights(hidden * rows + inner, convolution + small)
    return MixerWeights(0.0, 0.0)


def with_expert_copies(
    part: RankWeights, layout: ServingLayout, setup: ServingSetup
) -> RankWeights:
    """Return ``part``, the result of ``count_rank_weights``, with all copies of shared experts.

    Some engines store whole shared experts on every rank if experts are distributed over several
    tensor-parallel groups.
    """
    # Each rank then sends its part of the tokens to the experts, and runs that part through a whole
    # shared expert (vLLM 0.33, use_sequence_parallel_moe).
    # vLLM splits tokens over tp only if experts are distributed and several tensor groups exist.
    splits_tokens = layout.ep > 1 and layout.tp > 1 and layout.dp > 1
    if setup.engine.sharding.copies_shared_experts and splits_tokens:
        return replace(part, shared=part.shared * layout.tp)
    return part


def shard_elements(part: RankWeights, final_norm: float = 0.0) -> float:
    """Return the total number of weight elements in ``part``.

    ``final_norm`` is the number of elements of the final norm, which is added.
    """
    layers = part.layers
    routed = part.router + part.shared + part.experts * part.expert
    return (
        layers.attention * (part.attention.projections + part.attention.unquantized)
        + layers.recurrent * (part.recurrent.projections + part.recurrent.unquantized)
        + layers.residual_block_count * part.norm
        + layers.dense * part.mlp
        + layers.routed * routed
        + part.embedding
        + final_norm
    )


def mixer_weight_bytes(model: Model, setup: ServingSetup) -> float:
    """Return the bytes per weight in the projections of attention, linear attention or Mamba.

    Published nvfp4 checkpoints of latent-attention models store attention in 16 bit
    (nvidia/DeepSeek-R1-FP4 model card: only linear operators of the experts are quantized). So do
    mxfp4 checkpoints (openai/gpt-oss-120b: config.json, modules_to_not_convert).
    """
    latent = model.attention.latent is not None
    if setup.weights == "mxfp4" or (setup.weights == "nvfp4" and latent):
        return WEIGHT_BYTES["bf16"]
    return WEIGHT_BYTES[setup.weights]


def weights_bytes(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Return the bytes of all weights on the fullest rank."""
    return bytes_of_rank(model, layout, setup, count_rank_weights(model, layout, setup))


def bytes_of_rank(
    model: Model, layout: ServingLayout, setup: ServingSetup, part: RankWeights
) -> float:
    """Return the bytes of all weights of a rank for which ``count_rank_weights`` returns ``part``.

    The copies of shared experts are included.
    """
    final = 2 * norm_params(model, model.hidden) if layout.pp == 1 else 0.0
    return shard_bytes(model, with_expert_copies(part, layout, setup), setup) + final


def shard_bytes(model: Model, part: RankWeights, setup: ServingSetup) -> float:
    """Return the bytes of the weights in ``part``, without the final norm.

    Embeddings, norms and routers are stored in 16 bit, whatever the format of other weights.
    """
    return layers_bytes(model, part, setup, part.layers) + 2 * part.embedding


def layers_bytes(
    model: Model, part: RankWeights, setup: ServingSetup, layers: LayerCounts
) -> float:
    """Return the bytes of the weights of all layers that ``layers`` counts.

    ``part`` contains the number of weight elements of one layer of each type.
    """
    linear, wide = WEIGHT_BYTES[setup.weights], mixer_weight_bytes(model, setup)
    attention, recurrent = part.attention, part.recurrent
    total = layers.attention * (attention.projections * wide + 2 * attention.unquantized)
    total += layers.recurrent * (recurrent.projections * wide + 2 * recurrent.unquantized)
    total += layers.residual_block_count * 2 * part.norm + layers.dense * part.mlp * linear
    if setup.lora is not None:
        total += layers.attention * 2 * setup.lora.active * part.adapter
    routed = 2 * part.router + linear * (part.shared + part.experts * part.expert)
    return total + layers.routed * routed
