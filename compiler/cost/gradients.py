"""What gradients cost beside computing them: adding up micro-batches, reducing over replicas."""

from __future__ import annotations

from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.smooth import overlap
from parc.compiler.ir import Layout

OVERLAP_NORM = 3.0
"""How sharply traffic hides behind computation: long before it takes longer, some of it shows."""


def accumulate_seconds(pricing: Pricing, layout: Layout, parameters: float) -> float:
    """Adding one micro-batch's gradients of ``parameters`` to those of the step.

    The sum is read and written. Kernels that do so as they finish a weight gradient (fused
    accumulation, Megatron-LM from sequence parallelism on) spare its own write, which its matrix
    multiplication is priced with; others write it and read it again. Sharded gradients (ZeRO 2,
    3) are reduced first, and their sum is small.
    """
    if layout.zero_stage > 1:
        return 0.0
    row = pricing.efficiency
    apart = row.unfused and not layout.sequence_parallel
    nbytes = 2 * pricing.problem.job.gradient_bytes + (2 if apart else -2)
    rate = pricing.problem.cluster.gpu.memory_gb_per_s * 1e9
    return row.accumulate * nbytes * parameters / rate


def dp_bytes(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(dense, expert) bytes of one gradient reduction on the fullest stage, both directions.

    Distributed optimizer: reduce-scatter of gradients and all-gather of 16-bit parameters;
    without it an all-reduce, twice the gradients.
    """
    grad = pricing.problem.job.gradient_bytes
    factor = grad + 2.0 if layout.zero_stage else 2 * grad
    dense, expert = fullest_stage(pricing, layout)
    return factor * dense, factor * expert


def fullest_stage(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(dense, expert) parameters of the stage that has the most."""
    loads = [pricing.stage_parameters(layout, kind.load) for kind in pricing.classes(layout.split)]
    return max(loads, key=sum)


def _reduce_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients reduced and parameters gathered once, nothing hidden."""
    grad = pricing.problem.job.gradient_bytes
    groups, links = pricing.groups(layout), pricing.links
    seconds = 0.0
    for parameters, group in zip(
        fullest_stage(pricing, layout), (groups.dp_cp, groups.edp), strict=True
    ):
        if layout.zero_stage:
            seconds += links.seconds("reduce_scatter", grad * parameters, group)
            seconds += links.seconds("all_gather", 2.0 * parameters, group)
        else:
            seconds += links.seconds("all_reduce", grad * parameters, group)
    return seconds


def dp_traffic(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(seconds with nothing hidden, what no overlap hides), of a step; ZeRO 2, 3: a micro-batch.

    Of gradients and parameters 5 %, one bucket, are always waited for.
    """
    if layout.zero_stage == 3:
        return _sharded_traffic(pricing, layout)
    seconds = _reduce_seconds(pricing, layout)
    return seconds, seconds * 0.05


def _sharded_traffic(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """Fully sharded: gather for forward and backward, scatter gradients, every micro-batch.

    Each unit hides behind the computation of its neighbour, so that a micro-batch takes the
    longer of the two; the first unit's gather is always waited for.
    """
    groups, links = pricing.groups(layout), pricing.links
    parameters = sum(fullest_stage(pricing, layout))
    shard = groups.dp_cp
    if layout.dp_replicate > 1:
        size = layout.dp_shard * layout.cp
        shard = type(shard)(size, min(shard.local, size))
    gather = links.seconds("all_gather", 2.0 * parameters, shard)
    scatter = links.seconds("reduce_scatter", 2.0 * parameters, shard)
    first = gather / pricing.problem.model.layers
    return 2 * gather + scatter + first, first


def exposed_seconds(traffic: float, least: float, window: float) -> float:
    """What is waited for of ``traffic`` beside ``window`` of computation; ``least`` always."""
    return max(overlap(traffic, window, OVERLAP_NORM) - window, least)
