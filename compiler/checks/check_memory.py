"""Warning that a plan may run out of memory, because the estimate is close to the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Plan
from parc.compiler.search.enumerate_layouts import recompute_levels

GIB = 2**30


def check_memory(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report if the fullest pipeline stage might exceed the memory limit (G02).

    The check uses the high end of the memory estimate. The finding suggests the fastest layout
    whose high end is below the limit.
    """
    peak, limit = plan.estimate.peak, plan.estimate.limit_bytes
    if peak.high_bytes <= limit:
        return
    gpu, headroom = plan.problem.cluster.gpu, plan.problem.goals.memory_headroom
    finding = Finding(
        message=f"pipeline stage {peak.stage} needs {peak.low_bytes / GIB:.1f} to "
        f"{peak.high_bytes / GIB:.1f} GiB of memory; the limit is {limit / GIB:.1f} GiB",
        label=f"{peak.static_bytes / GIB:.1f} GiB for parameters and their state are exact, "
        f"{peak.dynamic_bytes / GIB:.1f} GiB for activations and buffers are estimated",
        help=_suggest_safer_layout(cost_model, plan),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, of which {headroom:.0%} "
                "stay free as headroom",
            ),
        ),
    )
    sink.report(
        "G02", finding, at="layout" if sink.positions.is_path_in_spec("layout") else "cluster"
    )


def _suggest_safer_layout(cost_model: CostModel, plan: Plan) -> str:
    """Return a help text with the fastest layout whose high memory estimate is below the limit."""
    safe = [
        (step_time(cost_model, layout).total_seconds, index, layout)
        for index, layout in enumerate(_alternative_layouts(cost_model, plan))
        if peak_stage(cost_model, layout).high_bytes <= plan.estimate.limit_bytes
    ]
    if not safe:
        return "no alternative layout is safer; use more GPUs, or set fewer fields of layout"
    # On a tie, the index prefers the smaller change: more recomputation comes before other layouts.
    seconds, _, layout = min(safe)
    slower = seconds / plan.estimate.time.total_seconds - 1
    high = peak_stage(cost_model, layout).high_bytes
    words = _format_layout_differences(layout, plan.layout)
    return f"{words}: needs at most {high / GIB:.1f} GiB, step time {100 * slower:+.1f} %"


def _alternative_layouts(cost_model: CostModel, plan: Plan) -> Iterator[Layout]:
    """Yield layouts that might need less memory than the plan.

    First come copies of the plan's layout with more recomputation, then the other candidates of the
    search.
    """
    problem, framework, chosen = cost_model.problem, cost_model.framework, plan.layout.recompute
    levels, rules = recompute_levels(problem, framework), all_rules(problem, framework)
    for level in levels[levels.index(chosen) + 1 :] if chosen in levels else ():
        layout = replace(plan.layout, recompute=level)
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout
    for candidate in plan.search.ranked:
        if candidate.layout != plan.layout:
            yield candidate.layout


def _format_layout_differences(layout: Layout, chosen: Layout) -> str:
    """Return the values of ``layout`` that differ from those of ``chosen``, as text."""
    names = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "micro_batch")
    words = [
        f"{name} {getattr(layout, name)}"
        for name in names
        if getattr(layout, name) != getattr(chosen, name)
    ]
    recompute = layout.recompute
    if recompute != chosen.recompute:
        modules = "+".join(recompute.modules)
        words.append(f"recompute {recompute.granularity}" + (f" {modules}" if modules else ""))
    return ", ".join(words)
