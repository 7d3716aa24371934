"""Activation bytes that are saved for the backward pass, per layer and micro-batch.

Formulas: Korthikanti et al. 2022 (arXiv:2205.05198), extended to flash attention, grouped-query and
latent attention, gated MLPs and experts. Symbols: T tokens on the rank (sequence x micro-batch /
cp), hidden size h, tensor-parallel size t, B bytes per element that a linear layer saves (2; fp8:
1), a query heads, g key-value heads, D head dim, f MLP width. ``/t`` on T h terms applies only with
sequence parallelism. Terms: inputs 2Th/t and outputs BTh/t of each norm; Q, K, V, O 2T(2aD +
2g'D)/t with g' = max(g, t); softmax statistics 4Ta/t; MLP (2(G-1) + B) T f/t with G = 3 if gated,
else 2.
"""

from __future__ import annotations

from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.cost.memory.adapter_inputs import adapter_bytes
from parc.compiler.cost.memory.saved_products import saved_product_bytes
from parc.compiler.ir import LayerKind, Layout, Model, ProgramMemory
from parc.compiler.ir.frozen import frozen


@frozen
class LayerActivations:
    """Activation bytes of one layer, divided into the modules that recompute settings can name."""

    layernorm: float
    """Outputs of the norms that are not fused with a projection."""
    residual: float
    """Inputs of the norms, that is the residual stream, and dropout masks."""
    core_attn: float
    """Softmax statistics of a fused attention core, or attention matrix of an unfused core."""
    attention: float
    """Inputs and outputs of the projections; in latent attention, the latent vectors and the
    attention output. If the norm is fused with the projection, the output of the norm is
    included."""
    mla_up_proj: float
    """Outputs of the up-projections of latent attention."""
    mlp: float
    """Dense MLP. If the norm is fused with the MLP, the input of the MLP is included."""
    moe_act: float
    """Outputs of the experts' activation function."""
    moe: float
    """Routed experts without the output of the activation function and without the router."""
    shared_experts: float
    router: float
    checkpoint: float
    """Input of the layer, which full recompute saves; not part of ``total``."""
    transient: float
    """Gradients that exist during the backward pass of the layer; not part of ``total``."""
    operators: float
    """Bytes that selective recompute by operator saves; not part of ``total``."""
    fused_norm_inputs: float
    """Part of ``residual`` that projections with a fused norm save. ``total`` does not add it."""

    @property
    def total(self) -> float:
        """Return the activation bytes that this layer saves if nothing is recomputed."""
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
            + self.router
        )

    def bytes_of_modules(self, modules: tuple[str, ...]) -> float:
        """Return the sum of the activation bytes of ``modules``; recompute frees these bytes.

        The module ``moe`` includes ``moe_act``, ``shared_experts`` and ``router``.
        """
        return sum(float(getattr(self, name)) for name in sorted(_fields_of_modules(modules)))

    def offloaded_bytes(self, layout: Layout) -> float:
        """Return the activation bytes that wait in host memory between the two passes.

        Recomputed activations are not included, because they are not saved.
        """
        if not layout.offload.activations or layout.recompute.granularity == "full":
            return 0.0
        parts = {name for part in layout.offload.activations for name in OFFLOADED[part]}
        kept = parts - _fields_of_modules(layout.recompute.modules)
        away = sum(float(getattr(self, name)) for name in sorted(kept))
        # A projection with a fused norm saves the input of the norm, so it stays on the GPU.
        return away - self.fused_norm_inputs * ("residual" in parts)


MODULES = tuple(LayerActivations.__dataclass_fields__)[:10]
"""Fields that are part of ``total``, in the order of the class."""
OFFLOADED = {
    "attention": ("attention", "core_attn", "mla_up_proj"),
    "norms": ("residual",),
    "experts": ("moe",),
}
"""Value of ``Offload.activations`` -> fields that are copied to the host."""


def _fields_of_modules(modules: tuple[str, ...]) -> set[str]:
    """Return the names of the fields that recompute of ``modules`` frees."""
    names = set(modules)
    if "moe" in names:
        names |= {"moe_act", "shared_experts", "router"}
    return names.intersection(MODULES)


OPERATORS = ("op",)
"""Value of ``Recompute.modules`` that selects operators instead of modules (torchtitan)."""


def layer_activations(
    model: Model, layout: Layout, kind: LayerKind, batch: tuple[float, int], program: ProgramMemory
) -> LayerActivations:
    """Return the activation bytes of one layer of type ``kind`` on one rank, by module.

    ``batch`` is (tokens of the micro-batch, sequence length), where both numbers are divided by cp.
    ``program`` is the memory model of the training program.
    """
    t, tokens, model = layout.tp, batch[0], model.with_shapes_of(kind)
    elements = tokens * model.hidden / (t if layout.sequence_parallel else 1)
    inputs = elements if program.gathers_again else tokens * model.hidden
    mixer, up_projection = _mixer_bytes(model, kind, layout, tokens, program)
    parts = _feed_forward_bytes(model, kind, layout, tokens, program)
    core = _attention_core_bytes(model, layout, batch, program) if kind.attends else 0.0
    matrix = 0.0
    if core and not program.fused_attention:
        matrix = program.score_gradients * _attention_matrix_bytes(model, layout, batch)
    # A norm's output is the input that the following linear layer saves.
    norm = program.saved_bytes * program.input_copies * inputs
    own = adapter_bytes(model, kind, program) if program.adapters else (0.0, 0.0)
    # A norm that is fused with a projection counts to the module of the projection.
    fused = model.fused_norms(kind) if program.fused_norms else (False, False)
    products = saved_product_bytes(model, layout, kind, tokens, program)
    # Outputs of the two row-parallel products after their reduction: 2 bytes each.
    if program.keeps_reduced and t > 1:
        products += 4 * elements
    stream = program.residual_bytes * model.residual_streams
    # Only RMSNorm is computed operator by operator; torch's layer norm is one operator.
    norm_copies = program.norm_copies if model.norm == "rmsnorm" else 1.0
    return LayerActivations(
        layernorm=(kind.sub_layers - sum(fused)) * norm,
        residual=kind.sub_layers * (stream * norm_copies + program.hidden_dropout) * elements,
        core_attn=core,
        attention=mixer + fused[0] * norm + tokens * own[0],
        mla_up_proj=up_projection,
        mlp=parts[0] + fused[1] * norm + tokens * own[1],
        moe_act=parts[1],
        moe=parts[2],
        shared_experts=parts[3],
        router=parts[5],
        checkpoint=stream * elements,
        transient=2 * stream * elements + parts[4] + matrix,
        operators=stream * elements + core + products,
        fused_norm_inputs=sum(fused) * stream * norm_copies * elements,
    )


def _attention_core_bytes(
    model: Model, layout: Layout, batch: tuple[float, int], program: ProgramMemory
) -> float:
    """Return the bytes that the attention core of one layer saves.

    A fused core saves fp32 softmax statistics. An unfused core saves the attention matrix: 2 a s^2
    b / t bytes, or 5 a s^2 b / t with dropout, for a heads, sequence length s, micro-batch size b
    and tensor-parallel size t.
    """
    tokens, _ = batch
    heads = model.attention.heads / layout.tp
    if program.fused_attention:
        return 4 * tokens * heads
    matrix = _attention_matrix_bytes(model, layout, batch)
    return 2.5 * matrix if program.attention_dropout else matrix


def _attention_matrix_bytes(model: Model, layout: Layout, batch: tuple[float, int]) -> float:
    """Return the 16-bit bytes of one layer's attention matrix on one rank, over all its heads."""
    tokens, length = batch
    return 2 * model.attention.heads / layout.tp * tokens * length * layout.cp


def _attention_bytes(
    model: Model, t: int, tokens: float, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes of projections and attention output, bytes of latent up-projections).

    These are the activation bytes of one attention layer. ``t`` is the tensor-parallel size.
    Without latent attention, the second number is 0.
    """
    attention = model.attention
    latent = attention.latent
    copy = program.saved_bytes if program.saved_bytes < 2 else 0.0
    if latent is None:
        keys = attention.heads if program.repeats_keys else max(attention.kv_heads, t)
        rotated = program.rotary_copies * (attention.heads + keys)
        # Width of values relative to keys.
        spread = attention.value_width / attention.head_dim
        width = attention.query_projection_heads + keys + rotated
        width += (attention.heads + keys) * spread
        outputs = (copy + 2 * program.output_copies) * attention.heads * spread
        normed = 0.0
        if attention.qk_norm != "none":
            # A norm saves its input. Its output is saved by the core, or rotated and then freed.
            normed = 2 * program.norm_copies * (attention.heads + max(attention.kv_heads, t))
        return tokens * (2 * width + outputs + normed) * attention.head_dim / t, 0.0
    # Down-projected queries and keys, before and after their norms.
    latents = latent.kv_lora_rank + 2 * (latent.q_lora_rank or 0) + latent.kv_lora_rank
    kept = 2 * tokens * (latents + latent.qk_rope_dim)
    query = latent.qk_nope_dim + latent.qk_rope_dim
    expanded = 2 * tokens * attention.heads * (2 * query + latent.v_dim) / t
    return kept + (2 + copy) * tokens * attention.heads * latent.v_dim / t, expanded


def _mixer_bytes(
    model: Model, kind: LayerKind, layout: Layout, tokens: float, program: ProgramMemory
) -> tuple[float, float]:
    """Return (bytes of projections and mixer output, bytes of latent up-projections).

    These are the activation bytes of a layer's token mixer: attention, a recurrence, or both.
    """
    attention = (0.0, 0.0)
    if kind.attends:
        attention = _attention_bytes(model, layout.tp, tokens, program)
    part = recurrence_of_layer(model, kind)
    if part is None:
        return attention
    copy = program.saved_bytes if program.saved_bytes < 2 else 0.0
    kept = tokens * (part.kept_bytes + copy * part.inner) / layout.tp
    return attention[0] + kept, attention[1]


FeedForwardBytes = tuple[float, float, float, float, float, float]
"""(bytes of mlp, of moe_act, of moe, of shared experts, of gradients during the backward pass, of
the router)."""


def _feed_forward_bytes(
    model: Model, kind: LayerKind, layout: Layout, tokens: float, program: ProgramMemory
) -> FeedForwardBytes:
    """Return the activation bytes of a layer's MLP or experts, in the order of FeedForwardBytes.

    All six numbers are zero if the layer has neither an MLP nor experts.
    """
    if kind.routed:
        return _routed_expert_bytes(model, layout, tokens, program)
    if kind.mlp == "dense":
        return _dense_mlp_bytes(model, layout, tokens, program)
    return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0


def _dense_mlp_bytes(
    model: Model, layout: Layout, tokens: float, program: ProgramMemory
) -> FeedForwardBytes:
    """Return the activation bytes of a dense MLP, in the order of ``FeedForwardBytes``.

    The MLP saves the inputs and the output of its activation function.
    """
    inputs = 2 if model.ffn.gated else 1
    width = tokens * model.ffn.size / layout.tp
    copies = program.activation_copies
    if model.ffn.activation == "gelu_tanh" and not model.ffn.gated:
        copies = program.tanh_copies or copies
    kept = (2 * inputs + program.saved_bytes + 2 * copies) * width
    return kept, 0.0, 0.0, 0.0, 2 * (1 + inputs) * width, 0.0


def _routed_expert_bytes(
    model: Model, layout: Layout, tokens: float, program: ProgramMemory
) -> FeedForwardBytes:
    """Return the activation bytes of routed and shared experts, in the order of FeedForwardBytes.

    The bytes are counted on the busiest rank of the expert-parallel group.
    """
    # Each rank of an expert group contributes its own tokens, so that ep does not reduce the bytes.
    # Router weights are applied inside the experts, so that expert outputs are not saved.
    experts = model.experts
    assert experts is not None
    inputs = 2 if model.ffn.gated else 1
    saved, t = program.saved_bytes, layout.tp
    # With etp > 1 the ranks of an expert gather each other's tokens.
    visits = program.routed_load * experts.top_k * tokens / t * layout.etp
    width = visits * experts.size / layout.etp
    router = routing_bytes(experts.count) * tokens / (t if layout.sequence_parallel else 1)
    own = tokens * experts.shared_size / t
    copies = 2 * program.activation_copies
    # Without a kernel that applies activation and router weights together, the output of the
    # activation is saved before and after its multiplication by the router weights (Megatron-LM,
    # moe/experts.py, bias_act_func).
    weighted = copies if model.ffn.gated else max(copies, 2.0 * program.weighted_copies)
    return (
        0.0,
        (saved + weighted) * width,
        saved * visits * model.expert_input_width + 2 * inputs * width,
        (2 * inputs + saved + copies) * own,
        2 * (1 + inputs) * width + 4 * visits * model.expert_input_width,
        router,
    )


def routing_bytes(count: int) -> int:
    """Return the bytes per token that the router saves for the backward pass.

    ``count`` is the number of experts. Activations of the experts are not included.
    """
    # Logits and weights in fp32, a routing map of one byte per expert, and 2 x count + 1 row
    # numbers of 4 bytes for the fused permutation (Megatron-LM, moe/token_dispatcher.py;
    # TransformerEngine, permutation.py). All except the logits match Megatron's functional-test
    # records to the byte.
    return 4 * count + 4 * count + count + 4 * (2 * count + 1)


def saved_activation_bytes(
    layer: LayerActivations, layout: Layout, layers: int, recomputed: int
) -> float:
    """Return the activation bytes that ``layers`` layers of a rank save per micro-batch.

    The recompute setting of the layout applies to ``recomputed`` of these layers. The other layers
    save all activations. The result depends on the setting:
    - full, method ``uniform``: the input of every block of layers is saved;
    - full, method ``block``: the input of every layer is saved;
    - selective, by module: all activations are saved except those of the selected modules;
    - selective, by operator (torchtitan): the layer input and the outputs of the attention core and
      of every second matrix product are saved.
    """
    recompute = layout.recompute
    if recompute.modules == OPERATORS:
        return layers * layer.operators
    away = layer.offloaded_bytes(layout)
    if recompute.granularity == "selective":
        return layers * (layer.total - layer.bytes_of_modules(recompute.modules) - away)
    if recompute.granularity == "none":
        return layers * (layer.total - away)
    depth = (recompute.layers or 1) if recompute.method == "uniform" else 1
    return recomputed / depth * layer.checkpoint + (layers - recomputed) * layer.total


def backward_working_bytes(layer: LayerActivations, layout: Layout) -> float:
    """Return the bytes of temporary tensors in one layer's backward pass.

    They are the recomputed activations of the layer and the gradients of activations.
    """
    recompute = layout.recompute
    again = 0.0
    if recompute.modules == OPERATORS:
        again = max(layer.total - layer.operators, 0.0)
    elif recompute.granularity == "selective":
        again = layer.bytes_of_modules(recompute.modules)
    elif recompute.granularity == "full":
        depth = (recompute.layers or 1) if recompute.method == "uniform" else 1
        # A block of ``depth`` layers is recomputed at once, so that all its activations exist
        # together.
        again = depth * layer.total
    # While the activations of one layer are in use, those of a second are copied to the host and
    # those of a third from the host (fine_grained_activation_offload.py, bulk_offload_group and
    # bulk_reload_group: two streams that run ahead by one layer).
    again += 3 * layer.offloaded_bytes(layout)
    return again + layer.transient
