"""Time of one training step by term, on the critical path."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log2

from parc.compiler.cost.schedules.estimates import bubble_relative_to_1f1b
from parc.compiler.cost.schedules.simulation import StageCosts
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.schedules.unequal_chunks import (
    is_in_groups_of_ranks,
    least_interleaved_seconds,
    unequal_interleaved_seconds,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import (
    data_parallel_round_seconds,
    exchanges_per_micro_batch,
    exposed_seconds_of_step,
    final_reduce_seconds,
    gathers_weights_once,
    gradient_overlap_fraction,
    trained_parameters,
    weight_gather_seconds,
)
from parc.compiler.cost.step.offload import offloaded_update_seconds, shard_parameters
from parc.compiler.cost.step.stage_time import (
    StageTime,
    cached_layer_time,
    chunk_seconds,
    stage_time,
)
from parc.compiler.cost.step.weight_copies import weight_copy_seconds
from parc.compiler.cost.step.whole_gradients import keeps_whole_gradients, whole_update_seconds
from parc.compiler.ir import Layout, StepTime

OPTIMIZER_BYTES = 40
"""Bytes per parameter that one Adam step reads and writes: three fp32 states (read and written),
the gradient (read) and the 16-bit copy of the weight."""
BF16_MOMENT_BYTES = 20
"""Value of ``OPTIMIZER_BYTES`` with bf16 moments: three 16-bit states, the gradient, and the weight
(read and written)."""


def step_time(cost_model: CostModel, layout: Layout, *, is_bound: bool = False) -> StepTime:
    """Return the time in seconds of one training step, by term.

    With ``is_bound``, the bubble of interleaved layouts is a lower bound that is faster to compute.

    The total is T = m max_r t_r + bubble + exposed pipeline, data-parallel and optimizer time. Here
    m is the number of micro-batches, and t_r the time per micro-batch on pipeline rank r.
    """
    micro_batches = layout.micro_batches(cost_model.problem.job.global_batch)
    classes = cost_model.equal_stage_groups(layout.split)
    model = cost_model.problem.model
    kinds = {kind for item in classes for kind in item.load.layers_by_kind(model)}
    layers = {kind: cached_layer_time(cost_model, layout, kind) for kind in sorted(kinds)}
    # Stages with equal contents are evaluated once, because pipelines have few distinct ones.
    chunks = layout.split.chunks
    times = [
        (stage_time(cost_model, layout, item.load, chunks[item.first], layers), item.count)
        for item in classes
    ]
    slowest = max((item for item, _ in times), key=lambda item: item.total)
    whole = sum(item.total * count for item, count in times)
    evaluate = least_interleaved_seconds if is_bound else unequal_interleaved_seconds
    hops, bubble = _hop_and_bubble_seconds(cost_model, layout, (slowest.total, whole), evaluate)
    wait = straggler_factor(cost_model, layout)
    copies = weight_copy_seconds(cost_model, layout, micro_batches)
    return StepTime(
        # Every micro-batch waits for the slowest stage; the bubble is added separately.
        compute_seconds=micro_batches * slowest.compute * wait + copies,
        recompute_seconds=micro_batches * slowest.recompute,
        tp_seconds=micro_batches * slowest.tp,
        cp_seconds=micro_batches * slowest.cp,
        ep_seconds=micro_batches * slowest.ep,
        pp_seconds=hops,
        bubble_seconds=bubble,
        dp_seconds=_dp_seconds(cost_model, layout, slowest),
        optimizer_seconds=optimizer_seconds(cost_model, layout),
    )


def seconds_within(cost_model: CostModel, layout: Layout, most: float) -> float:
    """Return the seconds of one training step; infinity if a lower bound exceeds ``most``.

    The bound is faster to compute than the schedule of chunks.
    """
    is_bounded = is_evaluated_by_chunk(
        layout, layout.micro_batches(cost_model.problem.job.global_batch)
    )
    if is_bounded and step_time(cost_model, layout, is_bound=True).total_seconds > most:
        return inf
    return step_time(cost_model, layout).total_seconds


def _hop_and_bubble_seconds(
    cost_model: CostModel,
    layout: Layout,
    rank_seconds: tuple[float, float],
    evaluate: Callable[[PipelineShape, StageCosts], float],
) -> tuple[float, float]:
    """Return the seconds per step of exposed hops between stages, and of the bubble.

    ``rank_seconds`` is the time of one micro-batch on the slowest rank, and the sum of the times on
    all ranks. ``evaluate`` returns the time of a step with interleaving, without other terms; the
    bubble is the remaining time in which the slowest rank waits. Without interleaving, the bubble
    is b (sum - slowest) / v: v is the number of chunks per rank, and b the bubble of the schedule
    relative to that of 1F1B (``bubble_relative_to_1f1b``).
    """
    slowest, whole = rank_seconds
    micro_batches = layout.micro_batches(cost_model.problem.job.global_batch)
    hop = stage_boundary_seconds(cost_model, layout)
    hops = hop * waited_hops(cost_model, layout.pp, layout.vpp, micro_batches)
    if is_evaluated_by_chunk(layout, micro_batches):
        costs = StageCosts(chunk_seconds(cost_model, layout), hop)
        shape = PipelineShape(layout.pp, micro_batches, layout.vpp)
        idle = evaluate(shape, costs) - micro_batches * slowest
        # Long chunks hide some of the hops.
        hops = min(hops, idle)
        return hops, idle - hops
    # Narayanan et al. 2021 (arXiv:2104.04473), section 2.2, generalized to unequal stages: the
    # slowest rank determines the steady state, and other ranks only add to the bubble.
    return hops, bubble_fraction_of_1f1b(layout) * (whole - slowest) / layout.vpp


def is_evaluated_by_chunk(layout: Layout, micro_batches: int) -> bool:
    """Return True if ``step_time`` evaluates the schedule of ``layout`` chunk by chunk."""
    return layout.schedule == "interleaved" and is_in_groups_of_ranks(
        layout.pp, layout.vpp, micro_batches
    )


def bubble_fraction_of_1f1b(layout: Layout) -> float:
    """Return the bubble of the layout's schedule, divided by the bubble of 1F1B."""
    return bubble_relative_to_1f1b(
        layout.schedule, layout.pp, layout.recompute.granularity == "full"
    )


def straggler_factor(cost_model: CostModel, layout: Layout) -> float:
    """Return the factor by which the slowest host slows down computation: 1 + s log2(hosts).

    s is the parameter ``straggler`` of the software stack, which is fitted to published runs.
    """
    # More hosts have a slower slowest one; runs of one layout on few and on many hosts determine s.
    hosts = layout.world / cost_model.problem.cluster.node.gpus
    return 1 + cost_model.efficiency.straggler * log2(hosts) if hosts > 1 else 1.0


def stage_boundary_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes that a rank sends per micro-batch from one pipeline stage to the next.

    The number is 2 T h for T tokens and hidden size h. With sequence parallelism it is divided by
    tp.
    """
    # Versions of Megatron that predate sequence parallelism, and DeepSpeed's pipeline, also send
    # 1/tp from each rank, and gather the parts on arrival (Narayanan et al. 2021, section 4.1).
    job, model = cost_model.problem.job, cost_model.problem.model
    nbytes = 2 * layout.tokens(job.sequence_length) * model.hidden * model.residual_streams
    return nbytes / (layout.tp if layout.sequence_parallel or cost_model.efficiency.unfused else 1)


def stage_boundary_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the exposed time in seconds to send a micro-batch to the next pipeline stage."""
    if layout.pp == 1:
        return 0.0
    groups, nbytes = cost_model.group_spans(layout), stage_boundary_bytes(cost_model, layout)
    seconds = cost_model.links.message_seconds(nbytes, groups.pp_stride)
    if cost_model.efficiency.unfused and not layout.sequence_parallel:
        seconds += cost_model.links.collective_seconds("all_gather", nbytes * layout.tp, groups.tp)
    # Nothing hides a message that the computation waits for.
    return seconds if cost_model.efficiency.blocking_hops else cost_model.efficiency.pp * seconds


def waited_hops(cost_model: CostModel, pp: int, vpp: int, micro_batches: int) -> float:
    """Return the number of hops between stages for which a rank waits in one step."""
    if cost_model.efficiency.blocking_hops:
        return blocking_hops(pp, micro_batches)
    return exposed_hops(pp, vpp, micro_batches)


def blocking_hops(pp: int, micro_batches: int) -> int:
    """Return the number of hops per step for which a rank waits if it exchanges them one by one.

    Per micro-batch, a rank sends and receives one message to and from each neighbor. While the
    pipeline fills and drains, each hop is on the critical path once per direction.
    """
    neighbors = min(pp - 1, 2)
    return 2 * neighbors * micro_batches + 2 * (pp - 1)


def exposed_hops(pp: int, vpp: int, micro_batches: int) -> float:
    """Return the number of hops between stages on the critical path of a step.

    For short hops, the number equals that of the event simulation.
    """
    # In 1F1B a rank has at most ``pp`` micro-batches in flight, so that every ``pp`` micro-batches
    # wait for one round trip over all ranks. Interleaving hides hops except while the pipeline
    # fills and drains: in each direction one micro-batch passes all chunks of all ranks.
    if vpp > 1:
        return 2.0 * (pp * vpp - 1)
    # Same formula as in ``one_f_one_b_seconds``, without the computation.
    visits = micro_batches + pp - 1
    return 2.0 * (visits - -(-visits // pp))


def _dp_seconds(cost_model: CostModel, layout: Layout, slowest: StageTime) -> float:
    """Return the exposed time in seconds of gradient and weight traffic per step."""
    count = layout.micro_batches(cost_model.problem.job.global_batch)
    rounds = count if exchanges_per_micro_batch(cost_model, layout) else 1
    window = gradient_overlap_fraction(cost_model) * slowest.total
    chunks = (layout.pp, layout.vpp if layout.schedule == "interleaved" else 1, count)
    traffic = data_parallel_round_seconds(cost_model, layout)
    exposed = exposed_seconds_of_step(traffic, window, rounds, chunks)
    return exposed + final_reduce_seconds(cost_model, layout)


def optimizer_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the time in seconds of the optimizer and of other work that happens once per step.

    Unless the optimizer is offloaded, Adam reads and writes the rank's shard at memory bandwidth.
    """
    parameters, row = trained_parameters(cost_model, layout), cost_model.efficiency
    seconds = row.step_seconds
    if gathers_weights_once(cost_model, layout):
        seconds += weight_gather_seconds(cost_model, layout)
    if keeps_whole_gradients(cost_model, layout):
        seconds += whole_update_seconds(cost_model, layout, sum(parameters))
    if layout.offload.optimizer != "none":
        return seconds + offloaded_update_seconds(cost_model, layout, parameters)
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    short = cost_model.problem.job.moment_precision == "bf16"
    moved = BF16_MOMENT_BYTES if short else OPTIMIZER_BYTES
    return seconds + row.stream * moved * shard_parameters(layout, parameters) / rate
