"""Activation bytes that the backward pass needs, one layer and one micro-batch.

Korthikanti et al. 2022 (arXiv:2205.05198) with flash attention, no dropout, grouped-query and
latent attention, gated MLPs and experts. Terms, for T tokens on the rank (sequence x micro-batch /
cp), width h, tensor parallelism t; ``/t`` on T h terms only with sequence parallelism; B bytes an
element that a linear layer saves (2; fp8: 1):
norm inputs 2Th/t and outputs BTh/t each half; Q, K, V, O 2T(2aD + 2g'D)/t with g' = max(g, t);
softmax statistics 4Ta/t; MLP (2(G-1) + B) T f/t with G = 3 gated, 2 plain.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kernels.recurrence import recurrence
from parc.compiler.ir import LayerKind, Layout, Model, ProgramMemory


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes by module, so that recompute can subtract modules by name."""

    layernorm: float
    """Outputs of the norms that are layers of their own."""
    residual: float
    """Inputs of the norms: the residual stream, and dropout masks."""
    core_attn: float
    """Softmax statistics of the fused core, or the attention matrix of an unfused one."""
    attention: float
    """Inputs and outputs of the projections; latent attention: its latents and the output. With
    the output of the norm, where that is a part of the projection."""
    mla_up_proj: float
    mlp: float
    """Dense MLP; without its input, where the norm that makes it is a layer of its own."""
    moe_act: float
    """Outputs of the experts' activation function."""
    moe: float
    """Routed experts without the activation function's output."""
    shared_experts: float
    checkpoint: float
    """Input of the layer: all that full recompute keeps; not a part of ``total``."""
    transient: float
    """Gradients that are alive while the layer runs backward; not a part of ``total``."""
    operators: float
    """What selective recompute by operator keeps; not a part of ``total``."""

    @property
    def total(self) -> float:
        """Without recompute."""
        return (
            self.layernorm
            + self.residual
            + self.core_attn
            + self.attention
            + self.mla_up_proj
            + self.mlp
            + self.moe_act
            + self.moe
            + self.shared_experts
        )

    def saved_by(self, modules: tuple[str, ...]) -> float:
        """Bytes of ``modules`` together; ``moe`` covers moe_act and shared_experts."""
        names = set(modules)
        if "moe" in names:
            names |= {"moe_act", "shared_experts"}
        return sum(float(getattr(self, name)) for name in sorted(names.intersection(MODULES)))


MODULES = tuple(LayerActivations.__dataclass_fields__)[:9]
OPERATORS = ("op",)
"""Selective recompute that chooses operators instead of modules."""


def layer_activations(
    model: Model, layout: Layout, kind: LayerKind, batch: tuple[float, int], program: ProgramMemory
) -> LayerActivations:
    """Bytes on one rank of one layer; ``batch`` is (tokens after cp, sequence length after cp)."""
    t, tokens = layout.tp, batch[0]
    elements = tokens * model.hidden / (t if layout.sequence_parallel else 1)
    inputs = elements if program.gathers_again else tokens * model.hidden
    mixer, up_projection = _mixer(model, kind, layout, tokens, program)
    parts = _feed_forward(model, kind, layout, tokens, program)
    core = _core(model, layout, batch, program) if kind.mixer == "attention" else 0.0
    norm = program.saved_bytes * program.input_copies * inputs
    fused = model.fused_norms(kind) if program.fused_norms else (False, False)
    products = _products(model, layout, kind, tokens, program)
    if program.keeps_reduced and t > 1:
        products += 4 * elements
    stream = program.residual_bytes
    return LayerActivations(
        layernorm=(kind.parts - sum(fused)) * norm,
        residual=kind.parts * (stream * program.norm_copies + program.hidden_dropout) * elements,
        core_attn=core,
        attention=mixer + fused[0] * norm,
        mla_up_proj=up_projection,
        mlp=parts[0] + fused[1] * norm,
        moe_act=parts[1],
        moe=parts[2],
        shared_experts=parts[3],
        checkpoint=stream * elements,
        transient=2 * stream * elements + parts[4],
        operators=stream * elements + core + products,
    )


def _products(
    model: Model, layout: Layout, kind: LayerKind, tokens: float, program: ProgramMemory
) -> float:
    """Outputs of the attention core and of every other matrix product.

    torchtitan numbers the products of a layer (query, key, value or all three in one, output,
    gate, up, down) and keeps the odd ones (distributed/activation_checkpoint.py). Ranks of a
    tensor-parallel group have parts of the last one's sum, each as long as the sum.
    """
    attention, experts = model.attention, model.experts
    keys = max(attention.kv_heads, layout.tp) * (2 if program.fused_projection else 1)
    heads = 2 * attention.heads + keys
    width = model.ffn.size / layout.tp
    if kind.routed and experts is not None:
        width = experts.top_k * experts.size / layout.tp + experts.shared_size / layout.tp
    last = model.hidden if program.last_product else 0
    return 2 * tokens * (heads * attention.head_dim / layout.tp + width + last)


def _core(model: Model, layout: Layout, batch: tuple[float, int], program: ProgramMemory) -> float:
    """Softmax statistics in fp32, or the attention matrix: 2 a s^2 b / t, dropped out: 5."""
    tokens, length = batch
    heads = model.attention.heads / layout.tp
    if program.fused_attention:
        return 4 * tokens * heads
    return (5 if program.attention_dropout else 2) * heads * tokens * length * layout.cp


def _attention(model: Model, t: int, tokens: float, program: ProgramMemory) -> tuple[float, float]:
    """(projections and output, what recomputing the latent up-projection frees)."""
    attention = model.attention
    latent = attention.latent
    copy = program.saved_bytes if program.saved_bytes < 2 else 0.0
    if latent is None:
        keys = attention.heads if program.repeats_keys else max(attention.kv_heads, t)
        rotated = program.rotary_copies * (attention.heads + keys)
        width = attention.projected_heads + attention.heads + 2 * keys + rotated
        outputs = (copy + 2 * program.output_copies) * attention.heads
        normed = 0.0
        if attention.qk_norm != "none":
            # A norm keeps its input; what it puts out is kept by the core, or rotated and gone.
            normed = 2 * program.norm_copies * (attention.heads + max(attention.kv_heads, t))
        return tokens * (2 * width + outputs + normed) * attention.head_dim / t, 0.0
    latents = latent.kv_lora_rank + 2 * (latent.q_lora_rank or 0) + latent.kv_lora_rank
    kept = 2 * tokens * (latents + latent.qk_rope_dim)
    query = latent.qk_nope_dim + latent.qk_rope_dim
    expanded = 2 * tokens * attention.heads * (2 * query + latent.v_dim) / t
    return kept + (2 + copy) * tokens * attention.heads * latent.v_dim / t, expanded


def _mixer(
    model: Model, kind: LayerKind, layout: Layout, tokens: float, program: ProgramMemory
) -> tuple[float, float]:
    """``_attention``, or what a recurrence keeps; its heads are divided as those of attention."""
    if kind.mixer == "attention":
        return _attention(model, layout.tp, tokens, program)
    part = recurrence(model, kind)
    if part is None:
        return 0.0, 0.0
    copy = program.saved_bytes if program.saved_bytes < 2 else 0.0
    return tokens * (part.kept_bytes + copy * part.inner) / layout.tp, 0.0


Parts = tuple[float, float, float, float, float]
"""(mlp, moe_act, moe, shared experts, gradients alive in the backward pass)."""


def _feed_forward(
    model: Model, kind: LayerKind, layout: Layout, tokens: float, program: ProgramMemory
) -> Parts:
    """Of a layer of ``kind``; nothing where it has none."""
    if kind.routed:
        return _routed(model, layout, tokens, program)
    if kind.mlp == "dense":
        return _dense(model, layout, tokens, program)
    return 0.0, 0.0, 0.0, 0.0, 0.0


def _dense(model: Model, layout: Layout, tokens: float, program: ProgramMemory) -> Parts:
    """A dense MLP: the inputs of the activation function, its output for the second matmul."""
    inputs = 2 if model.ffn.gated else 1
    width = tokens * model.ffn.size / layout.tp
    kept = (2 * inputs + program.saved_bytes + 2 * program.activation_copies) * width
    return kept, 0.0, 0.0, 0.0, 2 * (1 + inputs) * width


def _routed(model: Model, layout: Layout, tokens: float, program: ProgramMemory) -> Parts:
    """Routed and shared experts under balanced routing.

    Each rank of an expert group brings its own tokens, so ep does not shrink these. Router
    weights are applied inside the experts, so that their outputs are not kept.
    """
    experts = model.experts
    assert experts is not None
    inputs = 2 if model.ffn.gated else 1
    saved, t = program.saved_bytes, layout.tp
    visits = experts.top_k * tokens / t * (layout.etp if layout.etp > 1 else 1)
    width = visits * experts.size / layout.etp
    router = routing_bytes(experts.count) * tokens / t
    own = tokens * experts.shared_size / t
    return (
        0.0,
        saved * width,
        saved * visits * model.hidden + 2 * inputs * width + router,
        (2 * inputs + saved) * own,
        2 * (1 + inputs) * width + 4 * visits * model.hidden,
    )


def routing_bytes(count: int) -> int:
    """Bytes a token that routing to ``count`` experts keeps, beside what the experts keep.

    Logits and weights in fp32, a choice a byte, and the rows of the fused permutation: 2 E + 1
    numbers of 4 bytes (Megatron-LM, moe/token_dispatcher.py; TransformerEngine, permutation.py).
    Megatron's functional-test records hold the last three to the byte.
    """
    return 4 * count + 4 * count + count + 4 * (2 * count + 1)


def kept_bytes(layer: LayerActivations, layout: Layout, layers: int) -> float:
    """Bytes that ``layers`` layers of a rank keep until backward, for one micro-batch each.

    Full recompute keeps the input of every block (uniform), or recomputes the first layers of
    every chunk and keeps the rest whole (block). Selective recompute by operator (torchtitan)
    keeps the attention core and every other matrix product.
    """
    recompute = layout.recompute
    if recompute.modules == OPERATORS:
        return layers * layer.operators
    if recompute.granularity == "selective":
        return layers * (layer.total - layer.saved_by(recompute.modules))
    if recompute.granularity == "none":
        return layers * layer.total
    if recompute.method == "block":
        again = min((recompute.layers or 1) * layout.vpp, layers)
        return again * layer.checkpoint + (layers - again) * layer.total
    return layers / (recompute.layers or 1) * layer.checkpoint


def working_bytes(layer: LayerActivations, layout: Layout) -> float:
    """Bytes that come and go while one layer runs backward: what it recomputes, its gradients."""
    recompute = layout.recompute
    again = 0.0
    if recompute.modules == OPERATORS:
        again = layer.total / 2
    elif recompute.granularity == "selective":
        again = layer.saved_by(recompute.modules)
    elif recompute.granularity == "full":
        depth = (recompute.layers or 1) if recompute.method == "uniform" else 1
        again = depth * layer.total
    return again + layer.transient
