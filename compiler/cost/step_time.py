"""Seconds of one optimizer step, by term, on the critical path."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from parc.compiler.cost.collectives import Operation
from parc.compiler.cost.layer_time import (
    LayerTime,
    head_seconds,
    layer_time,
    recompute_seconds,
)
from parc.compiler.cost.links import Reach
from parc.compiler.cost.offload import (
    fetch_seconds,
    gradient_seconds,
    shard_parameters,
    update_seconds,
)
from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.stages import StageLoad
from parc.compiler.ir import Layout, StepTime

OPTIMIZER_BYTES = 40
"""Bytes that one Adam step reads and writes a parameter of the shard (fp32 states, bf16 copy)."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds of one micro-batch on one pipeline rank."""

    compute: float
    recompute: float
    tp: float
    cp: float
    ep: float

    @property
    def total(self) -> float:
        """Forward and backward, all chunks."""
        return self.compute + self.recompute + self.tp + self.cp + self.ep


def stage_time(
    pricing: Pricing, layout: Layout, load: StageLoad, layers: dict[bool, LayerTime]
) -> StageTime:
    """One micro-batch through one pipeline rank, forward and backward."""
    compute = recompute = tp = cp = ep = 0.0
    model = pricing.problem.model
    mtp_routed = model.is_moe(model.layers - 1)
    counts = {False: load.dense_layers, True: load.routed_layers}
    counts[mtp_routed] += load.mtp_layers
    for routed, count in counts.items():
        if count:
            layer = layers[routed]
            compute += count * layer.compute
            recompute += count * recompute_seconds(pricing, layout, layer, routed)
            tp += count * layer.tp
            cp += count * layer.cp
            ep += count * layer.ep
    if load.loss:
        compute += head_seconds(pricing, layout)
    if load.mtp_layers:
        compute += load.mtp_layers * head_seconds(pricing, layout)
    return StageTime(compute, recompute, tp, cp, ep)


def step_time(pricing: Pricing, layout: Layout) -> StepTime:
    """All terms. The slowest stage paces the pipeline; the others only add to the bubble.

    T = m max_r t_r + (sum_r t_r - max_r t_r) / v + exposed p2p, DP and optimizer.
    """
    micro_batches = layout.micro_batches(pricing.problem.job.global_batch)
    classes = pricing.classes(layout.split)
    kinds = {kind for item in classes for kind in _kinds(pricing, item.load)}
    layers = {routed: shared_layer_time(pricing, layout, routed) for routed in sorted(kinds)}
    times = [(stage_time(pricing, layout, item.load, layers), item.count) for item in classes]
    slowest = max((item for item, _ in times), key=lambda item: item.total)
    whole = sum(item.total * count for item, count in times)
    hop = hop_seconds(pricing, layout)
    wait = straggling(pricing, layout)
    return StepTime(
        compute_seconds=micro_batches * slowest.compute * wait,
        recompute_seconds=micro_batches * slowest.recompute,
        tp_seconds=micro_batches * slowest.tp,
        cp_seconds=micro_batches * slowest.cp,
        ep_seconds=micro_batches * slowest.ep,
        pp_seconds=hop * exposed_hops(layout.pp, layout.vpp, micro_batches),
        bubble_seconds=(whole - slowest.total) / layout.vpp,
        dp_seconds=_dp_seconds(pricing, layout, slowest),
        optimizer_seconds=optimizer_seconds(pricing, layout),
    )


def straggling(pricing: Pricing, layout: Layout) -> float:
    """Synchronous steps wait for the slowest host: 1 + s log2(hosts)."""
    hosts = layout.world / pricing.problem.cluster.node.gpus
    return 1 + pricing.efficiency.straggler * log2(hosts) if hosts > 1 else 1.0


def shared_layer_time(pricing: Pricing, layout: Layout, routed: bool) -> LayerTime:
    """``layer_time``, once for all layouts that share what it depends on."""
    groups = pricing.groups(layout)
    lane = (layout.tp, layout.cp, layout.cp_comm, layout.micro_batch, layout.sequence_parallel)
    experts = (layout.ep, layout.etp, groups.ep, groups.etp) if routed else ()
    key = ("time", routed, lane, groups.tp, groups.cp_stride, experts)
    return pricing.memo(key, lambda: layer_time(pricing, layout, routed))


def _kinds(pricing: Pricing, load: StageLoad) -> set[bool]:
    """Kinds of layers on a stage: False dense, True routed."""
    kinds = {kind for kind, n in ((False, load.dense_layers), (True, load.routed_layers)) if n}
    if load.mtp_layers:
        kinds.add(pricing.problem.model.is_moe(pricing.problem.model.layers - 1))
    return kinds


def hop_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes of one activation between two stages: 2 T h, over t with sequence parallelism."""
    job, model = pricing.problem.job, pricing.problem.model
    nbytes = 2 * layout.tokens(job.sequence_length) * model.hidden
    return nbytes / (layout.tp if layout.sequence_parallel else 1)


def hop_seconds(pricing: Pricing, layout: Layout) -> float:
    """One activation from a stage to the next, the part that is exposed."""
    if layout.pp == 1:
        return 0.0
    stride = pricing.groups(layout).pp_stride
    return pricing.efficiency.pp * pricing.links.hop_seconds(hop_bytes(pricing, layout), stride)


def exposed_hops(pp: int, vpp: int, micro_batches: int) -> float:
    """Hops on the critical path.

    1F1B sends and receives between computations, 2 a micro-batch; interleaving overlaps the
    steady state and exposes warm-up and cool-down, 2 (p - 1) and one chunk's pair.
    """
    if vpp > 1:
        return 2.0 * (pp - 1) + 2.0 * vpp
    return 2.0 * micro_batches + 2.0 * (pp - 1)


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


def _dp_seconds(pricing: Pricing, layout: Layout, slowest: StageTime) -> float:
    """What overlap with one micro-batch leaves of the traffic."""
    rounds = layout.micro_batches(pricing.problem.job.global_batch) if layout.zero_stage > 1 else 1
    seconds, least = dp_traffic(pricing, layout)
    return rounds * max(seconds - pricing.efficiency.dp_overlap * slowest.total, least)


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
        seconds = _group_seconds(pricing, layout, "reduce_scatter") + away
    else:
        seconds = _reduce_seconds(pricing, layout) + away
    return seconds, seconds * 0.05


def gathers_once(pricing: Pricing, layout: Layout) -> bool:
    """ZeRO-2 of DeepSpeed reduces every micro-batch and gathers weights after the step alone."""
    return layout.zero_stage == 2 and pricing.framework.runtime == "deepspeed"


def _group_seconds(pricing: Pricing, layout: Layout, operation: Operation) -> float:
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


def optimizer_seconds(pricing: Pricing, layout: Layout) -> float:
    """Adam over the shard, at memory bandwidth, and what happens once a step.

    On the host it takes the time of its cores, and of the weights on their way back.
    """
    held, row = fullest_stage(pricing, layout), pricing.efficiency
    seconds = row.step_seconds
    if gathers_once(pricing, layout):
        seconds += _group_seconds(pricing, layout, "all_gather")
    if layout.offload.optimizer != "none":
        return seconds + update_seconds(pricing, layout, held)
    rate = pricing.problem.cluster.gpu.memory_gb_per_s * 1e9
    return seconds + row.stream * OPTIMIZER_BYTES * shard_parameters(layout, held) / rate
