"""What gradients cost beside computing them: adding up micro-batches, reducing over replicas."""

from __future__ import annotations

from parc.compiler.cost.collectives import Operation
from parc.compiler.cost.links import Reach
from parc.compiler.cost.offload import fetch_seconds, gradient_seconds
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
    held = fullest_stage(pricing, layout)
    away = gradient_seconds(pricing, layout, held)
    if layout.zero_stage == 3:
        seconds, least = _sharded_traffic(pricing, layout)
        return seconds + 2 * fetch_seconds(pricing, layout, held) + away, least
    if gathers_once(pricing, layout):
        seconds = group_seconds(pricing, layout, "reduce_scatter") + away
    else:
        seconds = _reduce_seconds(pricing, layout) + away
    return seconds, seconds * 0.05


def gathers_once(pricing: Pricing, layout: Layout) -> bool:
    """ZeRO-2 of DeepSpeed reduces every micro-batch and gathers weights after the step alone."""
    return layout.zero_stage == 2 and pricing.framework.runtime == "deepspeed"


def group_seconds(pricing: Pricing, layout: Layout, operation: Operation) -> float:
    """One collective over 16 bit of all parameters of the fullest stage."""
    groups, held = pricing.groups(layout), fullest_stage(pricing, layout)
    return sum(
        pricing.links.seconds(operation, 2.0 * parameters, group)
        for parameters, group in zip(held, (groups.dp_cp, groups.edp), strict=True)
    )


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
    # ZeRO++ (arXiv:2306.10209): 8-bit weights, a gather inside the host for the backward pass,
    # 4-bit gradients
    plus = layout.zero_plus
    weight = 1.0 if plus.quantized_weights else 2.0
    near = Reach(plus.hpz, min(plus.hpz, links.domain)) if plus.hpz > 1 else shard
    gather = links.seconds("all_gather", weight * parameters, shard)
    again = links.seconds("all_gather", weight * parameters, near)
    gradient = 0.5 if plus.quantized_gradients else 2.0
    scatter = links.seconds("reduce_scatter", gradient * parameters, shard)
    first = gather / pricing.problem.model.layers
    return gather + again + scatter + first, first


def exposed_seconds(traffic: float, least: float, window: float) -> float:
    """What is waited for of ``traffic`` beside ``window`` of computation; ``least`` always."""
    return max(overlap(traffic, window, OVERLAP_NORM) - window, least)
