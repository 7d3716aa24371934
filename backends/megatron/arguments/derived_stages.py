"""Values of flags that say which stage holds which layers. Each function: problem, layout.

A model with a pattern of layers has its stages in the pattern, and takes none of the other flags
(megatron/training/arguments.py, validate_args).
"""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

BAR = "|"
"""Ends a stage of a pattern (models/hybrid/hybrid_layer_allocation.py)."""


def hybrid_pattern(problem: Problem, layout: Layout) -> str | None:
    """``M-M*|M-M-``: the letters of each stage, in the order of the stages."""
    pattern, rows = problem.model.pattern, layout.split.chunks
    if not pattern:
        return None
    stages = sorted((chunk for row in rows for chunk in row), key=lambda chunk: chunk.first_layer)
    parts = (pattern[one.first_layer : one.first_layer + one.layers] for one in stages)
    return BAR.join(parts)


def virtual_stages(problem: Problem, layout: Layout) -> int | None:
    """Chunks a rank; a layout string or a pattern says it by itself."""
    said = layout.split.form == "string" or problem.model.pattern
    return layout.vpp if layout.vpp > 1 and not said else None


def embedding_counts(problem: Problem, layout: Layout) -> bool:
    """The embedding counts as a layer."""
    return layout.split.count_embedding and not problem.model.pattern


def loss_counts(problem: Problem, layout: Layout) -> bool:
    """The loss counts as a layer."""
    return layout.split.count_loss and not problem.model.pattern


def first_layers(problem: Problem, layout: Layout) -> int | None:
    """Layers of the first rank, all its chunks together."""
    return layout.split.stage_layers(0) if _says_ends(problem, layout) else None


def last_layers(problem: Problem, layout: Layout) -> int | None:
    """Layers of the last rank; of two ranks the first says it (both with vpp divide by zero)."""
    said = _says_ends(problem, layout) and layout.pp > 2
    return layout.split.stage_layers(-1) if said else None


def _says_ends(problem: Problem, layout: Layout) -> bool:
    return layout.split.form == "first-last" and not problem.model.pattern


def layout_string(problem: Problem, layout: Layout) -> str | None:
    """The whole placement."""
    return (layout.split.text or None) if not problem.model.pattern else None
