"""Tensor parallel sizes that a model and a cluster allow, for the help of a diagnostic."""

from __future__ import annotations

from parc.compiler.ir import Model, Problem

MAMBA_GROUPS = "groups of Mamba heads"


def domain_degrees(problem: Problem) -> list[int]:
    """Return the tensor parallel sizes that fit into one NVLink domain, divisible or not."""
    return list(range(1, max(problem.cluster.node.nvlink_domain, problem.cluster.node.gpus) + 1))


def mixer_head_counts(model: Model) -> tuple[tuple[str, int], ...]:
    """Return (description, count) of the heads of linear attention and Mamba layers.

    Tensor parallelism assigns whole heads to ranks, so that tp must divide each count. Heads of
    softmax attention are not included.
    """
    found: list[tuple[str, int]] = []
    if (linear := model.linear) is not None:
        found += [("key heads of linear attention", linear.key_heads)]
        found += [("value heads of linear attention", linear.value_heads)]
    if (mamba := model.mamba) is not None:
        found += [("Mamba heads", mamba.heads), (MAMBA_GROUPS, mamba.groups)]
    return tuple(found)


def valid_tp(problem: Problem) -> list[int]:
    """Return the tp sizes within one NVLink domain that divide all heads and widths.

    Key-value heads may also be fewer than tp, because ranks can hold copies of a head.
    """
    model = problem.model
    heads, kv = model.attention.heads, model.attention.kv_heads
    widths = [heads, *(count for _, count in mixer_head_counts(model))]
    if model.dense_layers:
        widths.append(model.ffn.size)
    if model.experts is not None:
        widths.append(model.experts.shared_size)
    # Latent attention has no key-value heads to split: every rank computes the compressed state.
    free = model.attention.latent is not None
    return [
        tp
        for tp in domain_degrees(problem)
        if not any(width % tp for width in widths) and (free or kv % tp == 0 or tp % kv == 0)
    ]
