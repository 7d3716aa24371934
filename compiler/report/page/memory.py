"""Chart of the memory per GPU, by pipeline stage and item."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.cost.step.terms import TERMS
from parc.compiler.ir import Plan, ServingPlan, StageMemory
from parc.compiler.report.formatting import GIB, format_gib
from parc.compiler.report.page.figure import BarChart, Figure, LimitLine, StackedBar, bar_chart

INKS = {
    "weights_bytes": "k1",
    "casts_bytes": "k2",
    "gathered_bytes": "k3",
    "gradients_bytes": "k4",
    "optimizer_bytes": "k5",
    "activations_bytes": "k6",
    "logits_bytes": "k7",
    "workspace_bytes": "k8",
    "communication_bytes": "k9",
    "framework_bytes": "k10",
    "fragmentation_bytes": "k11",
}
"""Memory term -> CSS class, from the bottom of a bar to its top."""
CACHE_INKS = (("weights", "k1"), ("step and buffers", "k6"), ("KV cache", "k4"))
MAX_COLUMNS = 160


class MemoryChart(NamedTuple):
    """Memory figure and its legend, which lists (name, CSS class) from the bottom item up."""

    figure: Figure
    legend: tuple[tuple[str, str], ...]
    left_out: int
    """Number of stages that are not drawn, because MAX_COLUMNS are drawn at most."""


def memory_chart(plan: Plan) -> MemoryChart:
    """Draw the memory of each pipeline stage as a bar, with a line at the memory of the GPU.

    If the spec sets ``goals.memory_headroom``, a second line shows the memory that this headroom
    leaves.
    """
    estimate = plan.estimate
    gpu = plan.problem.cluster.gpu.memory_bytes
    used = [name for name in INKS if any(getattr(one, name) for one in estimate.memory)]
    bars = tuple(_stage_bar(stage, used) for stage in estimate.memory[:MAX_COLUMNS])
    marks = [LimitLine(gpu / GIB, f"GPU {format_gib(gpu)}", "edge")]
    # Without a required headroom the limit equals the memory of the GPU.
    if plan.problem.goals.memory_headroom:
        marks.append(
            LimitLine(
                estimate.limit_bytes / GIB, f"limit {format_gib(estimate.limit_bytes)}", "mark"
            )
        )
    title = f"memory per GPU by pipeline stage, at most {format_gib(estimate.peak.total_bytes)}"
    inks = tuple(INKS[name] for name in used)
    chart = BarChart(title, "GiB", "pipeline stage", inks, bars, tuple(marks))
    legend = tuple((TERMS[name].title, INKS[name]) for name in used)
    return MemoryChart(bar_chart(chart), legend, max(0, len(estimate.memory) - MAX_COLUMNS))


def _stage_bar(stage: StageMemory, names: list[str]) -> StackedBar:
    sizes = tuple(getattr(stage, name) / GIB for name in names)
    parts = ", ".join(
        f"{TERMS[name].title} {format_gib(getattr(stage, name))}"
        for name in names
        if getattr(stage, name)
    )
    return StackedBar(
        str(stage.stage), sizes, f"stage {stage.stage}: {format_gib(stage.total_bytes)}; {parts}"
    )


def cache_chart(plan: ServingPlan) -> MemoryChart:
    """Draw the memory of each pipeline stage of a serving engine as a bar.

    A bar stacks weights, step and buffers, and KV cache.
    """
    gpu = plan.problem.cluster.gpu.memory_bytes
    budget = gpu * plan.limits.gpu_memory_utilization
    bars = tuple(
        StackedBar(
            str(stage.stage),
            tuple(
                size / GIB
                for size in (stage.weights_bytes, stage.overhead_bytes, stage.cache_bytes)
            ),
            f"stage {stage.stage}: weights {format_gib(stage.weights_bytes)}, step and buffers "
            f"{format_gib(stage.overhead_bytes)}, cache {format_gib(stage.cache_bytes)}, "
            f"{stage.blocks:,} blocks",
        )
        for stage in plan.stages[:MAX_COLUMNS]
    )
    marks = (
        LimitLine(gpu / GIB, f"GPU {format_gib(gpu)}", "edge"),
        LimitLine(budget / GIB, f"budget {format_gib(budget)}", "mark"),
    )
    inks = tuple(ink for _, ink in CACHE_INKS)
    chart = BarChart("memory per GPU by pipeline stage", "GiB", "pipeline stage", inks, bars, marks)
    return MemoryChart(bar_chart(chart), CACHE_INKS, max(0, len(plan.stages) - MAX_COLUMNS))
