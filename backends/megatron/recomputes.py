"""Levels of activation recompute that are tried where none is pinned."""

from __future__ import annotations

from parc.compiler.ir import NO_RECOMPUTE, Model, Recompute


def recomputes(model: Model) -> tuple[Recompute, ...]:
    """From nothing to everything, in the order of their cost.

    Light modules stream and cost little; heavy ones run the MLP or the experts again. In a pattern
    only layers of experts have a norm of its own that can be computed again: elsewhere it is a part
    of the linear layer behind it (models/hybrid/hybrid_layer_specs.py).
    """
    light = set() if model.pattern and not model.moe_layers else {"layernorm"}
    if model.attention.latent is not None:
        light.add("mla_up_proj")
    heavy = light | ({"moe"} if model.moe_layers else set())
    if model.dense_layers:
        heavy = heavy | {"mlp"}
    if model.moe_layers:
        light = light | {"moe_act"}
    levels = [tuple(sorted(names)) for names in (light, heavy) if names]
    selective = (Recompute("selective", names) for names in dict.fromkeys(levels))
    return (NO_RECOMPUTE, *selective, Recompute("full", (), "uniform", 1))
