"""Relative computing load of layers: the number of matrix parameters that a token uses.

This approximation leaves out biases and norms. PARC uses an approximation, because layers are
assigned to stages before the cost model estimates times.
"""

from __future__ import annotations

from collections import Counter

from parc.compiler.ir import LayerKind, Model

SLOWER = 2
"""Time of token mixers and routed experts, relative to a dense GEMM with as many parameters. The
cost model gives 1.5 to 2.2 for Nemotron-H and Nemotron 3 Nano at 8,192 tokens."""


def loss_load(model: Model) -> int:
    """Return the computing load of the loss, in units of the model's mean layer.

    The formula is vocab x hidden / parameters of the mean layer, rounded to an integer.
    """
    return round(model.vocab * model.hidden / max(1, _mean_layer_load(model)))


def layer_loads(model: Model) -> tuple[float, ...]:
    """Return the computing load of each layer, relative to the mean load of all layers.

    Empty for a model without a layer pattern.
    """
    if not model.pattern:
        return ()
    mean = max(1, _mean_layer_load(model))
    loads = {kind: _pattern_layer_load(model, kind) for kind in model.kinds}
    return tuple(loads[kind] / mean for kind in model.layer_kinds)


def _mean_layer_load(model: Model) -> float:
    """Return the mean load of a layer, in parameters of a dense GEMM with the same run time.

    Without a layer pattern, the result is the number of parameters of the last layer, because MTP
    layers have the structure of the last layer.
    """
    if not model.pattern:
        return _layer_parameters(model, model.last_kind)
    counts = Counter(model.layer_kinds)
    return (
        sum(_pattern_layer_load(model, kind) * count for kind, count in counts.items())
        / model.layers
    )


def _pattern_layer_load(model: Model, kind: LayerKind) -> int:
    """Return the load of a layer, in parameters of a dense GEMM with the same run time."""
    dense = kind.mixer == "none" and not kind.routed
    return _layer_parameters(model, kind) * (1 if dense else SLOWER)


def _layer_parameters(model: Model, kind: LayerKind) -> int:
    return _mixer_parameters(model, kind) + _mlp_parameters(model, kind)


def _mixer_parameters(model: Model, kind: LayerKind) -> int:
    attention, hidden = model.attention, model.hidden
    if (part := model.recurrent_mixer(kind)) is not None:
        return hidden * (part.input_projection_width + part.inner_width)
    if kind.mixer == "none":
        return 0
    if (latent := attention.latent) is not None:
        query = latent.qk_nope_dim + latent.qk_rope_dim
        # An approximation of the low-rank projections: half of the uncompressed ones.
        return hidden * (attention.heads * (query + latent.qk_nope_dim + 2 * latent.v_dim) // 2)
    heads = attention.query_projection_heads + attention.heads + 2 * attention.kv_heads
    return hidden * attention.head_dim * heads


def _mlp_parameters(model: Model, kind: LayerKind) -> int:
    if kind.mlp == "none":
        return 0
    width = model.ffn.size
    if kind.routed and model.experts is not None:
        # A token passes only its top_k experts, so only their parameters count as load.
        routed = model.experts.top_k * model.experts.size
        width = routed * model.expert_input_width // model.hidden + model.experts.shared_size
    # A gated MLP has three matrices: gate, up and down.
    return (3 if model.ffn.gated else 2) * model.hidden * width
