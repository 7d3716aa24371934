"""Activation bytes that the backward pass needs, one layer and one micro-batch.

Korthikanti et al. 2022 (arXiv:2205.05198) with flash attention, no dropout, grouped-query and
latent attention, gated MLPs and experts. Terms, for T tokens on the rank (sequence x micro-batch /
cp), width h, tensor parallelism t; ``/t`` on T h terms only with sequence parallelism:
norm inputs and outputs 2 (2Th)/t each half; Q, K, V, O 2T(2aD + 2g'D)/t with g' = max(g, t);
softmax statistics 4Ta/t; MLP (2(G-1) + 2) T f/t with G = 3 gated, 2 plain.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Layout, Model


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes by module, so that recompute can subtract modules by name."""

    layernorm: float
    """Outputs of the norms."""
    residual: float
    """Inputs of the norms: the residual stream."""
    core_attn: float
    """Softmax statistics of the fused core."""
    attention: float
    """Inputs and outputs of the projections; latent attention: its latents and the output."""
    mla_up_proj: float
    mlp: float
    """Dense MLP without its input."""
    moe_act: float
    moe: float
    """Routed experts without the activation function's input."""
    shared_experts: float

    @property
    def total(self) -> float:
        """Without recompute."""
        return self.saved_by(MODULES)

    def saved_by(self, modules: tuple[str, ...]) -> float:
        """Bytes of ``modules`` together; ``moe`` covers moe_act and shared_experts."""
        names = set(modules)
        if "moe" in names:
            names |= {"moe_act", "shared_experts"}
        return sum(float(getattr(self, name)) for name in sorted(names.intersection(MODULES)))


MODULES = tuple(LayerActivations.__dataclass_fields__)


def layer_activations(
    model: Model, layout: Layout, routed: bool, tokens: float
) -> LayerActivations:
    """Bytes on one rank for ``tokens`` tokens (already divided by cp) of one layer."""
    t = layout.tp
    stream = 2 * tokens * model.hidden / (t if layout.sequence_parallel else 1)
    attention, up_projection = _attention(model, t, tokens)
    gate = 3 if model.ffn.gated else 2
    experts = model.experts
    mlp = moe_act = moe = shared = 0.0
    if routed and experts is not None:
        # Each rank of an expert group brings its own tokens, so ep does not shrink these.
        visits = experts.top_k * tokens / t * (layout.etp if layout.etp > 1 else 1)
        width = experts.size / layout.etp
        moe_act = 2 * visits * width
        # Router weights are applied inside the experts, so their outputs are not kept.
        moe = 2 * visits * (model.hidden + (gate - 1) * width) + 4 * tokens * experts.count / t
        shared = (2 * (gate - 1) + 2) * tokens * experts.shared_size / t
    else:
        mlp = (2 * (gate - 1) + 2) * tokens * model.ffn.size / t
    return LayerActivations(
        layernorm=2 * stream,
        residual=2 * stream,
        core_attn=4 * tokens * model.attention.heads / t,
        attention=attention,
        mla_up_proj=up_projection,
        mlp=mlp,
        moe_act=moe_act,
        moe=moe,
        shared_experts=shared,
    )


def _attention(model: Model, t: int, tokens: float) -> tuple[float, float]:
    """(projections and output, what recomputing the latent up-projection frees)."""
    attention = model.attention
    latent = attention.latent
    if latent is None:
        keys = max(attention.kv_heads, t)
        width = 2 * attention.heads + 2 * keys
        return 2 * tokens * width * attention.head_dim / t, 0.0
    latents = 2 * tokens * ((latent.q_lora_rank or 0) + latent.kv_lora_rank + latent.qk_rope_dim)
    query = latent.qk_nope_dim + latent.qk_rope_dim
    expanded = 2 * tokens * attention.heads * (2 * query + latent.v_dim) / t
    return latents + 2 * tokens * attention.heads * latent.v_dim / t, expanded


def stored_bytes(layers: LayerActivations, layout: Layout) -> float:
    """Bytes that one layer keeps until its backward pass, under the layout's recompute."""
    recompute = layout.recompute
    if recompute.granularity == "full":
        return layers.residual / 2
    if recompute.granularity == "selective":
        return layers.total - layers.saved_by(recompute.modules)
    return layers.total
