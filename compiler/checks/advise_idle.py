"""Say where a step would be shorter if some GPUs stayed idle."""

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
"""Share of a step that is worth the trouble (heuristic)."""
SMOOTH = (2, 3)
"""GPUs that have other prime factors ask for degrees that models and batches seldom divide by."""
MOST_GPUS = 8_192
"""Above it another search takes too long for a hint."""
TRIALS = 6
"""Numbers of replicas that are tried, from that of the plan upward."""


def advise_idle(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report G04 where fewer replicas than fill the cluster are predicted 5 % faster.

    All GPUs are used unless dp is pinned. On 63 hosts that makes a pipeline of 63 stages; 56 hosts
    with 7 stages are faster.
    """
    problem = plan.problem
    pinned = problem.pins.dp or problem.pins.pp or problem.goals.maximize == "fewest-gpus"
    gpus = problem.cluster.gpus
    if pinned or plan.layout.world < gpus or gpus > MOST_GPUS or _smooth(gpus):
        return
    now = plan.estimate.time.total_seconds + added_seconds(plan.estimate, plan.placement)
    found = [one for dp in _replicas(plan) if (one := _best(pricing, plan, dp)) is not None]
    best = min(found, key=_seconds, default=None)
    if best is None or _seconds(best) > (1 - LEAST_GAIN) * now:
        return
    layout = best.layout
    finding = Finding(
        message=f"a step would be shorter with {gpus - layout.world} of {gpus} GPUs idle",
        label=f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, dp {layout.dp}: "
        f"{_seconds(best):.3g} s in place of {now:.3g} s, {1 - _seconds(best) / now:.0%} less",
        help=f"degrees multiply to all {gpus} GPUs unless dp is pinned; hosts that stay idle may "
        "be listed under cluster.spare",
        fix=f"layout.dp: {layout.dp}",
    )
    sink.report("G04", finding, at="cluster")


def _smooth(gpus: int) -> bool:
    """Whether ``gpus`` has the prime factors of ``SMOOTH`` alone."""
    for prime in SMOOTH:
        while gpus % prime == 0:
            gpus //= prime
    return gpus == 1


def _replicas(plan: Plan) -> list[int]:
    """The next numbers of replicas that divide the batch."""
    batch, gpus = plan.problem.job.global_batch, plan.problem.cluster.gpus
    return [dp for dp in divisors(batch) if plan.layout.dp < dp <= gpus][:TRIALS]


def _best(pricing: Pricing, plan: Plan, dp: int) -> Candidate | None:
    """What the search takes with ``dp`` replicas."""
    problem = replace(plan.problem, pins=replace(plan.problem.pins, dp=dp))
    search = search_layouts(pricing_for(problem, pricing.framework), Sink())
    return None if search is None else search.ranked[0]


def _seconds(candidate: Candidate) -> float:
    return candidate.step_seconds + candidate.placed_seconds
