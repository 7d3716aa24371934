"""Flag values that assign layers to stages; None and False omit a flag.

A model with a layer pattern has its stages in the pattern, and Megatron rejects the other flags
for it (megatron/training/arguments.py, validate_args).
"""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

BAR = "|"
"""Separator of stages in a pattern (models/hybrid/hybrid_layer_allocation.py)."""


def hybrid_pattern(problem: Problem, layout: Layout) -> str | None:
    """Return the letters of each stage in order, such as ``M-M*|M-M-``."""
    pattern, rows = problem.model.pattern, layout.split.chunks
    if not pattern:
        return None
    stages = sorted((chunk for row in rows for chunk in row), key=lambda chunk: chunk.first_layer)
    parts = (pattern[one.first_layer : one.first_layer + one.layers] for one in stages)
    return BAR.join(parts)


def virtual_stages(problem: Problem, layout: Layout) -> int | None:
    """Return the chunks per rank; None if a layout string or a pattern determines them."""
    implied = layout.split.form == "string" or problem.model.pattern
    return layout.vpp if layout.vpp > 1 and not implied else None


def embedding_counts(problem: Problem, layout: Layout) -> bool:
    """Count the embedding as a layer."""
    return layout.split.count_embedding and not problem.model.pattern


def loss_counts(problem: Problem, layout: Layout) -> bool:
    """Count the loss as a layer."""
    return layout.split.count_loss and not problem.model.pattern


def first_layers(problem: Problem, layout: Layout) -> int | None:
    """Return the layers of the first rank in all its chunks."""
    return layout.split.stage_layers(0) if _needs_end_flags(problem, layout) else None


def last_layers(problem: Problem, layout: Layout) -> int | None:
    """Return the layers of the last rank; None for two ranks, where the first determines them.

    With two ranks, both flags and vpp, Megatron divides by zero middle ranks.
    """
    needed = _needs_end_flags(problem, layout) and layout.pp > 2
    return layout.split.stage_layers(-1) if needed else None


def _needs_end_flags(problem: Problem, layout: Layout) -> bool:
    return layout.split.form == "first-last" and not problem.model.pattern


def layout_string(problem: Problem, layout: Layout) -> str | None:
    """Return the layout string, if the split has one."""
    return (layout.split.text or None) if not problem.model.pattern else None
