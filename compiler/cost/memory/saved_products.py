"""Outputs of matrix products that recompute by operator saves (torchtitan's selective mode)."""

from __future__ import annotations

from parc.compiler.ir import LayerKind, Layout, Model, ProgramMemory


def saved_product_bytes(
    model: Model, layout: Layout, kind: LayerKind, tokens: float, program: ProgramMemory
) -> float:
    """Return the bytes that recompute by operator saves in one layer, besides input and statistics.

    torchtitan saves the output of the attention core, those of every second matrix product, and
    those of the all-to-alls between experts (distributed/activation_checkpoint.py). Products of
    the router and of routed experts are recomputed, because grouped products are not in torch's
    list of operators (functorch/partitioners.py, compute_intensive_ops).
    """
    if not program.saves_products and kind.routed:
        return 2 * tokens * _core_width(model) / layout.tp
    width = _saved_attention_width(model, layout, program) / layout.tp
    # The output of the last product is not divided by tp, because each rank has a full-size partial
    # sum.
    last = model.hidden if program.last_product else 0
    if kind.routed and model.experts is not None:
        experts = model.experts
        width += experts.shared_size / layout.tp
        last *= experts.shared_size > 0
        visits = program.routed_load * experts.top_k / layout.tp * layout.etp
        exchanges = layout.ep > 1 and program.saves_exchanges
        width += 2 * visits * model.expert_input_width * exchanges
    else:
        width += model.ffn.size / layout.tp
    return 2 * tokens * (width + last)


def _core_width(model: Model) -> int:
    """Return the elements per token of the output of the attention core."""
    latent = model.attention.latent
    return model.attention.heads * (latent.v_dim if latent else model.attention.head_dim)


def _saved_attention_width(model: Model, layout: Layout, program: ProgramMemory) -> float:
    """Return the elements per token that recompute by operator saves in attention.

    They are the outputs of the core and of the products with odd numbers: torchtitan numbers query,
    key, value (or one fused product) and output. Latent attention has a product per projection.
    """
    attention = model.attention
    latent = attention.latent
    if latent is None:
        # With fewer key-value heads than ranks, every rank computes a whole head.
        keys = max(attention.kv_heads, layout.tp) * (2 if program.fused_projection else 1)
        return (2 * attention.heads + keys) * attention.head_dim
    core = _core_width(model)
    if latent.q_lora_rank:
        down = latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_dim
        return core + down + model.hidden
    query = latent.qk_nope_dim + latent.qk_rope_dim
    return core + attention.heads * (query + latent.qk_nope_dim + latent.v_dim)
