"""Shapes of the weights that Megatron-Core's linear layers hold on one rank: (rows, columns).

Rows are outputs. Column-parallel layers split rows, row-parallel layers columns; the router and
the norms are no linear layers of TransformerEngine.
"""

from __future__ import annotations

from parc.compiler.cost.kernels.recurrence import recurrence
from parc.compiler.cost.setup.stages import StageLoad
from parc.compiler.ir import LayerKind, Layout, Model

Shapes = set[tuple[int, int]]


def weight_shapes(model: Model, layout: Layout, load: StageLoad, vocab: int) -> Shapes:
    """Distinct shapes of a stage; ``vocab`` is padded as the framework pads it."""
    shapes: Shapes = set()
    for kind in load.by_kind(model):
        shapes |= _mixer(model, kind, layout.tp)
        if kind.routed:
            shapes |= _experts(model, layout)
        elif kind.mlp == "dense":
            shapes |= _mlp(model, model.ffn.size // layout.tp)
    if load.mtp_layers:
        shapes.add((model.hidden // layout.tp, 2 * model.hidden))
    if load.loss:
        shapes.add((vocab // layout.tp, model.hidden))
    return shapes


def _mlp(model: Model, width: int) -> Shapes:
    return {(2 * width if model.ffn.gated else width, model.hidden), (model.hidden, width)}


def _experts(model: Model, layout: Layout) -> Shapes:
    experts = model.experts
    assert experts is not None
    shapes = _mlp(model, experts.size // layout.etp)
    return shapes | _mlp(model, experts.shared_size // layout.tp) if experts.shared_size else shapes


def _mixer(model: Model, kind: LayerKind, tp: int) -> Shapes:
    if kind.mixer == "attention":
        return _attention(model, tp)
    part = recurrence(model, kind)
    if part is None:
        return set()
    return {(part.projected // tp, model.hidden), (model.hidden, part.inner // tp)}


def _attention(model: Model, tp: int) -> Shapes:
    attention, hidden = model.attention, model.hidden
    latent, heads = attention.latent, attention.heads // tp
    if latent is None:
        fused = (attention.projected_heads + 2 * attention.kv_heads) * attention.head_dim // tp
        return {(fused, hidden), (hidden, heads * attention.head_dim)}
    query = heads * (latent.qk_nope_dim + latent.qk_rope_dim)
    rank = latent.q_lora_rank or hidden
    return {
        (query, rank),
        (latent.kv_lora_rank + latent.qk_rope_dim, hidden),
        (heads * (latent.qk_nope_dim + latent.v_dim), latent.kv_lora_rank),
        (hidden, heads * latent.v_dim),
    } | ({(rank, hidden)} if latent.q_lora_rank else set())
