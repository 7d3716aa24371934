"""Hint at a global batch close to that of the spec which more data-parallel ranks can divide.

The data-parallel size divides the global batch. A batch with few divisors forces more tensor or
pipeline parallelism than the model needs: a batch of 7 on 8 GPUs leaves only dp 1.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Layout, Plan
from parc.compiler.ir.divisors import divisors
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.search_layouts import search_layouts

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
    now = problem.job.global_batch / plan.estimate.time.total_seconds
    best, batch, seconds, layout = now, 0, 0.0, plan.layout
    sizes = (problem.job.global_batch, problem.cluster.gpus, plan.layout.dp)
    for other in better_divisible_batches(*sizes)[:MAX_SEARCHES]:
        changed = replace(problem, job=replace(problem.job, global_batch=other))
        search = search_layouts(cost_model_for(changed, cost_model.framework), None)
        if search is not None and other / search.ranked[0].step_seconds > best:
            chosen = search.ranked[0]
            best, batch, seconds = other / chosen.step_seconds, other, chosen.step_seconds
            layout = chosen.layout
    if best < (1 + MIN_GAIN) * now:
        return
    finding = Finding(
        message=f"a global batch of {batch:,} sequences instead of {problem.job.global_batch:,} "
        f"would train {100 * (best / now - 1):.0f} % more tokens per second",
        label=f"{seconds:.3g} s per step with {_sizes(layout)}, instead of "
        f"{plan.estimate.time.total_seconds:.3g} s with {_sizes(plan.layout)}",
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
    for size in reversed(divisors(world)):
        if size <= dp:
            break
        near = min(
            (count * size for count in (batch // size, batch // size + 1) if count),
            key=lambda one: abs(one - batch),
        )
        distance = abs(near - batch)
        nearest = min((abs(one - batch) for one in found), default=LARGEST_CHANGE * batch)
        if 0 < distance < nearest:
            found.append(near)
    return found


def _sizes(layout: Layout) -> str:
    """Return the sizes that share the GPUs: ``tp 8, pp 1, dp 4``."""
    context = f", cp {layout.cp}" if layout.cp > 1 else ""
    return f"tp {layout.tp}{context}, pp {layout.pp}, dp {layout.dp}"
