"""What gradients cost beside computing them: adding up micro-batches, reducing over replicas."""

from __future__ import annotations

from parc.compiler.cost.kernels.collective_time import Operation
from parc.compiler.cost.kernels.smooth import overlap
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.offload import fetch_seconds, gradient_seconds
from parc.compiler.ir import Layout

APART_BYTES = 10
"""Adding a gradient by a kernel of its own: the sum read and written in 32 bit, the gradient read.
Matched runs of BigScience take 1 % longer in bf16 than in fp16, so that both add alike."""
OVERLAP_NORM = 3.0
"""How sharply traffic hides behind computation: long before it takes longer, some of it shows."""


def accumulate_seconds(pricing: Pricing, layout: Layout, parameters: float) -> float:
    """Adding one micro-batch's gradients of ``parameters`` to those of the step.

    The sum is read and written. Kernels that do so as they finish a weight gradient (fused
    accumulation, Megatron-LM from sequence parallelism on) spare its own write, which its matrix
    multiplication is priced with; before, a kernel followed. Sharded gradients (ZeRO 2, 3) are
    reduced first, and their sum is small.
    """
    if layout.zero_stage > 1:
        return 0.0
    row = pricing.efficiency
    apart = row.unfused and not layout.sequence_parallel
    nbytes = APART_BYTES if apart else 2 * pricing.problem.job.gradient_bytes - 2
    rate = pricing.problem.cluster.gpu.memory_gb_per_s * 1e9
    return row.accumulate * nbytes * parameters / rate


def dp_bytes(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(dense, expert) bytes that a shard group moves in one step, on the fullest stage.

    ZeRO-1: a reduce-scatter of gradients and an all-gather of 16-bit parameters; without it an
    all-reduce, twice the gradients. ZeRO-2 does the same every micro-batch, ZeRO-3 gathers once
    more for the backward pass, and scatters 16-bit gradients.
    """
    grad = pricing.problem.job.gradient_bytes
    factor = (2 * grad, grad + 2.0, grad + 2.0, 6.0)[layout.zero_stage]
    count = layout.micro_batches(pricing.problem.job.global_batch)
    if exchanges_often(pricing, layout):
        held = holds_gradients(pricing, layout)
        factor = 2.0 * count + 2.0 if held else factor * count
    dense, expert = fullest_stage(pricing, layout)
    return factor * dense, factor * expert


def replica_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes that a rank sends to the copies of its shard in one step."""
    copies = layout.dp_replicate
    if copies == 1 or not layout.zero_stage:
        return 0.0
    groups, (dense, expert) = pricing.groups(layout), fullest_stage(pricing, layout)
    part = dense / groups.dp_shard_cp.size + expert / groups.edp_shard.size
    often = exchanges_often(pricing, layout) and not copies_wait(pricing, layout)
    often = often and not holds_gradients(pricing, layout)
    rounds = layout.micro_batches(pricing.problem.job.global_batch) if often else 1
    return rounds * 2 * pricing.problem.job.gradient_bytes * part * (copies - 1) / copies


def fullest_stage(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(dense, expert) parameters of the stage that has the most."""
    loads = [pricing.stage_parameters(layout, kind.load) for kind in pricing.classes(layout.split)]
    return max(loads, key=sum)


def holds_gradients(pricing: Pricing, layout: Layout) -> bool:
    """Whether gradients are whole until the last micro-batch: FSDP2 in a pipeline of torch."""
    return layout.pp > 1 and layout.zero_stage > 1 and pricing.framework.runtime == "torchtitan"


def exchanges_often(pricing: Pricing, layout: Layout) -> bool:
    """Whether every micro-batch gathers weights or scatters gradients; else a step does once."""
    return layout.zero_stage == 3 or (
        layout.zero_stage == 2 and not holds_gradients(pricing, layout)
    )


def copies_wait(pricing: Pricing, layout: Layout) -> bool:
    """Whether copies of a hybrid shard add up what all micro-batches scattered, once a step."""
    often = layout.dp_replicate > 1 and exchanges_often(pricing, layout)
    return often and pricing.framework.copies_wait and not holds_gradients(pricing, layout)


def _reduce_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients reduced and parameters gathered once, nothing hidden."""
    grad = pricing.problem.job.gradient_bytes
    groups, links = pricing.groups(layout), pricing.links
    dense, expert = fullest_stage(pricing, layout)
    if not layout.zero_stage:
        seconds = links.seconds("all_reduce", grad * dense, groups.dp_cp)
        return seconds + links.seconds("all_reduce", grad * expert, groups.edp)
    seconds = 0.0
    for parameters, group in ((dense, groups.dp_shard_cp), (expert, groups.edp_shard)):
        seconds += links.seconds("reduce_scatter", grad * parameters, group)
        seconds += links.seconds("all_gather", 2.0 * parameters, group)
    return seconds + _each_time(pricing, layout)


def replica_seconds(pricing: Pricing, layout: Layout) -> float:
    """Hybrid shards: each rank's part of the gradients all-reduced over the copies of its shard.

    torch does so with every micro-batch, unless it is asked to wait (set_requires_all_reduce).
    """
    if layout.dp_replicate == 1:
        return 0.0
    grad = pricing.problem.job.gradient_bytes
    groups, (dense, expert) = pricing.groups(layout), fullest_stage(pricing, layout)
    part = dense / groups.dp_shard_cp.size + expert / groups.edp_shard.size
    return pricing.links.seconds("all_reduce", grad * part, groups.dp_replicate)


def _each_time(pricing: Pricing, layout: Layout) -> float:
    """What copies exchange with every reduction."""
    return 0.0 if copies_wait(pricing, layout) else replica_seconds(pricing, layout)


def closing_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients reduced after the last micro-batch of a pipeline at stage 3; exposed."""
    if layout.zero_stage < 3 or not holds_gradients(pricing, layout):
        return 0.0
    return _scatter_seconds(pricing, layout) + replica_seconds(pricing, layout)


def dp_traffic(pricing: Pricing, layout: Layout) -> tuple[float, float, float]:
    """(seconds with nothing hidden, what no overlap hides, more seconds of the last micro-batch).

    Of a step; of a micro-batch where ``exchanges_often``. Of gradients and parameters 5 %, one
    bucket, are always waited for.
    """
    last = replica_seconds(pricing, layout) if copies_wait(pricing, layout) else 0.0
    return *_traffic(pricing, layout), last


def _traffic(pricing: Pricing, layout: Layout) -> tuple[float, float]:
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
    longer of the two; the first unit's gather is always waited for. In a pipeline weights stay
    from a backward pass to the next forward: one gather a micro-batch.
    """
    groups, links = pricing.groups(layout), pricing.links
    dense, expert = fullest_stage(pricing, layout)
    # ZeRO++ (arXiv:2306.10209): 8-bit weights, a gather inside the host for the backward pass
    plus = layout.zero_plus
    weight = 1.0 if plus.quantized_weights else 2.0
    gather = links.seconds("all_gather", weight * dense, groups.dp_shard_cp)
    gather += links.seconds("all_gather", weight * expert, groups.edp_shard)
    first = gather / pricing.problem.model.layers
    if holds_gradients(pricing, layout):
        return gather + first, first
    again = gather
    if plus.hpz > 1:
        near = GroupSpan(plus.hpz, min(plus.hpz, links.domain))
        again = links.seconds("all_gather", weight * (dense + expert), near)
    scatter = _scatter_seconds(pricing, layout) + _each_time(pricing, layout)
    return gather + again + scatter + first, first


def _scatter_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients of the fullest stage to their shards, 16 bit; 4 bit with ZeRO++."""
    groups, links = pricing.groups(layout), pricing.links
    dense, expert = fullest_stage(pricing, layout)
    each = 0.5 if layout.zero_plus.quantized_gradients else 2.0
    seconds = links.seconds("reduce_scatter", each * dense, groups.dp_shard_cp)
    return seconds + links.seconds("reduce_scatter", each * expert, groups.edp_shard)


def gradient_window(pricing: Pricing) -> float:
    """Share of a micro-batch that gradient traffic can hide behind.

    None in Megatron and DeepSpeed pipelines of 2021 and 2022: they reduced once backward was over.
    """
    return 0.0 if pricing.efficiency.unfused else pricing.efficiency.dp_overlap


def exposed_seconds(traffic: float, least: float, window: float) -> float:
    """What is waited for of ``traffic`` beside ``window`` of computation; ``least`` always."""
    return max(overlap(traffic, window, OVERLAP_NORM) - window, least)


def exposed_rounds(traffic: tuple[float, float, float], window: float, rounds: int) -> float:
    """What is waited for of ``dp_traffic`` in ``rounds`` of it, each beside ``window``."""
    seconds, least, last = traffic
    each = exposed_seconds(seconds, least, window)
    return rounds * each + (exposed_seconds(seconds + last, least, window) - each if last else 0.0)
