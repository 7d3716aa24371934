"""Hint that the step would be at least 5 % shorter if some GPUs stayed idle."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Candidate, Plan
from parc.compiler.placement.score_placement import seconds_added_by_placement
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import divisors
from parc.compiler.search.search_layouts import search_layouts

MIN_GAIN = 0.05
"""Smallest fraction of the step time for which idle GPUs are suggested (heuristic)."""
COMMON_FACTORS = (2, 3)
"""Prime factors of most model dimensions and batch sizes. A number of GPUs with other prime factors
needs parallel sizes that seldom divide a model or a batch."""
MAX_GPUS = 8_192
"""Largest number of GPUs for which the hint is computed, because a second search takes time."""
MAX_DP_TRIALS = 6
"""Number of dp values that are tried, starting above dp of the plan."""


def advise_idle_gpus(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report if the step would be at least 5 % shorter with some GPUs idle (G04).

    The search uses all GPUs unless the spec fixes dp. On 63 hosts, this can lead to a pipeline of
    63 stages, although 7 stages on 56 hosts would be faster.
    """
    problem = plan.problem
    pinned = problem.pins.dp or problem.pins.pp or problem.goals.maximize == "fewest-gpus"
    gpus = problem.cluster.gpus
    # A plan with idle GPUs gets T15 instead. Numbers of GPUs with common factors split well.
    if pinned or plan.layout.world < gpus or gpus > MAX_GPUS or _has_only_common_factors(gpus):
        return
    now = plan.estimate.time.total_seconds + seconds_added_by_placement(
        plan.estimate, plan.placement
    )
    found = [
        one
        for dp in _larger_dp_values(plan)
        if (one := _best_layout_with_dp(cost_model, plan, dp)) is not None
    ]
    best = min(found, key=_seconds_with_placement, default=None)
    if best is None or _seconds_with_placement(best) > (1 - MIN_GAIN) * now:
        return
    layout = best.layout
    finding = Finding(
        message=f"the step would be shorter with {gpus - layout.world} of {gpus} GPUs idle",
        label=f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, dp {layout.dp}: "
        f"{_seconds_with_placement(best):.3g} s instead of {now:.3g} s per step, "
        f"{100 * (1 - _seconds_with_placement(best) / now):.0f} % less",
        help=f"PARC uses all {gpus} GPUs unless layout.dp is set; list hosts that stay idle under "
        "cluster.spare",
        fix=f"layout.dp: {layout.dp}",
    )
    sink.report("G04", finding, at="cluster")


def _has_only_common_factors(gpus: int) -> bool:
    """Return True if all prime factors of ``gpus`` are in ``COMMON_FACTORS``."""
    for prime in COMMON_FACTORS:
        while gpus % prime == 0:
            gpus //= prime
    return gpus == 1


def _larger_dp_values(plan: Plan) -> list[int]:
    """Return the first MAX_DP_TRIALS values of dp above that of the plan, in ascending order.

    Each value is a divisor of the global batch and at most the number of GPUs.
    """
    batch, gpus = plan.problem.job.global_batch, plan.problem.cluster.gpus
    return [dp for dp in divisors(batch) if plan.layout.dp < dp <= gpus][:MAX_DP_TRIALS]


def _best_layout_with_dp(cost_model: CostModel, plan: Plan, dp: int) -> Candidate | None:
    """Return the best layout with data-parallel size ``dp``; None if no such layout is valid."""
    problem = replace(plan.problem, pins=replace(plan.problem.pins, dp=dp))
    # A separate sink, because findings about a hypothetical layout must not be reported.
    search = search_layouts(cost_model_for(problem, cost_model.framework), Sink())
    return None if search is None else search.ranked[0]


def _seconds_with_placement(candidate: Candidate) -> float:
    """Return the seconds per step of ``candidate``, including the time that its placement adds."""
    return candidate.step_seconds + candidate.placed_seconds
