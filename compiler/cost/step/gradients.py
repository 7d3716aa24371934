"""Time and traffic of gradients: reduction over replicas, and gathers of weights."""

from __future__ import annotations

from parc.compiler.cost.kernels.collective_time import Operation
from parc.compiler.cost.kernels.gemm import overlapped_seconds
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.cost.memory.states import table_parameters
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.cost.step.offload import gradient_offload_seconds, weight_fetch_seconds
from parc.compiler.cost.step.whole_gradients import (
    keeps_whole_gradients,
    whole_reduction_seconds,
)
from parc.compiler.ir import Layout

SIXTEEN_BIT = 2.0
"""Bytes per parameter of weights in bf16 and fp16."""
OVERLAP_NORM = 3.0
"""Norm that combines traffic and computation (1: sum, 8: about the maximum). With this norm, part
of the traffic is exposed even if it takes less time than the computation."""
ALWAYS_EXPOSED = 0.05
"""Fraction of the traffic that is always exposed: about one bucket of gradients or parameters."""


def data_parallel_bytes(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (bytes of dense parameters, bytes of routed experts) that are exchanged per step.

    Gradients and weights of the largest pipeline stage are counted, exchanged in the data-parallel
    group. With hybrid sharding, only the exchange among the ranks of one copy of the state is
    counted.
    """
    # Without ZeRO, an all-reduce moves twice the gradients. ZeRO-1 scatters gradients and gathers
    # parameters. ZeRO-2 does so with every micro-batch, unless gradients stay unsharded in a
    # pipeline. ZeRO-3 also gathers parameters for the backward pass.
    grad, scattered = cost_model.problem.job.gradient_bytes, scattered_gradient_bytes(cost_model)
    if layout.zero_stage == 1:
        parts = largest_stage_parameters(cost_model, layout)
        gathered = gathered_bytes(cost_model, layout)
        if keeps_whole_gradients(cost_model, layout):
            grad *= 2
        return grad * parts[0] + gathered[0], grad * parts[1] + gathered[1]
    # Bytes per parameter at ZeRO stage 0, 2, 3; stage 3 gathers 2 bytes twice.
    factor = {0: 2 * grad, 2: grad + 2.0, 3: 4.0 + scattered}[layout.zero_stage]
    count = layout.micro_batches(cost_model.problem.job.global_batch)
    if exchanges_per_micro_batch(cost_model, layout):
        if keeps_unsharded_gradients(cost_model, layout):
            factor = 2.0 * count + 2.0
        else:
            gathered_once = gathers_weights_once(cost_model, layout)
            factor = grad * count + 2.0 if gathered_once else factor * count
    dense, expert = largest_stage_parameters(cost_model, layout)
    if cost_model.problem.job.lora is not None:
        return _adapter_exchange_bytes(cost_model, layout), 0.0
    return factor * dense, factor * expert


def _adapter_exchange_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes per step that a rank exchanges in the data-parallel group with LoRA.

    ZeRO stages 2 and 3 gather frozen weights and adapters, and scatter the gradients of adapters.
    Without sharding, only these gradients are all-reduced.
    """
    grad, trained = cost_model.problem.job.gradient_bytes, trained_parameters(cost_model, layout)[0]
    if layout.zero_stage < 2:
        return 2 * grad * trained
    gathers = 2 if layout.zero_stage == 3 else 1
    weights = SIXTEEN_BIT * sum(largest_stage_parameters(cost_model, layout))
    scattered = scattered_gradient_bytes(cost_model) if layout.zero_stage == 3 else grad
    rounds = layout.micro_batches(cost_model.problem.job.global_batch)
    return rounds * (gathers * weights + scattered * trained)


def scattered_gradient_bytes(cost_model: CostModel) -> float:
    """Return the bytes per gradient that ZeRO-3 scatters with every micro-batch."""
    wide = cost_model.framework.gradient_exchange.scatters_accumulated_format
    return cost_model.problem.job.gradient_bytes if wide else 2.0


def replica_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the gradient bytes that a rank sends per step to ranks with copies of its shard."""
    copies = layout.dp_replicate
    if copies == 1 or not layout.zero_stage:
        return 0.0
    groups, (dense, expert) = (
        cost_model.group_spans(layout),
        trained_parameters(cost_model, layout),
    )
    part = dense / groups.dp_shard_cp.size + expert / groups.edp_shard.size
    repeated = exchanges_per_micro_batch(cost_model, layout)
    repeated = repeated and not reduces_replicas_once(cost_model, layout)
    repeated = repeated and not keeps_unsharded_gradients(cost_model, layout)
    rounds = layout.micro_batches(cost_model.problem.job.global_batch) if repeated else 1
    return rounds * 2 * cost_model.problem.job.gradient_bytes * part * (copies - 1) / copies


def largest_stage_parameters(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (number of dense, number of routed-expert) parameters of the largest pipeline stage.

    The numbers are counted per rank. LoRA adapters are included.
    """
    load = _largest_stage(cost_model, layout)
    dense, expert = cost_model.stage_parameters(layout, load)
    if cost_model.problem.job.lora is not None:
        dense += cost_model.trained_stage_parameters(layout, load)[0]
    return dense, expert


def trained_parameters(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (number of dense, number of routed-expert) gradients of the largest pipeline stage.

    The numbers are counted per rank.
    """
    return cost_model.trained_stage_parameters(layout, _largest_stage(cost_model, layout))


def _largest_stage(cost_model: CostModel, layout: Layout) -> StageContents:
    """Return the pipeline stage with the most parameters per rank; the first of equal ones."""
    groups = cost_model.equal_stage_groups(layout.split)
    sizes = (layout.tp, layout.etp, layout.ep, layout.gtp, layout.egtp)
    return cost_model.cached(
        ("largest stage", groups, sizes),
        lambda: max(
            (each.load for each in groups),
            key=lambda load: sum(cost_model.stage_parameters(layout, load)),
        ),
    )


def gathered_bytes(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (bytes of dense parameters, bytes of routed experts) gathered after the optimizer.

    They are those of the largest pipeline stage on one rank, before sharding. Programs that store
    weights in a low precision send them in it, except the embedding and the output projection.
    """
    load = _largest_stage(cost_model, layout)
    dense, expert = cost_model.stage_parameters(layout, load)
    if cost_model.problem.job.lora is not None:
        # Only FSDP2 shards frozen weights, which the optimizer does not change.
        sharded = largest_stage_parameters if layout.zero_stage >= 2 else trained_parameters
        dense, expert = sharded(cost_model, layout)
    sent = memory_model_at_zero_stage(cost_model, layout.zero_stage).state.sent
    if layout.zero_stage != 1 or sent == SIXTEEN_BIT:
        return SIXTEEN_BIT * dense, SIXTEEN_BIT * expert
    tables = table_parameters(cost_model, layout, load)
    return sent * dense + (SIXTEEN_BIT - sent) * tables, sent * expert


def keeps_unsharded_gradients(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if gradients stay unsharded until the last micro-batch of a pipeline.

    The result is False without ZeRO 2 or 3.
    """
    pipelined = layout.pp > 1 and layout.zero_stage > 1
    return pipelined and cost_model.framework.gradient_exchange.keeps_pipeline_gradients


def exchanges_per_micro_batch(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if every micro-batch gathers weights or scatters gradients.

    The result is False if weights and gradients are exchanged only once per step.
    """
    return layout.zero_stage == 3 or (
        layout.zero_stage == 2 and not keeps_unsharded_gradients(cost_model, layout)
    )


def reduces_replicas_once(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if the copies of a hybrid shard all-reduce their gradients only once per step.

    In this case, every micro-batch scatters gradients only among the ranks of one copy.
    """
    if layout.dp_replicate == 1 or not exchanges_per_micro_batch(cost_model, layout):
        return False
    once = cost_model.framework.gradient_exchange.reduces_replicas_once
    return once and not keeps_unsharded_gradients(cost_model, layout)


def _gradient_reduce_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the time in seconds to reduce gradients and gather parameters once.

    The time is not reduced by overlap with computation.
    """
    grad = cost_model.problem.job.gradient_bytes
    groups, links = cost_model.group_spans(layout), cost_model.links
    dense, expert = trained_parameters(cost_model, layout)
    if keeps_whole_gradients(cost_model, layout):
        seconds = whole_reduction_seconds(cost_model, dense, groups.dp_cp)
        return seconds + whole_reduction_seconds(cost_model, expert, groups.edp)
    if not layout.zero_stage:
        seconds = links.collective_seconds("all_reduce", grad * dense, groups.dp_cp)
        return seconds + links.collective_seconds("all_reduce", grad * expert, groups.edp)
    seconds = 0.0
    sent = gathered_bytes(cost_model, layout)
    parts = ((dense, sent[0], groups.dp_shard_cp), (expert, sent[1], groups.edp_shard))
    for parameters, gathered, group in parts:
        seconds += links.collective_seconds("reduce_scatter", grad * parameters, group)
        seconds += links.collective_seconds("all_gather", gathered, group)
    return seconds + _repeated_replica_seconds(cost_model, layout)


def replica_all_reduce_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the time in seconds of one all-reduce of gradients over the copies of a hybrid shard.

    torch runs this all-reduce with every micro-batch, unless set_requires_all_reduce disables it.
    """
    if layout.dp_replicate == 1:
        return 0.0
    grad = cost_model.problem.job.gradient_bytes
    groups, (dense, expert) = (
        cost_model.group_spans(layout),
        trained_parameters(cost_model, layout),
    )
    part = dense / groups.dp_shard_cp.size + expert / groups.edp_shard.size
    return cost_model.links.collective_seconds("all_reduce", grad * part, groups.dp_replicate)


def _repeated_replica_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the seconds per round in which the copies of a hybrid shard all-reduce gradients.

    A round is one exchange of gradients and weights between data-parallel ranks. The result is 0 if
    there are rounds in every micro-batch, but only one all-reduce per step.
    """
    return (
        0.0
        if reduces_replicas_once(cost_model, layout)
        else replica_all_reduce_seconds(cost_model, layout)
    )


def final_reduce_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the exposed time in seconds to reduce gradients at the end of a ZeRO-3 pipeline.

    The result is 0 at other ZeRO stages, and if every micro-batch scatters its gradients.
    """
    if layout.zero_stage < 3 or not keeps_unsharded_gradients(cost_model, layout):
        return 0.0
    return _gradient_scatter_seconds(cost_model, layout) + replica_all_reduce_seconds(
        cost_model, layout
    )


def data_parallel_round_seconds(
    cost_model: CostModel, layout: Layout
) -> tuple[float, float, float]:
    """Return (seconds of one round, always exposed seconds, extra seconds of the last round).

    A round is one exchange of gradients and weights between data-parallel ranks, without overlap.
    There is one round per micro-batch if ``exchanges_per_micro_batch`` returns True, else one per
    step.
    """
    last = (
        replica_all_reduce_seconds(cost_model, layout)
        if reduces_replicas_once(cost_model, layout)
        else 0.0
    )
    return *_traffic_per_round(cost_model, layout), last


def _traffic_per_round(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (seconds of one round of data-parallel traffic, seconds that are always exposed).

    A round is one exchange of gradients and weights between data-parallel ranks, without overlap.
    """
    parameters = largest_stage_parameters(cost_model, layout)
    offloaded = gradient_offload_seconds(cost_model, layout, parameters)
    if layout.zero_stage == 3:
        seconds, least = _zero3_traffic(cost_model, layout)
        return seconds + 2 * weight_fetch_seconds(cost_model, layout, parameters) + offloaded, least
    if gathers_weights_once(cost_model, layout) and layout.zero_stage == 2:
        seconds = _gradient_scatter_seconds(cost_model, layout) + offloaded
    else:
        seconds = _gradient_reduce_seconds(cost_model, layout) + offloaded
    return seconds, seconds * ALWAYS_EXPOSED


def gathers_weights_once(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if weights are gathered after the optimizer, while nothing else is computed."""
    exchange = cost_model.framework.gradient_exchange
    at_stage_2 = layout.zero_stage == 2 and exchange.gathers_once_at_stage_2
    return at_stage_2 or (layout.zero_stage == 1 and keeps_whole_gradients(cost_model, layout))


def weight_gather_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the seconds to gather the 16-bit parameters of the largest stage once."""
    groups, parts = cost_model.group_spans(layout), largest_stage_parameters(cost_model, layout)
    return sum(
        cost_model.links.collective_seconds("all_gather", 2.0 * parameters, group)
        for parameters, group in zip(parts, (groups.dp_shard_cp, groups.edp_shard), strict=True)
    )


def _zero3_traffic(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (seconds of ZeRO-3's traffic per micro-batch, seconds that are always exposed).

    Weights are gathered for the forward and for the backward pass, and gradients are scattered. The
    transfer of each unit overlaps with the computation of another unit, except that nothing
    overlaps with the gather of the first unit.
    """
    # If gradients stay unsharded in a pipeline, weights stay gathered from a backward pass to the
    # next forward pass, so that each micro-batch needs only one gather.
    groups, links = cost_model.group_spans(layout), cost_model.links
    dense, expert = largest_stage_parameters(cost_model, layout)
    # ZeRO++ (arXiv:2306.10209): 8-bit weights, a gather inside the host for the backward pass
    plus = layout.zero_plus
    weight = 1.0 if plus.quantized_weights else 2.0
    gather = _unit_seconds(cost_model, layout, "all_gather", weight * dense, groups.dp_shard_cp)
    gather += _unit_seconds(cost_model, layout, "all_gather", weight * expert, groups.edp_shard)
    # Every layer is one unit of FSDP, so that the first unit is one layer.
    first = gather / cost_model.problem.model.layers
    if keeps_unsharded_gradients(cost_model, layout):
        return gather + first, first
    again = gather
    if plus.hpz > 1:
        # hpZ keeps a second copy of the weights inside the host and gathers from it.
        near = GroupSpan(plus.hpz, min(plus.hpz, links.domain))
        again = _unit_seconds(cost_model, layout, "all_gather", weight * (dense + expert), near)
    scatter = _gradient_scatter_seconds(cost_model, layout) + _repeated_replica_seconds(
        cost_model, layout
    )
    return gather + again + scatter + first, first


def _gradient_scatter_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the time in seconds to scatter the gradients of the largest stage.

    With the quantized gradients of ZeRO++, gradients have 4 bit.
    """
    groups = cost_model.group_spans(layout)
    dense, expert = trained_parameters(cost_model, layout)
    quantized = layout.zero_plus.quantized_gradients
    each = 0.5 if quantized else scattered_gradient_bytes(cost_model)
    seconds = _unit_seconds(cost_model, layout, "reduce_scatter", each * dense, groups.dp_shard_cp)
    return seconds + _unit_seconds(
        cost_model, layout, "reduce_scatter", each * expert, groups.edp_shard
    )


def _unit_seconds(
    cost_model: CostModel, layout: Layout, operation: Operation, nbytes: float, group: GroupSpan
) -> float:
    """Return the seconds of collectives that together move ``nbytes`` of the largest stage.

    At ZeRO stage 3, every layer has collectives of its own (torch.distributed.fsdp, fully_shard of
    each layer), so that their latency counts once per layer.
    """
    units = cost_model.problem.model.layers / layout.pp if layout.zero_stage == 3 else 1.0
    return units * cost_model.links.collective_seconds(operation, nbytes / units, group)


def gradient_overlap_fraction(cost_model: CostModel) -> float:
    """Return the fraction of a micro-batch's time during which gradient traffic can overlap."""
    row = cost_model.efficiency
    return row.dp_overlap if row.overlaps_gradients else 0.0


def exposed_seconds(traffic: float, least: float, window: float) -> float:
    """Return the exposed time in seconds of traffic that overlaps with computation.

    ``traffic`` is the time of the traffic and ``window`` that of the computation. ``least`` is the
    time that is exposed in any case.
    """
    exposed = overlapped_seconds(traffic, window, OVERLAP_NORM) - window
    return exposed if exposed > least else least


def exposed_seconds_of_step(
    traffic: tuple[float, float, float],
    window: float,
    rounds: int,
    chunks: tuple[int, int, int],
) -> float:
    """Return the exposed seconds of gradient and weight traffic per step.

    ``traffic`` is the result of ``data_parallel_round_seconds``. Each of the ``rounds`` rounds can
    overlap with ``window`` seconds of computation, the time of one micro-batch. ``chunks`` is (pp,
    vpp of an interleaved schedule, micro-batches).
    """
    seconds, least, last = traffic
    pp, vpp, micro_batches = chunks
    if rounds > 1 or vpp == 1:
        each = exposed_seconds(seconds, least, window)
        more = exposed_seconds(seconds + last, least, window) - each if last else 0.0
        return rounds * each + more
    # With interleaving, the gradients of a chunk are complete after its last micro-batch, while the
    # chunks before it still compute a round of pp micro-batches each (Megatron-Core,
    # pipeline_parallel/schedules.py calls grad_sync_func, and in the forward pass param_sync_func,
    # per model chunk). The last chunk has its part of one micro-batch for its part of the traffic.
    whole = window * ((vpp - 1) * min(pp, micro_batches) + 1) / vpp
    last_chunk = exposed_seconds(seconds + last, least, window) / vpp
    return max(last_chunk, exposed_seconds(seconds + last, 0.0, whole))
