"""Levels of activation recompute that are tried where none is pinned."""

from __future__ import annotations

from parc.compiler.ir import NO_RECOMPUTE, Model, Recompute


def has_own_norms(model: Model) -> bool:
    """Whether a norm is a layer of its own and not a part of the product behind it."""
    return any(sum(model.fused_norms(kind)) < kind.parts for kind in model.kinds)


def recomputes(model: Model) -> tuple[Recompute, ...]:
    """From nothing to everything, in the order of their cost.

    Light modules stream and cost little; heavy ones run the MLP or the experts again. Only experts
    and latent attention have a norm before them that can be computed again.
    """
    light = {"layernorm"} if has_own_norms(model) else set()
    if model.attention.latent is not None:
        light.add("mla_up_proj")
    heavy = light | ({"moe"} if model.moe_layers else set())
    if model.dense_layers:
        heavy = heavy | {"mlp"}
    if model.moe_layers:
        light = light | {"moe_act"}
    levels = [tuple(sorted(names)) for names in (light, heavy) if names]
    selective = (Recompute.selective(names) for names in dict.fromkeys(levels))
    return (NO_RECOMPUTE, *selective, Recompute("full", (), "uniform", 1))
