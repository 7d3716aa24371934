"""Hint that a dispatch library (DeepEP or HybridEP) would make the step at least 5 % shorter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Plan, Problem
from parc.compiler.ir.problem import Dispatcher
from parc.compiler.resolve.resolve_kernels import cost_model_for

DISPATCH_LIBRARIES: tuple[Dispatcher, ...] = ("hybridep", "deepep")
"""Dispatchers that ``auto`` never chooses, because users must install them on every host."""
MIN_GAIN = 0.05
"""Smallest fraction of the step time that makes the installation of a library worthwhile
(heuristic)."""


def advise_dispatch_library(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report that DeepEP or HybridEP would make the step at least 5 % shorter (M16)."""
    problem, layout = plan.problem, plan.layout
    # The user decided on an explicit dispatcher, so no hint is given.
    if problem.job.moe_dispatcher != "auto" or layout.ep == 1:
        return
    now = plan.estimate.time.total_seconds
    offers = (
        (step_time(cost_model_for(other, cost_model.framework), layout).total_seconds, other)
        for other in _obstacles_to_library(cost_model, plan)
    )
    seconds, best = min(offers, key=lambda offer: offer[0], default=(now, problem))
    if seconds > (1 - MIN_GAIN) * now:
        return
    name = best.job.moe_dispatcher
    finding = Finding(
        message=f"{name} would dispatch tokens to experts faster than all-to-all",
        label=f"{seconds:.3g} s per step instead of {now:.3g} s with this layout, "
        f"{100 * (1 - seconds / now):.0f} % less",
        help=f"{name} must be installed on every host; to turn off this hint, "
        "set moe_dispatcher to alltoall",
        fix=f"job.moe_dispatcher: {name}",
    )
    sink.report("M16", finding, at="job")


def _obstacles_to_library(cost_model: CostModel, plan: Plan) -> Iterator[Problem]:
    """Yield a copy of the problem for each dispatch library that can be used.

    The framework and the GPUs must support the library.
    """
    problem = plan.problem
    for name in DISPATCH_LIBRARIES:
        other = replace(problem, job=replace(problem.job, moe_dispatcher=name))
        # The framework rejects a library that its version or the GPU generation does not support.
        rules = cost_model.framework.rules(other)
        if not any(rule.broken(other, plan.layout) for rule in rules):
            yield other
