"""Tensor degrees that a model and a cluster allow, for the help of a diagnostic."""

from __future__ import annotations

from parc.compiler.ir import Model, Problem

GROUPS = "groups of Mamba heads"


def domain_degrees(problem: Problem) -> list[int]:
    """Tensor degrees inside one NVLink domain."""
    return list(range(1, max(problem.cluster.node.nvlink_domain, problem.cluster.node.gpus) + 1))


def mixer_heads(model: Model) -> tuple[tuple[str, int], ...]:
    """(what, how many) of the heads that a degree cuts whole, those of attention apart."""
    found: list[tuple[str, int]] = []
    if (linear := model.linear) is not None:
        found += [("key heads of linear attention", linear.key_heads)]
        found += [("value heads of linear attention", linear.value_heads)]
    if (mamba := model.mamba) is not None:
        found += [("Mamba heads", mamba.heads), (GROUPS, mamba.groups)]
    return tuple(found)


def legal_tp(problem: Problem) -> list[int]:
    """Tensor degrees inside one NVLink domain that cut heads and widths whole."""
    model = problem.model
    heads, kv = model.attention.heads, model.attention.kv_heads
    widths = [heads, *(count for _, count in mixer_heads(model))]
    if model.dense_layers:
        widths.append(model.ffn.size)
    if model.experts is not None:
        widths.append(model.experts.shared_size)
    free = model.attention.latent is not None
    return [
        tp
        for tp in domain_degrees(problem)
        if not any(width % tp for width in widths) and (free or kv % tp == 0 or tp % kv == 0)
    ]
