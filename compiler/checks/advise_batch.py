"""Hint at a global batch close to that of the spec which more data-parallel ranks can divide.

The data-parallel size divides the global batch. A batch with few divisors forces more tensor or
pipeline parallelism than the model needs: a batch of 7 on 8 GPUs leaves only dp 1.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.memory.peak import HIGH, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.evaluate.layout_fields import format_sizes
from parc.compiler.ir import Candidate, Plan, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.problem import SizeLimit
from parc.compiler.placement.try_other_rank_order import place_layout
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.search_idle_hosts import search_other_problem

LARGEST_CHANGE = 0.15
"""Largest change of the batch that is suggested, as a fraction (heuristic). The learning rate is
usually kept for such a change."""
MIN_GAIN = 0.1
"""Smallest gain in tokens per second for which a batch is suggested (heuristic)."""
MAX_SEARCHES = 2
"""Number of batches that are tried, because each needs a search."""


def advise_batch(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report if a batch within 15 % would train at least 10 % more tokens per second (G14)."""
    problem = plan.problem
    decided = problem.goals.maximize != "throughput" or problem.pins.dp is not None
    # G04 suggests a batch if hosts stay idle.
    if decided or plan.layout.world < problem.cluster.gpus:
        return
    job, seconds = problem.job, plan.estimate.time.total_seconds
    # Tensor parallelism makes the computation itself slower, and so do pipeline stages of unequal
    # length. Without both, only the rest of the step can become shorter.
    is_split = plan.layout.tp > 1 or plan.layout.pp > 1
    if not is_split and plan.estimate.time.compute_seconds * (1 + MIN_GAIN) > seconds:
        return
    batches = better_divisible_batches(job.global_batch, problem.cluster.gpus, plan.layout.dp)
    for batch in batches[:MAX_SEARCHES]:
        changed = replace(problem, job=replace(job, global_batch=batch))
        most = batch / job.global_batch * seconds / (1 + MIN_GAIN)
        larger = with_larger_dp(changed, plan.layout.dp)
        search = search_other_problem(larger, cost_model.framework, most)
        if search is None:
            continue
        best, other_model = search.ranked[0], cost_model_for(changed, cost_model.framework)
        # A search without a layout that surely fits returns one that might fit.
        if peak_bytes(other_model, best.layout, HIGH) > _safe_bytes(plan):
            continue
        if best.step_seconds <= most:
            # The search places layouts with a smaller budget than a plan.
            best = place_layout(other_model, best.layout).candidate
        if best.step_seconds <= most:
            _report_batch(plan, batch, best, sink)
            return


def _safe_bytes(plan: Plan) -> float:
    """Return the memory up to which another layout is at least as safe as ``plan``."""
    return max(plan.estimate.limit_bytes, plan.estimate.high_bytes)


def with_larger_dp(problem: Problem, dp: int) -> Problem:
    """Return ``problem`` with a search over data-parallel sizes above ``dp`` only."""
    limits = problem.goals.limits
    given = next((one for one in limits if one.axis == "dp"), SizeLimit("dp", 1, None, (), ()))
    larger = replace(given, smallest=max(given.smallest, dp + 1))
    others = tuple(one for one in limits if one.axis != "dp")
    return replace(problem, goals=replace(problem.goals, limits=(*others, larger)))


def _report_batch(plan: Plan, batch: int, best: Candidate, sink: Sink) -> None:
    """Report that ``batch`` with the layout ``best`` trains more tokens per second."""
    job, seconds = plan.problem.job, plan.estimate.time.total_seconds
    gain = batch / best.step_seconds / (job.global_batch / seconds) - 1
    finding = Finding(
        message=f"a global batch of {batch:,} sequences instead of {job.global_batch:,} would "
        f"train {100 * gain:.0f} % more tokens per second",
        label=f"{best.step_seconds:.3g} s per step with {format_sizes(best.layout)}, instead of "
        f"{seconds:.3g} s with {format_sizes(plan.layout)}",
        help="the data-parallel size must divide the batch; the batch is a part of the training "
        "recipe, so PARC does not change it",
        fix=f"job.global_batch: {batch}",
    )
    sink.report("G14", finding, at="job.global_batch")


def better_divisible_batches(batch: int, world: int, dp: int) -> list[int]:
    """Return batches within 15 % of ``batch`` that a larger data-parallel size divides.

    The sizes are divisors of ``world`` above ``dp``. The batch with the largest size comes first;
    a batch further away than one before it is left out.
    """
    found: list[int] = []
    nearest = LARGEST_CHANGE * batch
    for size in reversed(divisors(world)):
        if size <= dp:
            break
        below = batch // size * size
        near = below if below and batch - below <= below + size - batch else below + size
        distance = abs(near - batch)
        if 0 < distance < nearest:
            found.append(near)
            nearest = distance
    return found
