"""Seconds of one optimizer step, by term, on the critical path."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from parc.compiler.cost.layer_time import (
    LayerTime,
    head_seconds,
    layer_time,
    recompute_seconds,
)
from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.schedule_shares import idle_share
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

    T = m max_r t_r + b (sum_r t_r - max_r t_r) / v + exposed p2p, DP and optimizer, with b the
    share of the bubble that the schedule leaves (``schedule_shares.idle_share``).
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
        bubble_seconds=bubble_share(layout) * (whole - slowest.total) / layout.vpp,
        dp_seconds=_dp_seconds(pricing, layout, slowest),
        optimizer_seconds=optimizer_seconds(pricing, layout),
    )


def bubble_share(layout: Layout) -> float:
    """``idle_share`` of the schedule of ``layout``."""
    return idle_share(layout.schedule, layout.pp, layout.recompute.granularity == "full")


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
    often = layout.zero_stage > 1 and not holds_gradients(pricing, layout)
    rounds = layout.micro_batches(pricing.problem.job.global_batch) if often else 1
    return rounds * 2 * pricing.problem.job.gradient_bytes * part * (copies - 1) / copies


def fullest_stage(pricing: Pricing, layout: Layout) -> tuple[float, float]:
    """(dense, expert) parameters of the stage that has the most."""
    loads = [pricing.stage_parameters(layout, kind.load) for kind in pricing.classes(layout.split)]
    return max(loads, key=sum)


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
    return seconds + replica_seconds(pricing, layout)


def replica_seconds(pricing: Pricing, layout: Layout) -> float:
    """Hybrid shards: each rank's part of the gradients all-reduced over the copies of its shard.

    Every micro-batch, as torch does where nobody asks it to wait and there is no pipeline.
    """
    if layout.dp_replicate == 1:
        return 0.0
    grad = pricing.problem.job.gradient_bytes
    groups, (dense, expert) = pricing.groups(layout), fullest_stage(pricing, layout)
    part = dense / groups.dp_shard_cp.size + expert / groups.edp_shard.size
    return pricing.links.seconds("all_reduce", grad * part, groups.dp_replicate)


def _dp_seconds(pricing: Pricing, layout: Layout, slowest: StageTime) -> float:
    """What overlap with one micro-batch leaves of the traffic."""
    count = layout.micro_batches(pricing.problem.job.global_batch)
    rounds = count if exchanges_often(pricing, layout) else 1
    seconds, least = dp_traffic(pricing, layout)
    exposed = max(seconds - pricing.efficiency.dp_overlap * slowest.total, least)
    return rounds * exposed + closing_seconds(pricing, layout)


def holds_gradients(pricing: Pricing, layout: Layout) -> bool:
    """Whether gradients are whole until the last micro-batch: FSDP2 in a pipeline of torch."""
    return layout.pp > 1 and layout.zero_stage > 1 and pricing.framework.runtime == "fsdp2"


def exchanges_often(pricing: Pricing, layout: Layout) -> bool:
    """Whether every micro-batch gathers weights or scatters gradients; else a step does once."""
    return layout.zero_stage == 3 or (
        layout.zero_stage == 2 and not holds_gradients(pricing, layout)
    )


def closing_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients reduced after the last micro-batch of a pipeline at stage 3; exposed."""
    if layout.zero_stage < 3 or not holds_gradients(pricing, layout):
        return 0.0
    return _scatter_seconds(pricing, layout) + replica_seconds(pricing, layout)


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
    longer of the two; the first unit's gather is always waited for. In a pipeline weights stay
    from a backward pass to the next forward: one gather a micro-batch.
    """
    groups, links = pricing.groups(layout), pricing.links
    dense, expert = fullest_stage(pricing, layout)
    gather = links.seconds("all_gather", 2.0 * dense, groups.dp_shard_cp)
    gather += links.seconds("all_gather", 2.0 * expert, groups.edp_shard)
    first = gather / pricing.problem.model.layers
    if holds_gradients(pricing, layout):
        return gather + first, first
    scatter = _scatter_seconds(pricing, layout) + replica_seconds(pricing, layout)
    return 2 * gather + scatter + first, first


def _scatter_seconds(pricing: Pricing, layout: Layout) -> float:
    """Gradients of the fullest stage to their shards, 16 bit."""
    groups, links = pricing.groups(layout), pricing.links
    dense, expert = fullest_stage(pricing, layout)
    seconds = links.seconds("reduce_scatter", 2.0 * dense, groups.dp_shard_cp)
    return seconds + links.seconds("reduce_scatter", 2.0 * expert, groups.edp_shard)


def optimizer_seconds(pricing: Pricing, layout: Layout) -> float:
    """Adam over the shard, at memory bandwidth, and what happens once a step."""
    dense, expert = fullest_stage(pricing, layout)
    if layout.zero_stage:
        dense = dense / (layout.dp_shard * layout.cp)
        expert = expert / max(layout.edp // layout.dp_replicate, 1)
    rate = pricing.problem.cluster.gpu.memory_gb_per_s * 1e9
    row = pricing.efficiency
    return row.step_seconds + row.stream * OPTIMIZER_BYTES * (dense + expert) / rate
