"""Dimensions of a decoder-only model, after the defaults of the spec have been applied."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layer_variant import ExtraWeights, LayerVariant
from parc.compiler.ir.token_mixers import Attention, Convolution, LinearAttention, Mamba, Mixer


class LayerKind(NamedTuple):
    """Composition of a decoder layer: a token mixer and an MLP, either of which may be absent.

    Layers of the same kind have the same memory and cost.
    """

    mixer: Mixer
    mlp: Literal["dense", "experts", "none"]
    variant: int = 0
    """Index into ``Model.variants``, counted from 1; 0 = the shapes that ``Model`` states."""

    @property
    def routed(self) -> bool:
        """True if a layer of this kind routes tokens to experts."""
        return self.mlp == "experts"

    @property
    def attends(self) -> bool:
        """True if the token mixer has softmax attention, alone or next to a recurrent mixer."""
        return self.mixer in ("attention", "parallel")

    @property
    def recurrent(self) -> bool:
        """True if the token mixer keeps one state per sequence, alone or next to attention."""
        return self.mixer not in ("attention", "none")

    @property
    def sub_layers(self) -> int:
        """Number of sub-layers (token mixer and MLP); each has its own residual connection."""
        return (self.mixer != "none") + (self.mlp != "none")


LayerPart = Literal[
    "attention",
    "mamba",
    "mlp",
    "router",
    "preparation",
    "dispatch",
    "experts",
    "shared_experts",
]
"""Part of a decoder layer. ``attention`` includes linear attention; ``preparation`` prepares the
dispatch of tokens to experts, which ``dispatch`` sends and combines."""
DENSE = LayerKind("attention", "dense")
ROUTED = LayerKind("attention", "experts")
LAYER_LETTERS = {
    "M": LayerKind("mamba", "none"),
    "*": LayerKind("attention", "none"),
    "-": LayerKind("none", "dense"),
    "E": LayerKind("none", "experts"),
}
"""Letters of ``Model.pattern``, as in Megatron-Core's hybrid layer pattern."""
KINDS = (DENSE, ROUTED, LayerKind("linear", "dense"), LayerKind("linear", "experts"))
OTHER_KINDS = (
    *(LayerKind(mixer, mlp) for mixer in ("mamba", "convolution") for mlp in ("dense", "experts")),
    *(LayerKind(mixer, "none") for mixer in ("linear", "convolution", "none")),
    *(LayerKind("parallel", mlp) for mlp in ("dense", "experts", "none")),
)
"""Further kinds of layers that a layer variant can have, in addition to the kinds of a pattern."""
# A fixed order makes reports and golden files independent of set iteration.
KIND_ORDER = {
    kind: index for index, kind in enumerate((*KINDS, *LAYER_LETTERS.values(), *OTHER_KINDS))
}
"""Position of each layer kind in ``Model.kinds``; contains all kinds that exist, as variant 0."""


@frozen
class FeedForward:
    """Dense MLP of a layer; experts use the same activation function."""

    size: int
    """Hidden width of the MLP; 0 if no layer has a dense MLP (Mixtral, Qwen3-MoE)."""
    gated: bool
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"]
    bias: bool


@frozen
class Experts:
    """Routed and shared experts of a mixture-of-experts model."""

    count: int
    top_k: int
    size: int
    """Hidden width of one routed expert."""
    shared_size: int
    """Total hidden width of the shared experts; 0 = none."""
    shared_gate: bool
    pattern: tuple[bool, ...]
    """One value per decoder layer: True if the layer has routed experts."""
    bias: bool
    """True if experts have biases (gpt-oss)."""
    score_function: Literal["softmax", "sigmoid"]
    pre_softmax: bool
    """True if scores are normalized before the top-k selection instead of after it."""
    groups: int
    """Number of expert groups for group-limited routing; 1 = routing is not limited to groups."""
    group_top_k: int
    """Number of expert groups that one token can be routed to."""
    router_bias: Literal["none", "parameter", "buffer"]
    """Bias of the router: none, a trained parameter, or the load-balancing buffer of DeepSeek-V3,
    which Megatron does not train."""
    scaling_factor: float
    """Factor by which the combined output of the routed experts is multiplied."""
    aux_loss_coefficient: float
    """Weight of the load-balancing loss; 0 = no such loss."""
    latent_size: int = 0
    """Width to which tokens are projected before the routed experts, and from which their outputs
    are projected back (Nemotron 3 Super); 0 = experts read the residual stream."""

    @property
    def layers(self) -> int:
        """Number of decoder layers with routed experts."""
        return sum(self.pattern)


@frozen
class Position:
    """Position encoding; ``learned`` adds an embedding table of ``max_positions`` rows."""

    kind: Literal["rope", "yarn", "learned", "none"]
    base: float
    percent: float
    """Fraction of the head dim that is rotated."""
    scaling: Literal["none", "llama3", "linear", "yarn", "dynamic", "longrope"]
    scaling_factor: float
    max_positions: int
    original_max_positions: int
    mscale: float
    mscale_all_dim: float


@frozen(slots=False)  # no slots, because cached_property needs a __dict__
class Model:
    """Decoder-only model with the values of all dimensions."""

    name: str
    family: str
    """Hugging Face ``model_type`` of the architecture (llama, mixtral, qwen3_moe, ...)."""
    layers: int
    """Number of decoder layers; multi-token-prediction layers are counted in ``mtp_layers``."""
    hidden: int
    vocab: int
    attention: Attention
    ffn: FeedForward
    experts: Experts | None
    norm: Literal["rmsnorm", "layernorm"]
    norm_epsilon: float
    init_std: float | None
    """Standard deviation of the initial weights; None for the default of the framework."""
    norms_per_layer: int
    """Number of norms per layer: 1 for a parallel block, 2 for pre-norm, 4 if the outputs of the
    sub-layers are normalized too (Gemma 2 and 3)."""
    final_norm: bool
    position: Position
    tied_embeddings: bool
    mtp_layers: int
    """Number of multi-token-prediction layers that are trained (DeepSeek-V3: 1); 0 = none."""
    source: str
    """Origin of the numbers: a web page, or a file of the user."""
    left_out: str
    """Description of computations of the model family that no field here represents; empty if there
    are none. Tensor shapes are exact in any case."""
    linear: LinearAttention | None
    mamba: Mamba | None
    pattern: str
    """Layer pattern of a model in which each layer is either a token mixer or an MLP (Nemotron-H),
    one letter per layer: M = Mamba, * = attention, - = dense MLP, E = experts. Empty for any other
    model."""
    variants: tuple[LayerVariant, ...] = ()
    """Shapes of layers that differ from those above; each layer is in at most one of them."""
    extra_weights: tuple[ExtraWeights, ...] = ()
    convolution: Convolution | None = None
    norm_weights: bool = True
    """False if norms have no parameters (OLMo)."""
    residual_streams: int = 1
    """Number of residual streams, which hyper-connections mix (DeepSeek-V4)."""

    @property
    def moe_layers(self) -> int:
        """Number of decoder layers with routed experts; 0 for a dense model."""
        return self.experts.layers if self.experts else 0

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kinds of all decoder layers, from the first layer to the last."""
        plain = self._kinds_without_variants()
        found = dict(enumerate(plain))
        for number, variant in enumerate(self.variants, start=1):
            for layer in variant.layers:
                mixer = variant.mixer
                mlp = plain[layer].mlp if variant.ffn_size is not None else "none"
                found[layer] = LayerKind(mixer, mlp, number)
        return tuple(found.values())

    def _kinds_without_variants(self) -> tuple[LayerKind, ...]:
        """Return the kinds of all decoder layers as if the model had no variants."""
        if self.pattern:
            return tuple(LAYER_LETTERS[letter] for letter in self.pattern)
        # Period 1 means that every layer has softmax attention.
        every = self.linear.full_attention_every if self.linear else 1
        routed = self.experts.pattern if self.experts else (False,) * self.layers
        return tuple(
            LayerKind("linear" if (n + 1) % every else "attention", "experts" if one else "dense")
            for n, one in enumerate(routed)
        )

    @cached_property
    def cumulative_layer_counts(self) -> tuple[tuple[int, int, int, int], ...]:
        """Number of layers of each type before each decoder layer, and in the whole model.

        Each entry is (attention, recurrent, dense, routed). Entry i counts the layers before layer
        i, so the difference of two entries counts the layers between them. A serving search uses
        this to count the layers of many stage splits quickly.
        """
        sums = [(0, 0, 0, 0)]
        for kind in self.layer_kinds:
            attention, recurrent, dense, routed = sums[-1]
            sums.append(
                (
                    attention + kind.attends,
                    recurrent + kind.recurrent,
                    dense + (kind.mlp == "dense"),
                    routed + (kind.mlp == "experts"),
                )
            )
        return tuple(sums)

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Distinct layer kinds of the model, dense kinds first."""
        return tuple(
            sorted(
                set(self.layer_kinds),
                key=lambda kind: (kind.variant, KIND_ORDER[kind._replace(variant=0)]),
            )
        )

    @cached_property
    def _variant_models(self) -> tuple[Model, ...]:
        """This model, then one model per variant, in which all layers have its shapes."""
        models = [self]
        for variant in self.variants:
            ffn = replace(self.ffn, size=variant.ffn_size or 0)
            attention = variant.attention or self.attention
            models.append(replace(self, attention=attention, ffn=ffn, variants=()))
        return tuple(models)

    def with_shapes_of(self, kind: LayerKind) -> Model:
        """Return a model whose attention and MLP have the shapes of layers of this kind.

        The result has no variants, and returns itself for the same kind.
        """
        return self._variant_models[kind.variant] if kind.variant and self.variants else self

    @cached_property
    def attention_models(self) -> tuple[tuple[Model, float], ...]:
        """Pairs of a model without variants and the fraction of attention layers of its shapes."""
        if not self.variants:
            return ((self, 1.0),)
        plain = replace(self, variants=())
        counts = Counter(kind.variant for kind in self.layer_kinds if kind.attends)
        return tuple(
            (self._variant_models[variant] if variant else plain, count / counts.total())
            for variant, count in sorted(counts.items())
        )

    @cached_property
    def ffn_sizes(self) -> tuple[int, ...]:
        """Hidden width of the MLP of each dense layer; empty if no layer is dense."""
        dense = (kind.variant for kind in self.layer_kinds if kind.mlp == "dense")
        return tuple(self._variant_models[variant].ffn.size for variant in dense)

    @cached_property
    def layers_before_by_kind(self) -> tuple[tuple[int, ...], ...]:
        """Number of layers of each of ``kinds`` before each layer, and in total as the last one."""
        return tuple(
            tuple(accumulate((one == kind for one in self.layer_kinds), initial=0))
            for kind in self.kinds
        )

    @property
    def expert_input_width(self) -> int:
        """Width of the input and output of routed experts: the hidden size, or the latent size."""
        latent = self.experts.latent_size if self.experts else 0
        return latent or self.hidden

    @property
    def dense_layers(self) -> int:
        """Number of decoder layers with a dense MLP."""
        return self.cumulative_layer_counts[-1][2]

    def recurrent_mixer(self, kind: LayerKind) -> LinearAttention | Mamba | Convolution | None:
        """Return the dimensions of the recurrent mixer of a layer of this kind.

        None if a layer of this kind has softmax attention or no mixer.
        """
        return self.recurrent if kind.recurrent else None

    def parts_of(self, kind: LayerKind) -> frozenset[str]:
        """Return the places of ``ExtraWeights.at`` that layers of this kind have."""
        mixer = "linear" if self.linear else "mamba" if self.mamba else "convolution"
        parts = {"layers", kind.mlp} | ({"attention"} if kind.attends else set())
        return frozenset(parts | ({mixer} if kind.recurrent else set()))

    @property
    def recurrent(self) -> LinearAttention | Mamba | Convolution | None:
        """Dimensions of the recurrent mixer, of which a model has at most one; None without one."""
        return self.linear or self.mamba or self.convolution

    def fused_norms(self, kind: LayerKind) -> tuple[bool, bool]:
        """Return (norm before the token mixer can be fused, norm before the MLP can be fused).

        TransformerEngine can fuse a norm only into a single projection, but latent attention and
        experts start with several projections (Megatron-Core 0.19, models/gpt/gpt_layer_specs.py).
        """
        # The query and key-value projections of latent attention are separate linear layers.
        latent = kind.attends and self.attention.latent is not None
        return kind.mixer != "none" and not latent, kind.mlp == "dense"

    @property
    def last_kind(self) -> LayerKind:
        """Kind of the last decoder layer; the multi-token-prediction layers have the same kind."""
        return self.layer_kinds[-1]
