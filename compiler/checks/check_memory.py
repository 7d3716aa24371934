"""Warn where a plan may run out of memory: the limit lies inside the band of the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Plan
from parc.compiler.search.enumerate_layouts import recompute_levels

CLOSE = "G02"


def check_memory(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report the fullest stage where its high end exceeds the limit, with the cheapest remedy."""
    peak, limit = plan.estimate.peak, plan.estimate.limit_bytes
    if peak.high_bytes <= limit:
        return
    gpu, headroom = plan.problem.cluster.gpu, plan.problem.goals.memory_headroom
    finding = Finding(
        message=f"memory is close to the limit of {limit / 1e9:.1f} GB on pipeline rank "
        f"{peak.stage}: {peak.low_bytes / 1e9:.1f} to {peak.high_bytes / 1e9:.1f} GB",
        label=f"{peak.static_bytes / 1e9:.1f} GB of parameters and their state are exact, "
        f"{peak.dynamic_bytes / 1e9:.1f} GB are estimated",
        help=_remedy(pricing, plan),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name}: {gpu.memory_bytes / 1e9:.1f} GB less {headroom:.0%} headroom",
            ),
        ),
    )
    sink.report(CLOSE, finding, at="layout" if sink.positions.is_written("layout") else "cluster")


def _remedy(pricing: Pricing, plan: Plan) -> str:
    """The fastest alternative whose high end fits; of equals the first that is looked at."""
    safe = [
        (step_time(pricing, layout).total_seconds, index, layout)
        for index, layout in enumerate(_alternatives(pricing, plan))
        if peak_stage(pricing, layout).high_bytes <= plan.estimate.limit_bytes
    ]
    if not safe:
        return "no alternative is safer: more GPUs, or less of what is pinned"
    seconds, _, layout = min(safe)
    slower = seconds / plan.estimate.time.total_seconds - 1
    high = peak_stage(pricing, layout).high_bytes
    return f"{_words(layout, plan.layout)} needs {high / 1e9:.1f} GB at most, {slower:+.1%} time"


def _alternatives(pricing: Pricing, plan: Plan) -> Iterator[Layout]:
    """More recompute, then the other candidates of the search."""
    problem, framework, chosen = pricing.problem, pricing.framework, plan.layout.recompute
    levels, rules = recompute_levels(problem, framework), all_rules(problem, framework)
    for level in levels[levels.index(chosen) + 1 :] if chosen in levels else ():
        layout = replace(plan.layout, recompute=level)
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout
    for candidate in plan.search.ranked:
        if candidate.layout != plan.layout:
            yield candidate.layout


def _words(layout: Layout, chosen: Layout) -> str:
    """What ``layout`` does differently."""
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
