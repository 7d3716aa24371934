"""Functions that compute flags on pipeline stages; None and False omit a flag.

If the model has a layer pattern, bars in the pattern separate the stages, and Megatron rejects all
other flags on stages (megatron/training/arguments.py, validate_args).
"""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

BAR = "|"
"""Separator of stages in a layer pattern (models/hybrid/hybrid_layer_allocation.py)."""


def hybrid_pattern(problem: Problem, layout: Layout) -> str | None:
    """Return the layer letters of all stages, such as ``M-M*|M-M-``; None without a layer pattern.

    A bar separates two stages.
    """
    pattern, rows = problem.model.pattern, layout.split.chunks
    if not pattern:
        return None
    # Bars separate stages in model order; with vpp, stage k is chunk k // pp of rank k % pp, so
    # rows are interleaved.
    stages = sorted((chunk for row in rows for chunk in row), key=lambda chunk: chunk.first_layer)
    parts = (pattern[one.first_layer : one.first_layer + one.layers] for one in stages)
    return BAR.join(parts)


def virtual_stages(problem: Problem, layout: Layout) -> int | None:
    """Return the number of model chunks per pipeline rank; None to omit the flag.

    The flag is omitted if the number is 1. It is also omitted if a layout string or a layer pattern
    determines the number.
    """
    # Megatron accepts at most one of its three flags for virtual stages.
    implied = layout.split.form == "string" or problem.model.pattern
    return layout.vpp if layout.vpp > 1 and not implied else None


def embedding_counts_as_layer(problem: Problem, layout: Layout) -> bool:
    """Return True if the embedding counts as one layer in Megatron's split of the layers."""
    return layout.split.count_embedding and not problem.model.pattern


def loss_counts_as_layer(problem: Problem, layout: Layout) -> bool:
    """Return True if the loss counts as one layer in Megatron's split of the layers."""
    return layout.split.count_loss and not problem.model.pattern


def first_rank_layers(problem: Problem, layout: Layout) -> int | None:
    """Return the number of layers of the first pipeline rank, in all its chunks together.

    None unless the split sets the layers of the first and the last rank.
    """
    return layout.split.stage_layers(0) if _needs_end_flags(problem, layout) else None


def last_rank_layers(problem: Problem, layout: Layout) -> int | None:
    """Return the number of layers of the last pipeline rank, in all its chunks together.

    None unless the split sets the layers of the first and the last rank. Also None for two pipeline
    ranks: with vpp above 1, Megatron would divide by the number of middle ranks, which is 0.
    """
    needed = _needs_end_flags(problem, layout) and layout.pp > 2
    return layout.split.stage_layers(-1) if needed else None


def _needs_end_flags(problem: Problem, layout: Layout) -> bool:
    return layout.split.form == "first-last" and not problem.model.pattern


def layout_string(problem: Problem, layout: Layout) -> str | None:
    """Return the pipeline layout string of the split; None if the split needs no such string."""
    return (layout.split.text or None) if not problem.model.pattern else None
