"""Tensor parallel sizes that a model and a cluster allow, for the help of diagnostics."""

from __future__ import annotations

from parc.compiler.ir import Model, Problem

MAMBA_GROUPS = "groups of Mamba heads"


def tp_sizes_within_domain(problem: Problem) -> list[int]:
    """Return all tensor parallel sizes up to the number of GPUs in one NVLink domain.

    Without NVLink, the limit is the number of GPUs of a host. The sizes need not divide the
    dimensions of the model.
    """
    return list(range(1, max(problem.cluster.node.nvlink_domain, problem.cluster.node.gpus) + 1))


def mixer_head_counts(model: Model) -> tuple[tuple[str, int], ...]:
    """Return (description, number of heads) for each kind of head in recurrent layers.

    Recurrent layers are linear attention and Mamba layers. tp must divide each number, because
    tensor parallelism assigns whole heads to ranks. Heads of softmax attention are not included.
    """
    found: list[tuple[str, int]] = []
    if (linear := model.linear) is not None:
        found += [("key heads of linear attention", linear.key_heads)]
        found += [("value heads of linear attention", linear.value_heads)]
    if (mamba := model.mamba) is not None:
        found.append(("Mamba heads", mamba.heads))
        found += [] if mamba.step_rank else [(MAMBA_GROUPS, mamba.groups)]
    return tuple(found)


def valid_tp(problem: Problem) -> list[int]:
    """Return the tp sizes within one NVLink domain that divide all head counts and MLP widths.

    tp can also be a multiple of the number of key-value heads, because several ranks can store
    copies of one key-value head.
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
        for tp in tp_sizes_within_domain(problem)
        if not any(width % tp for width in widths) and (free or kv % tp == 0 or tp % kv == 0)
    ]
