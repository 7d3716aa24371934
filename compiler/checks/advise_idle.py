"""Hint: the step would be at least 5 % shorter if some GPUs stayed idle."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Candidate, Plan
from parc.compiler.placement.score_placement import added_seconds
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.search.enumerate_layouts import divisors
from parc.compiler.search.search_layouts import search_layouts

LEAST_GAIN = 0.05
"""Fraction of a step that is worth idle GPUs (heuristic)."""
SMOOTH = (2, 3)
"""Prime factors of common model and batch sizes. A number of GPUs with other prime factors needs
parallel sizes that seldom divide a model or a batch."""
MOST_GPUS = 8_192
"""GPUs above which another search takes too long for a hint."""
TRIALS = 6
"""Values of dp that are tried, upward from the one of the plan."""


def advise_idle(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report G04 if a layout that leaves GPUs idle is predicted at least 5 % faster.

    The search uses all GPUs unless dp is pinned. On 63 hosts that can mean a pipeline of 63 stages,
    although 56 hosts with 7 stages are faster.
    """
    problem = plan.problem
    pinned = problem.pins.dp or problem.pins.pp or problem.goals.maximize == "fewest-gpus"
    gpus = problem.cluster.gpus
    if pinned or plan.layout.world < gpus or gpus > MOST_GPUS or _is_smooth(gpus):
        return
    now = plan.estimate.time.total_seconds + added_seconds(plan.estimate, plan.placement)
    found = [one for dp in _replicas(plan) if (one := _best_with_dp(pricing, plan, dp)) is not None]
    best = min(found, key=_seconds, default=None)
    if best is None or _seconds(best) > (1 - LEAST_GAIN) * now:
        return
    layout = best.layout
    finding = Finding(
        message=f"the step would be shorter with {gpus - layout.world} of {gpus} GPUs idle",
        label=f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, dp {layout.dp}: "
        f"{_seconds(best):.3g} s instead of {now:.3g} s per step, "
        f"{100 * (1 - _seconds(best) / now):.0f} % less",
        help=f"PARC uses all {gpus} GPUs unless dp is pinned; list hosts that stay idle under "
        "cluster.spare",
        fix=f"layout.dp: {layout.dp}",
    )
    sink.report("G04", finding, at="cluster")


def _is_smooth(gpus: int) -> bool:
    """Return True if ``gpus`` has no other prime factors than ``SMOOTH``."""
    for prime in SMOOTH:
        while gpus % prime == 0:
            gpus //= prime
    return gpus == 1


def _replicas(plan: Plan) -> list[int]:
    """Return the next larger values of dp that divide the batch."""
    batch, gpus = plan.problem.job.global_batch, plan.problem.cluster.gpus
    return [dp for dp in divisors(batch) if plan.layout.dp < dp <= gpus][:TRIALS]


def _best_with_dp(pricing: Pricing, plan: Plan, dp: int) -> Candidate | None:
    """Return the best layout with ``dp`` replicas; None if none fits."""
    problem = replace(plan.problem, pins=replace(plan.problem.pins, dp=dp))
    # A separate sink: findings about a hypothetical layout must not be reported.
    search = search_layouts(pricing_for(problem, pricing.framework), Sink())
    return None if search is None else search.ranked[0]


def _seconds(candidate: Candidate) -> float:
    """Return the seconds per step, including what the placement adds."""
    return candidate.step_seconds + candidate.placed_seconds
