"""Time in which a rank copies and converts weights and gradients on its own GPU."""

from __future__ import annotations

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import largest_stage_parameters, trained_parameters
from parc.compiler.ir import Layout, ProgramTraffic


def weight_copy_seconds(cost_model: CostModel, layout: Layout, micro_batches: int) -> float:
    """Return the seconds per step in which a rank copies weights and gradients on its own GPU.

    The rank is one of the pipeline stage with the most parameters. The kernels run between those of
    the layers, so that nothing hides them. The result is 0 for programs whose matrix products read
    weights and add gradients in place.
    """
    traffic = cost_model.traffic(layout)
    if not (any(traffic.cast) or traffic.copies or traffic.sum_bytes):
        return 0.0
    groups = cost_model.group_spans(layout)
    parts = largest_stage_parameters(cost_model, layout)
    moved = sum(
        weights * copied_bytes_per_weight(traffic, layout.zero_stage, span.size, micro_batches > 1)
        for weights, span in zip(parts, (groups.dp_shard_cp, groups.edp_shard), strict=True)
    )
    if cost_model.problem.job.lora is not None:
        moved = _bytes_moved_with_adapters(cost_model, layout, traffic, micro_batches > 1)
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    return micro_batches * cost_model.efficiency.stream * moved / rate


def copied_bytes_per_weight(
    traffic: ProgramTraffic, zero_stage: int, ranks: int, several: bool
) -> float:
    """Return the bytes per weight that a rank moves in one micro-batch to copy, convert and add.

    ``ranks`` is the number of ranks among which the weights are divided from ZeRO stage 2 on.
    ``several`` is true if a step has more than one micro-batch.
    """
    divisor = ranks if zero_stage > 1 else 1
    moved = sum(traffic.cast) + (traffic.sum_bytes / divisor if several else 0.0)
    copies = traffic.copies
    if copies is None or zero_stage < 2:
        return moved
    # Stage 2 keeps the gathered weights for the backward pass; stage 3 gathers them again.
    gathers = 2 if zero_stage == 3 else 1
    moved += gathers * (copies.gather_shard / ranks + copies.gather_whole)
    return moved + copies.reduce_whole + (copies.reduce_alone if ranks == 1 else 0.0)


def _bytes_moved_with_adapters(
    cost_model: CostModel, layout: Layout, traffic: ProgramTraffic, several: bool
) -> float:
    """Return the bytes that a rank moves in one micro-batch for frozen weights and LoRA adapters.

    Frozen weights are only gathered. They are stored in the format in which they are gathered, and
    autocast does not convert them.
    """
    ranks = cost_model.group_spans(layout).dp_shard_cp.size
    trained = trained_parameters(cost_model, layout)[0]
    moved = trained * copied_bytes_per_weight(traffic, layout.zero_stage, ranks, several)
    copies = traffic.copies
    if copies is None or layout.zero_stage < 2:
        return moved
    gathers = 2 if layout.zero_stage == 3 else 1
    frozen = sum(largest_stage_parameters(cost_model, layout)) - trained
    return moved + gathers * frozen * (copies.gather_frozen / ranks + copies.gather_whole)
