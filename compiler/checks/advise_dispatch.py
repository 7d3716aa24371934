"""Say where another way of carrying tokens to their experts would save a good part of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Plan, Problem
from parc.compiler.ir.problem import Dispatcher
from parc.compiler.resolve.resolve_kernels import pricing_for

LIBRARIES: tuple[Dispatcher, ...] = ("hybridep", "deepep")
"""What ``auto`` never takes: libraries that somebody has to build and install."""
LEAST_GAIN = 0.05
"""Share of a step that is worth the trouble (heuristic)."""


def advise_dispatch(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report M16 where the layout with DeepEP or HybridEP is predicted 5 % faster than it is."""
    problem, layout = plan.problem, plan.layout
    if problem.job.moe_dispatcher != "auto" or layout.ep == 1:
        return
    now = plan.estimate.time.total_seconds
    offers = (
        (step_time(pricing_for(other, pricing.framework), layout).total_seconds, other)
        for other in _others(pricing, plan)
    )
    seconds, best = min(offers, key=lambda offer: offer[0], default=(now, problem))
    if seconds > (1 - LEAST_GAIN) * now:
        return
    name = best.job.moe_dispatcher
    finding = Finding(
        message=f"{name} would carry tokens to their experts faster than all-to-all",
        label=f"this layout: {seconds:.3g} s a step in place of {now:.3g} s, "
        f"{100 * (1 - seconds / now):.0f} % less",
        help=f"{name} has to be installed on every host; naming alltoall ends this hint",
        fix=f"job.moe_dispatcher: {name}",
    )
    sink.report("M16", finding, at="job")


def _others(pricing: Pricing, plan: Plan) -> Iterator[Problem]:
    """The problem with another dispatcher, where the framework has it and the GPUs run it."""
    problem = plan.problem
    for name in LIBRARIES:
        other = replace(problem, job=replace(problem.job, moe_dispatcher=name))
        rules = pricing.framework.rules(other)
        if not any(rule.broken(other, plan.layout) for rule in rules):
            yield other
