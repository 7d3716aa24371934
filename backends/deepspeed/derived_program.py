"""Computed values of ``train.json``; None leaves a key out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem


def routed_layers(problem: Problem, layout: Layout) -> list[int] | None:
    """Return the indices of the layers that have experts."""
    experts = problem.model.experts
    return [n for n, routed in enumerate(experts.pattern) if routed] if experts else None


def data_size(problem: Problem, layout: Layout) -> int:
    """Return the size of the data axis of the topology."""
    return layout.dp


def stage_layers(problem: Problem, layout: Layout) -> list[int]:
    """Return the decoder layers of each pipeline stage."""
    return [layout.split.stage_layers(stage) for stage in range(layout.pp)]


def recomputed(problem: Problem, layout: Layout) -> bool:
    """Return True if layers are recomputed in the backward pass."""
    return layout.recompute.granularity == "full"
