"""Levels of activation recompute that are tried where none is pinned."""

from __future__ import annotations

from parc.compiler.ir import NO_RECOMPUTE, Model, Recompute


def recomputes(model: Model) -> tuple[Recompute, ...]:
    """From nothing to everything, in the order of their cost.

    Light modules stream and cost little; heavy ones run the MLP or the experts again.
    """
    light = {"layernorm"}
    if model.attention.latent is not None:
        light.add("mla_up_proj")
    heavy = light | ({"moe"} if model.moe_layers else set())
    if model.dense_layers:
        heavy = heavy | {"mlp"}
    if model.moe_layers:
        light = light | {"moe_act"}
    selective = (Recompute("selective", tuple(sorted(names))) for names in (light, heavy))
    return (NO_RECOMPUTE, *selective, Recompute("full", (), "uniform", 1))
