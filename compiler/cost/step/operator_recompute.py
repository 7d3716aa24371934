"""Matrix products that are repeated if operators are recomputed (torchtitan, SelectiveAC)."""

from __future__ import annotations

from parc.compiler.cost.counts.flops import layer_flops, projection_weights
from parc.compiler.ir import LayerKind, Model

UP_PROJECTION = 1 / 3
"""Share of a gated MLP's FLOPs in its second product, which has an even number: the products of a
layer are query, key, value, output, gate, up and down, or one product for query, key and value."""
SECOND_PRODUCT = 1 / 2
"""The same for an MLP of two products, whose second one has an even number."""


def recomputed_product_share(model: Model, kind: LayerKind) -> float:
    """Return the share of a layer's GEMMs, by FLOPs, that recompute of operators repeats.

    torchtitan saves the outputs of every second product and recomputes the others
    (distributed/activation_checkpoint.py, get_save_ops). Products of routed experts do not count
    here: all of them are recomputed. Products in 8 and 4 bit are other operators, whose outputs are
    all saved (torch, functorch/partitioners.py, compute_intensive_ops).
    """
    flops = layer_flops(model, kind, 1.0, 1)
    model = model.with_shapes_of(kind)
    total = flops.attention_projections + flops.mlp
    if not total:
        return 0.0
    repeated = (UP_PROJECTION if model.ffn.gated else SECOND_PRODUCT) * flops.mlp
    if kind.attends:
        repeated += 2.0 * _recomputed_projection_weights(model)
    return repeated / total


def _recomputed_projection_weights(model: Model) -> float:
    """Return the weights of the attention projections with an even number.

    They are those of keys and outputs. The projections of latent attention alternate between small
    and large ones in such a way that about half of their weights are recomputed.
    """
    attention = model.attention
    if attention.latent is not None:
        return projection_weights(model) / 2
    outputs = attention.heads * attention.value_width
    keys = attention.kv_heads * attention.head_dim
    return float(model.hidden * (keys + outputs))
