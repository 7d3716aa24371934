"""Values of ``train.json`` that are more than a field of the plan; None leaves a key out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem


def routed_layers(problem: Problem, layout: Layout) -> list[int] | None:
    """Indices of the layers that route to experts."""
    experts = problem.model.experts
    return [n for n, routed in enumerate(experts.pattern) if routed] if experts else None


def data_size(problem: Problem, layout: Layout) -> int:
    """The data axis of the topology."""
    return layout.dp


def stage_layers(problem: Problem, layout: Layout) -> list[int]:
    """Decoder layers of each stage of the pipeline."""
    return [layout.split.stage_layers(stage) for stage in range(layout.pp)]


def recomputed(problem: Problem, layout: Layout) -> bool:
    """Whether layers are computed again in the backward pass."""
    return layout.recompute.granularity == "full"
