"""What a rank of an engine holds of a model, by part, in elements and in bytes.

Sharding follows vLLM: column- and row-parallel linear layers are split over tp, key-value heads are
repeated where tp exceeds them, low-rank projections of latent attention, the router and norms are
whole on every rank, the vocabulary is padded to 64 rows. A Mamba layer of one group repeats it on
every rank; heads of linear attention and Mamba are split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from parc.compiler.cost.counts.params import expert_params, mlp_params, norm_params, router_params
from parc.compiler.cost.serving.constants import WEIGHT_BYTES
from parc.compiler.ir import LayerKind, Model
from parc.compiler.ir.serving import ServingLayout, ServingSetup

VOCAB_MULTIPLE = 64
"""vLLM pads the vocabulary to a multiple of this (DEFAULT_VOCAB_PADDING_SIZE)."""


@dataclass(frozen=True, slots=True)
class Mixer:
    """What mixes tokens in a layer, on one rank."""

    projections: float
    """Weights of the linear layers that a format of few bits takes."""
    rest: float
    """Norms, biases, convolution, decay and step: 16 bit."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of a stage, by what they have; a mean over stages need not be whole."""

    attention: float
    """Layers that keep keys and values of every token."""
    recurrent: float
    """Layers of linear attention or Mamba, which keep a state of every sequence."""
    dense: float
    """Layers with a dense MLP."""
    routed: float

    @classmethod
    def of(cls, kinds: tuple[LayerKind, ...]) -> Layers:
        """Those of ``kinds``."""
        mixers, mlps = [kind.mixer for kind in kinds], [kind.mlp for kind in kinds]
        return cls(
            attention=mixers.count("attention"),
            recurrent=mixers.count("linear") + mixers.count("mamba"),
            dense=mlps.count("dense"),
            routed=mlps.count("experts"),
        )

    def scaled(self, share: float) -> Layers:
        """``share`` of each."""
        return Layers(
            self.attention * share, self.recurrent * share, self.dense * share, self.routed * share
        )

    @property
    def mixers(self) -> float:
        """Layers that mix tokens, by whatever."""
        return self.attention + self.recurrent

    @property
    def halves(self) -> float:
        """Halves of a layer of attention and MLP: what one residual connection spans."""
        return self.mixers + self.dense + self.routed


@dataclass(frozen=True, slots=True)
class Shard:
    """Elements on the fullest rank of a deployment, by part; layers are those of its stage."""

    layers: Layers
    attention: Mixer
    recurrent: Mixer
    """Zeros where no layer has linear attention or Mamba."""
    norm: float
    """Norms of half a layer."""
    mlp: float
    """The MLP of a dense layer."""
    shared: float
    """Shared experts of a routed layer."""
    router: float
    """With the gate of the shared experts."""
    expert: float
    """One routed expert, the part on this rank."""
    experts: float
    """Routed experts of a layer that the rank holds, whole or in part."""
    embedding: float
    """Input embedding and output projection, those that the stage holds."""
    head: float
    """Output projection alone, whether or not it is the embedding."""


def shard(model: Model, layout: ServingLayout) -> Shard:
    """What the fullest rank holds; the first stage of a pipeline is taken for the fullest.

    Its layers are a share of the model's: of each kind as many as the mean stage of that length.
    """
    tp, pp = layout.tp, layout.pp
    layers = max(layout.stages) if layout.stages else -(-model.layers // pp)
    vocab = -(-model.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    head = vocab * model.hidden / tp
    experts = model.experts
    return Shard(
        layers=Layers.of(model.layer_kinds).scaled(layers / model.layers),
        attention=attention_elements(model, tp),
        recurrent=recurrent_elements(model, tp),
        norm=model.norms_per_layer / 2 * norm_params(model, model.hidden),
        mlp=mlp_params(model.hidden, model.ffn.size, model.ffn, bias=False) / tp,
        shared=_shared(model) / tp,
        router=router_params(model) + (model.hidden if experts and experts.shared_gate else 0),
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


def attention_elements(model: Model, tp: int) -> Mixer:
    """Attention of one layer on one of ``tp`` ranks."""
    attention, hidden = model.attention, model.hidden
    latent = attention.latent
    if latent is None:
        width = attention.heads * attention.head_dim / tp
        queries = attention.projected_heads * attention.head_dim / tp
        keys = max(attention.kv_heads / tp, 1.0) * attention.head_dim
        norms = 2 * attention.head_dim if attention.qk_norm == "head" else 0.0
        biases = (queries + 2 * keys) * attention.qkv_bias
        return Mixer(hidden * (queries + width + 2 * keys), norms + biases)
    query = latent.qk_nope_dim + latent.qk_rope_dim
    rank = latent.q_lora_rank or 0
    whole = hidden * (rank + latent.kv_lora_rank + latent.qk_rope_dim)
    values = latent.kv_lora_rank * (latent.qk_nope_dim + latent.v_dim)
    heads = attention.heads / tp
    split = heads * ((rank or hidden) * query + values + latent.v_dim * hidden)
    return Mixer(whole + split, float(rank + latent.kv_lora_rank))


def recurrent_elements(model: Model, tp: int) -> Mixer:
    """Linear attention or Mamba of one layer on one of ``tp`` ranks.

    Decay and step of linear attention stay in 16 bit: their projection is too narrow for blocks
    of scales (vLLM 0.33, layers/mamba/gdn). fp32 vectors of a number a head count double.
    """
    hidden, linear, mamba = model.hidden, model.linear, model.mamba
    if linear is not None:
        narrow = 2 * linear.value_heads
        wide = linear.projected - narrow + linear.inner
        rest = hidden * narrow + linear.conv_channels * linear.conv_size + 3 * linear.value_heads
        return Mixer(hidden * wide / tp, rest / tp + linear.value_dim)
    if mamba is not None:
        matrices = 2 * max(mamba.groups / tp, 1.0) * mamba.state_size
        rows = (3 * mamba.inner + mamba.heads) / tp + matrices
        convolution = (mamba.inner / tp + matrices) * (mamba.conv_size + 1)
        return Mixer(hidden * rows, convolution + (4 * mamba.heads + mamba.inner) / tp)
    return Mixer(0.0, 0.0)


def held(model: Model, layout: ServingLayout, setup: ServingSetup) -> Shard:
    """``shard`` as it lies in memory: vLLM repeats shared experts where it splits their tokens.

    With experts over ranks of several tensor groups, each rank sends its share of the tokens to the
    experts, and takes it through a shared expert of its own (use_sequence_parallel_moe, 0.33).
    """
    part = shard(model, layout)
    splits_tokens = layout.ep > 1 and layout.tp > 1 and layout.dp > 1
    if setup.engine == "vllm" and splits_tokens:
        return replace(part, shared=part.shared * layout.tp)
    return part


def parameters(part: Shard, final_norm: float = 0.0) -> float:
    """Elements on the rank."""
    layers = part.layers
    routed = part.router + part.shared + part.experts * part.expert
    return (
        layers.attention * (part.attention.projections + part.attention.rest)
        + layers.recurrent * (part.recurrent.projections + part.recurrent.rest)
        + layers.halves * part.norm
        + layers.dense * part.mlp
        + layers.routed * routed
        + part.embedding
        + final_norm
    )


def mixer_weight_bytes(model: Model, setup: ServingSetup) -> float:
    """Bytes of one weight of a mixer's projections.

    Published nvfp4 checkpoints of latent-attention models leave attention in 16 bit
    (nvidia/DeepSeek-R1-FP4 model card: linear operators of the experts are quantised).
    """
    if setup.weights == "nvfp4" and model.attention.latent is not None:
        return WEIGHT_BYTES["bf16"]
    return WEIGHT_BYTES[setup.weights]


def weights_bytes(model: Model, layout: ServingLayout, setup: ServingSetup) -> float:
    """Bytes of weights on the fullest rank; embeddings, norms and routers stay in 16 bit."""
    part = held(model, layout, setup)
    final = 2 * norm_params(model, model.hidden) if layout.pp == 1 else 0.0
    return shard_bytes(model, part, setup) + final


def shard_bytes(model: Model, part: Shard, setup: ServingSetup) -> float:
    """Bytes of ``part`` without a final norm; embeddings, norms and routers stay in 16 bit."""
    linear, wide = WEIGHT_BYTES[setup.weights], mixer_weight_bytes(model, setup)
    layers = part.layers
    total = layers.attention * (part.attention.projections * wide + 2 * part.attention.rest)
    total += layers.recurrent * (part.recurrent.projections * wide + 2 * part.recurrent.rest)
    total += layers.halves * 2 * part.norm + layers.dense * part.mlp * linear
    routed = 2 * part.router + linear * (part.shared + part.experts * part.expert)
    return total + layers.routed * routed + 2 * part.embedding
