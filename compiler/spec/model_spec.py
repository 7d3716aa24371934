"""Models of section ``model``. Catalog files and Hugging Face configs are converted to them."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from parc.compiler.spec.base import (
    Count,
    CountOrZero,
    NonNegativeFloat,
    NonNegativeInt,
    NotBool,
    Parameters,
    PositiveFloat,
    PositiveInt,
    StrictModel,
)


class LatentSpec(StrictModel):
    """Dimensions of multi-head latent attention (MLA)."""

    q_lora_rank: PositiveInt | None = None
    """LoRA rank of the query projection. If absent, the projection has full rank."""
    kv_lora_rank: PositiveInt | None = None
    """LoRA rank of the shared key-value projection. Required unless base sets it."""
    qk_nope_dim: PositiveInt | None = None
    """Number of dimensions per head of queries and keys without rotary position encoding. Required
    unless base sets it."""
    qk_rope_dim: PositiveInt | None = None
    """Number of dimensions per head of queries and keys with rotary position encoding. Required
    unless base sets it."""
    v_dim: PositiveInt | None = None
    """Head dim of values. Required unless base sets it."""


class LinearAttentionSpec(StrictModel):
    """Linear attention, which replaces softmax attention in most layers."""

    kind: Literal["gated-delta-net", "kimi-delta", "lightning"] = "gated-delta-net"
    """Kind of linear attention: Gated DeltaNet (Qwen3-Next), Kimi Delta Attention (Kimi Linear), or
    lightning attention (MiniMax-01), which has no convolution."""
    full_rank_gates: bool = False
    """True if decay and gate of Kimi Delta Attention have projections of full rank instead of rank
    key_dim."""
    key_heads: Count | None = None
    """Number of key heads, which is also the number of query heads. Required unless base sets
    it."""
    value_heads: Count | None = None
    """Number of value heads, which must be a multiple of key_heads. Required unless base sets
    it."""
    key_dim: PositiveInt | None = None
    """Head dim of queries and keys. Required unless base sets it."""
    value_dim: PositiveInt | None = None
    """Head dim of values. Required unless base sets it."""
    conv_size: Count = 4
    """Kernel width of the causal convolution over queries, keys and values."""
    full_attention_every: Count = 4
    """Distance n between layers with softmax attention: layers n, 2n, ... (counted from 1) have
    softmax attention, and all other layers linear attention. 1 if layer_variants lists the layers
    with linear attention."""


class MambaSpec(StrictModel):
    """Dimensions of the Mamba layers, which pattern or layer_variants list."""

    heads: Count | None = None
    """Number of heads; for Mamba-1, the number of channels. Required unless base sets it."""
    head_dim: PositiveInt | None = None
    """Width of a head; 1 for Mamba-1. Required unless base sets it."""
    state_size: PositiveInt | None = None
    """Number of states per channel. Required unless base sets it."""
    groups: Count = 1
    """Number of groups of heads. The heads of a group share the matrices B and C of the state."""
    conv_size: Count = 4
    """Kernel width of the causal convolution."""
    step_rank: NonNegativeInt = 0
    """Rank of the projection to the step sizes, which makes the layers Mamba-1 (Jamba). 0 means
    Mamba-2."""
    norm: bool = True
    """True if a norm follows the scan of Mamba-2. Falcon-H1 has none."""


class ConvolutionSpec(StrictModel):
    """Short causal convolution between two gates (LFM2), in layers listed in layer_variants."""

    conv_size: Count = 3
    """Kernel width, in tokens."""
    bias: bool = False
    """True if the convolution and its projections have biases."""


class ExpertsSpec(StrictModel):
    """Mixture of experts: routed experts, shared experts and the router."""

    count: Count | None = None
    """Number of routed experts per layer. Required unless base sets it."""
    top_k: Count | None = None
    """Number of routed experts that each token is sent to. Required unless base sets it."""
    size: PositiveInt | None = None
    """Hidden width of one routed expert. Required unless base sets it."""
    latent_size: NonNegativeInt = 0
    """Width to which tokens are projected before the routed experts, and from which their outputs
    are projected back (Nemotron 3 Super). 0 means that experts have the hidden size of the
    model."""
    shared_size: NonNegativeInt = 0
    """Total hidden width of the shared experts. 0 means no shared experts."""
    shared_gate: bool = False
    """Gate the output of the shared experts with a sigmoid (Qwen2-MoE)."""
    first_dense_layers: CountOrZero = 0
    """Number of layers at the start of the model that have no routed experts."""
    every: Count = 1
    """Distance n between layers with routed experts: only layers n, 2n, ... (counted from 1) have
    experts. The layers that first_dense_layers excludes have none."""
    bias: bool = False
    """True if the experts have biases."""
    score_function: Literal["softmax", "sigmoid"] = "softmax"
    """Function that converts router logits to scores."""
    pre_softmax: bool = False
    """Normalize scores before the top-k selection instead of after it."""
    groups: Count = 1
    """Number of expert groups for group-limited routing. 1 means that routing is not limited."""
    group_top_k: Count = 1
    """Number of expert groups that one token can be routed to."""
    router_bias: Literal["none", "parameter", "buffer"] = "none"
    """Bias of the router: none, a trained parameter, or the load-balancing buffer of
    DeepSeek-V3."""
    scaling_factor: PositiveFloat = 1.0
    """Factor by which the combined output of the routed experts is multiplied."""
    aux_loss_coefficient: NonNegativeFloat = 0.0
    """Weight of the load-balancing loss. 0 turns it off."""


class PositionSpec(StrictModel):
    """Position encoding: kind, rotary base and scaling for long contexts."""

    kind: Literal["rope", "yarn", "learned", "none"] = "rope"
    """Position encoding: rotary, rotary with YaRN, a learned table, or none."""
    base: PositiveFloat = 10000.0
    """Rotary base (rope_theta)."""
    percent: PositiveFloat = 1.0
    """Fraction of the head dim that is rotated."""
    scaling: Literal["none", "llama3", "linear", "yarn", "dynamic", "longrope"] = "none"
    """Scaling of the rotary frequencies for long contexts. dynamic scales only sequences that are
    longer than max_positions. longrope has one factor per frequency, listed in the checkpoint."""
    scaling_factor: PositiveFloat = 1.0
    """Factor by which the scaling extends the context."""
    max_positions: PositiveInt | None = None
    """Maximum context length, in tokens. Required unless base sets it."""
    original_max_positions: PositiveInt | None = None
    """Context length before scaling, in tokens. If absent, max_positions, which the scaling then
    multiplies by scaling_factor."""
    mscale: PositiveFloat = 1.0
    """Attention scale of YaRN (mscale)."""
    mscale_all_dim: NonNegativeFloat = 0.0
    """Attention scale of YaRN that applies to all dimensions of a head (mscale_all_dim)."""


class IndexerSpec(StrictModel):
    """Indexer of sparse attention, which selects the keys of each query (DeepSeek-V3.2, GLM-5)."""

    heads: Count | None = None
    """Number of heads that score earlier tokens. Required unless base sets it."""
    head_dim: PositiveInt | None = None
    """Width of index queries and index keys. Required unless base sets it."""
    top_k: PositiveInt | None = None
    """Number of keys that a query attends to. Required unless base sets it."""
    head_weights: bool = True
    """True if a projection gives each token a weight per head. False for MiniMax-M3."""


class LowRankSpec(StrictModel):
    """Low-rank projections of grouped-query attention (DeepSeek-V4)."""

    queries: PositiveInt | None = None
    """Rank of the query projection, whose two parts have a norm between them. Required unless base
    sets it."""
    output: PositiveInt | None = None
    """Rank of the output projection per group of heads. Required unless base sets it."""
    output_groups: Count = 1
    """Number of groups of heads that the output projection reduces separately."""


class CompressionSpec(StrictModel):
    """Compressed keys and values in addition to those of the sliding window (DeepSeek-V4)."""

    rate: Count
    """Number of tokens per compressed entry."""
    overlap: bool = False
    """True if an entry also depends on the tokens of the entry before it."""


class LayerVariantSpec(StrictModel):
    """Layers whose shapes differ from the other layers; absent keys have the values of model."""

    layers: Annotated[tuple[Count, ...], Field(min_length=1, max_length=4096)]
    """Numbers of the layers, counted from 1."""
    attention: bool = True
    """False if the layers have no token mixer."""
    mixer: Literal["attention", "linear", "mamba", "convolution", "parallel"] = "attention"
    """Token mixer of the layers: softmax attention, or the one that model.linear_attention,
    model.mamba or model.convolution describes. parallel means both next to each other
    (Falcon-H1)."""
    mlp: bool = True
    """False if the layers have no MLP."""
    heads: Count | None = None
    """Number of attention heads."""
    kv_heads: Count | None = None
    """Number of key-value heads."""
    head_dim: PositiveInt | None = None
    """Width of one head of queries and keys."""
    value_dim: PositiveInt | None = None
    """Width of one head of values."""
    ffn: PositiveInt | None = None
    """Hidden width of the dense MLP."""
    window: PositiveInt | None = None
    """Length of the sliding attention window, in tokens."""
    full_attention: bool = False
    """True if the layers ignore model.window and attend to the whole context."""
    sinks: bool | None = None
    """True if each head has a learned attention sink."""
    shared_kv: bool = False
    """True if the layers attend to the keys and values of an earlier layer, and have no projections
    and no cache for them (Gemma 3n)."""
    keys_as_values: bool = False
    """True if values are the projected keys, so that values have no projection (Gemma 4)."""
    indexer: Literal["own", "shared", "none"] = "own"
    """shared if the layers have no indexer, because they attend to the keys that the indexer of an
    earlier layer selected. none if they attend to all visible keys."""
    compression: CompressionSpec | None = None
    """Compressed keys and values, to which queries attend in addition to those of the window. An
    indexer of the layers selects compressed entries. If absent, the layers have none."""


class ExtraWeightsSpec(StrictModel):
    """Weights of a model part that no other key describes, so that memory and time include them."""

    name: str
    """Name of the model part, for messages: norm after the embedding."""
    parameters: Parameters
    """Number of parameters per layer, or in total at the embedding or the output."""
    at: Literal[
        "layers",
        "attention",
        "linear",
        "mamba",
        "convolution",
        "dense",
        "experts",
        "embedding",
        "output",
    ] = "layers"
    """Layers that have the weights: all layers, or those with this token mixer, a dense MLP or
    routed experts. Or embedding or output, next to which the model has the weights once."""
    multiplied: bool = False
    """True if each token is multiplied with all of these weights, as in a linear layer."""


class ModelSpec(StrictModel):
    """Decoder-only model. If base is set, absent keys have the values of base."""

    # Catalog entries are validated too, so that ``Spec`` can use a validator that exists already.
    model_config = ConfigDict(defer_build=False)

    base: str | None = None
    """Name of a catalog model, or path of a Hugging Face config.json, to start from. Keys that are
    set here override its values."""
    name: str | None = None
    """Name to show in reports."""
    family: str | None = None
    """Hugging Face model_type of the architecture."""
    # Fields are None if absent, so that ``base`` supplies them; defaults apply after that.
    layers: Count | None = None
    """Number of decoder layers, not counting multi-token-prediction layers."""
    hidden: PositiveInt | None = None
    """Hidden size: width of the residual stream."""
    ffn: NonNegativeInt | None = None
    """Hidden width of the dense MLP. 0 if all layers have routed experts."""
    heads: Count | None = None
    """Number of attention heads."""
    kv_heads: Count | None = None
    """Number of key-value heads. If absent, equal to the number of attention heads."""
    head_dim: PositiveInt | None = None
    """Width of one head. If absent, hidden / heads."""
    value_dim: PositiveInt | None = None
    """Width of one head of values, if it differs from head_dim (MiMo-V2-Flash)."""
    vocab: PositiveInt | None = None
    """Vocabulary size before padding."""
    gated: bool | None = None
    """True if the MLP has a gate (SwiGLU, GeGLU). If absent, true."""
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"] | None = None
    """Activation function of the MLP. If absent, silu."""
    mlp_bias: bool | None = None
    """True if the linear layers of the MLP have biases. If absent, false."""
    qkv_bias: bool | None = None
    """True if the projections of queries, keys and values have biases. If absent, false."""
    attention_output_bias: bool | None = None
    """True if the output projection of attention has a bias. If absent, false."""
    qk_norm: Literal["none", "head", "full"] | None = None
    """Norm of queries and keys: none, per head (head), or over all heads together (full). If
    absent, none."""
    window: PositiveInt | None = None
    """Length of the sliding attention window, in tokens. If absent, attention is fully causal."""
    window_chunks: bool | None = None
    """True if the window is the length of chunks: a query attends only to keys of its own chunk
    (Llama 4). If absent, the window slides."""
    full_attention_every: PositiveInt | None = None
    """Distance n between layers that ignore the window: layers n, 2n, ... (counted from 1) have
    full attention (Gemma 2: n = 2). If absent, all layers use the window."""
    sinks: bool | None = None
    """True if each head has a learned attention sink (gpt-oss). If absent, false."""
    latent: LatentSpec | None = None
    """Multi-head latent attention. If absent, the model has grouped-query attention."""
    indexer: IndexerSpec | None = None
    """Indexer of sparse attention. If absent, queries attend to all visible keys."""
    joint_kv: bool | None = None
    """True if the same vectors are keys and values, so that they have one projection and are cached
    once (DeepSeek-V4). If absent, false."""
    low_rank: LowRankSpec | None = None
    """Low-rank projections of queries and outputs. If absent, they have full rank."""
    residual_streams: Count | None = None
    """Number of residual streams, which hyper-connections mix (DeepSeek-V4). Their weights belong
    to extra_weights. If absent, 1."""
    head_gate: bool | None = None
    """True if a sigmoid gate with one number per head scales the attention output (Step 3.5). If
    absent, false."""
    attention_gate: bool | None = None
    """True if a sigmoid gate scales the attention output (Qwen3-Next). If absent, false."""
    linear_attention: LinearAttentionSpec | None = None
    """Linear attention layers between the softmax attention layers (Qwen3-Next). If absent, the
    model has none."""
    mamba: MambaSpec | None = None
    """Mamba layers (Nemotron-H), which pattern or layer_variants list. If absent, the model has
    none."""
    convolution: ConvolutionSpec | None = None
    """Layers with a short convolution instead of attention (LFM2), which layer_variants lists. If
    absent, the model has none."""
    pattern: Annotated[str, StringConstraints(pattern=r"^[M*E-]+$", max_length=4096)] | None = None
    """Layer pattern of a model in which each layer is either a token mixer or an MLP, one letter
    per layer: M for Mamba, * for attention, - for a dense MLP, E for experts. If absent, each layer
    has a token mixer and an MLP."""
    layer_variants: tuple[LayerVariantSpec, ...] | None = None
    """Layers with other shapes than the keys above state, such as another number of heads or no
    MLP. If absent, all layers have these shapes."""
    extra_weights: tuple[ExtraWeightsSpec, ...] | None = None
    """Weights of model parts that no other key describes. If absent, there are none."""
    experts: ExpertsSpec | None = None
    """Mixture of experts. If absent, all layers are dense."""
    norm: Literal["rmsnorm", "layernorm"] | None = None
    """Kind of the norms. If absent, rmsnorm."""
    norm_weights: bool | None = None
    """False if norms have no parameters (OLMo). If absent, true."""
    norm_epsilon: PositiveFloat | None = None
    """Epsilon of the norms. If absent, 1e-5."""
    init_std: PositiveFloat | None = None
    """Standard deviation of the initial weights. If absent, the default of the framework."""
    norms_per_layer: Annotated[Literal[1, 2, 4], NotBool] | None = None
    """Number of norms per layer: 2 for pre-norm, 1 for a parallel block, 4 if the outputs of the
    sub-layers are normalized too (Gemma 2). If absent, 2."""
    final_norm: bool | None = None
    """True if a norm follows the last layer. If absent, true."""
    position: PositionSpec | None = None
    """Position encoding: kind, rotary base and scaling for long contexts."""
    tied_embeddings: bool | None = None
    """True if the input and output embeddings share one matrix. If absent, false."""
    mtp_layers: CountOrZero | None = None
    """Number of multi-token-prediction layers to train. If absent, 0."""
    source: str | None = None
    """Source of the numbers: a document or a page."""
