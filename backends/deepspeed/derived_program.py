"""Functions that compute values of ``train.json``; None leaves the key out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem


def routed_layers(problem: Problem, layout: Layout) -> list[int] | None:
    """Return the 0-based indices of the layers with experts; None for a dense model."""
    experts = problem.model.experts
    return [n for n, routed in enumerate(experts.pattern) if routed] if experts else None


def data_parallel_size(problem: Problem, layout: Layout) -> int:
    """Return the data parallel size, the size of the data axis in ``train.json``."""
    return layout.dp


def stage_layers(problem: Problem, layout: Layout) -> list[int]:
    """Return the number of decoder layers of each pipeline stage, first stage first."""
    return [layout.split.stage_layers(stage) for stage in range(layout.pp)]


def recomputes_layers(problem: Problem, layout: Layout) -> bool:
    """Return True if the program recomputes all layers in the backward pass."""
    return layout.recompute.granularity == "full"
