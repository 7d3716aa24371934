"""Full estimate of a training layout: memory per stage, step time, traffic per axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from parc.compiler.cost.counts.flops import model_flops_utilization, step_flops
from parc.compiler.cost.memory.peak import memory_of_all_stages
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.cost.step.context_exchange import context_exchange_bytes
from parc.compiler.cost.step.gradients import data_parallel_bytes, replica_bytes
from parc.compiler.cost.step.routed_experts import token_copies_sent
from parc.compiler.cost.step.step_interval import step_interval
from parc.compiler.cost.step.step_time import stage_boundary_bytes, step_time
from parc.compiler.cost.step.tensor_exchange import (
    dense_collectives,
    expert_collectives,
    sent_bytes,
)
from parc.compiler.cost.step.weight_gathers import shared_weight_bytes
from parc.compiler.ir import AxisTraffic, Estimate, Layout


class _StepFigures(TypedDict):
    """Fields of ``Estimate`` that follow from the step time."""

    mfu: float
    tokens_per_second: float
    step_low_seconds: float
    step_high_seconds: float


def estimate_layout(cost_model: CostModel, layout: Layout) -> Estimate:
    """Return the estimate of ``layout``: memory of every stage, step time and traffic.

    The step time is that at full bandwidth between hosts (``with_placement_seconds``). Equal inputs
    give equal results. Results are cached in ``cost_model``.
    """
    time = step_time(cost_model, layout)
    return Estimate(
        memory=memory_of_all_stages(cost_model, layout),
        limit_bytes=memory_limit_bytes(cost_model),
        time=time,
        traffic=traffic_by_axis(cost_model, layout),
        model_flops_per_step=step_flops(cost_model.problem),
        **_figures_of_step(cost_model, layout, time.total_seconds),
    )


def with_placement_seconds(
    cost_model: CostModel, layout: Layout, estimate: Estimate, seconds: float
) -> Estimate:
    """Return a copy of ``estimate`` whose step is ``seconds`` longer because of the placement."""
    time = replace(estimate.time, placement_seconds=seconds)
    figures = _figures_of_step(cost_model, layout, time.total_seconds)
    return replace(estimate, time=time, **figures)


def _figures_of_step(cost_model: CostModel, layout: Layout, seconds: float) -> _StepFigures:
    """Return the fields of ``Estimate`` that follow from a step time of ``seconds``."""
    problem = cost_model.problem
    low, high = step_interval(cost_model, layout, seconds)
    tokens = problem.job.global_batch * problem.job.sequence_length
    return {
        "mfu": model_flops_utilization(problem, seconds, layout.world),
        "tokens_per_second": tokens / seconds,
        "step_low_seconds": low,
        "step_high_seconds": high,
    }


def memory_limit_bytes(cost_model: CostModel) -> float:
    """Return the bytes per GPU that the job may use.

    The limit is the device memory minus the fraction of it that ``goals.memory_headroom`` reserves.
    """
    problem = cost_model.problem
    return problem.cluster.gpu.memory_bytes * (1 - problem.goals.memory_headroom)


def traffic_by_axis(cost_model: CostModel, layout: Layout) -> tuple[AxisTraffic, ...]:
    """Return the traffic of each parallel axis in use (tp, cp, ep, pp, dp, ...).

    The bytes of an axis are those that a rank of the most loaded pipeline stage sends per step. The
    rate is that of the slowest link in a process group of the axis, in GB/s.
    """
    groups = cost_model.group_spans(layout)
    volumes = _bytes_sent_by_axis(cost_model, layout)
    rows = []
    for axis, nbytes in volumes.items():
        links = cost_model.links
        if axis == "pp":
            span = GroupSpan(2, 1 if groups.pp_stride >= links.domain else 2)
        else:
            span = getattr(groups, axis)
        rows.append(
            AxisTraffic(
                axis=axis,
                bytes_per_rank=nbytes,
                level="fabric" if span.domains > 1 else "nvlink",
                gb_per_s=links.slowest_link_gb_per_s(span),
            )
        )
    return tuple(rows)


def _bytes_sent_by_axis(cost_model: CostModel, layout: Layout) -> dict[str, float]:
    """Return the bytes that a rank sends per step, by parallel axis.

    A ring collective over n ranks sends (n - 1) / n of its payload.
    """
    problem = cost_model.problem
    job, model = problem.job, problem.model
    micro_batches = layout.micro_batches(job.global_batch)
    loads = [kind.load for kind in cost_model.equal_stage_groups(layout.split)]
    routed = max(load.routed_layers(model) for load in loads)
    tokens = layout.tokens(job.sequence_length)
    volumes: dict[str, float] = {}
    if layout.tp > 1:
        each = [_tensor_exchange_bytes(cost_model, layout, load) for load in loads]
        fullest = max(each, key=lambda one: sum(one.values()))
        volumes |= {axis: micro_batches * nbytes for axis, nbytes in fullest.items()}
    if layout.cp > 1:
        each = [_context_exchange_bytes(cost_model, layout, load) for load in loads]
        fullest = max(each, key=lambda one: sum(one.values()))
        volumes |= {axis: micro_batches * nbytes for axis, nbytes in fullest.items()}
    if layout.ep > 1 and model.experts is not None:
        copies = token_copies_sent(job, model.experts, cost_model.group_spans(layout).ep)
        # Four exchanges per layer: dispatch and combine, forward and backward. The last factor, 2,
        # is the bytes per element.
        volumes["ep"] = 4 * micro_batches * routed * copies * tokens / layout.tp * model.hidden * 2
    if layout.pp > 1:
        # Activations forward and gradients backward, once per model chunk.
        volumes["pp"] = 2 * micro_batches * layout.vpp * stage_boundary_bytes(cost_model, layout)
    if layout.shares_weights:
        each = [shared_weight_bytes(cost_model, layout, load) for load in loads]
        fullest = max(each, key=lambda one: sum(one.values()))
        volumes |= {axis: micro_batches * nbytes for axis, nbytes in fullest.items()}
    return volumes | _data_exchange_bytes(cost_model, layout)


def _tensor_exchange_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents
) -> dict[str, float]:
    """Return the bytes per micro-batch that a rank sends to tensor-parallel peers, by axis."""
    dense = expert = 0.0
    for kind, count in zip(cost_model.problem.model.kinds, load.counts, strict=True):
        dense += count * sent_bytes(dense_collectives(cost_model, layout, kind), layout.tp)
        expert += count * sent_bytes(expert_collectives(cost_model, layout, kind), layout.etp)
    return {"tp": dense} | ({"etp": expert} if expert else {})


def _context_exchange_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents
) -> dict[str, float]:
    """Return the bytes per micro-batch that a rank sends to context-parallel peers, by axis."""
    volumes: dict[str, float] = {}
    for kind, count in zip(cost_model.problem.model.kinds, load.counts, strict=True):
        for axis, nbytes in context_exchange_bytes(cost_model, layout, kind).items():
            volumes[axis] = volumes.get(axis, 0.0) + count * nbytes
    return volumes


def _data_exchange_bytes(cost_model: CostModel, layout: Layout) -> dict[str, float]:
    """Return the bytes of gradients and weights that a rank sends per step, by data-parallel axis.

    With hybrid sharding, the shards and the replicas are separate axes.
    """
    groups = cost_model.group_spans(layout)
    dense, expert = data_parallel_bytes(cost_model, layout)
    axes = {axis.name for axis in cost_model.framework.device_meshes(layout)[0].axes}
    hybrid = layout.dp_replicate > 1 and layout.zero_stage > 0 and "dp_shard" in axes
    # Ranks that share weights are not replicas of each other, so dp_shard excludes them.
    names = (
        "dp_shard_cp" if hybrid or layout.gtp > 1 else "dp_cp",
        "edp_shard" if hybrid or layout.egtp > 1 else "edp",
    )
    volumes = {}
    for name, nbytes in zip(names, (dense, expert), strict=True):
        ranks = getattr(groups, name).size
        if ranks > 1 and nbytes:
            volumes[name] = nbytes * (ranks - 1) / ranks
    if hybrid:
        volumes["dp_replicate"] = replica_bytes(cost_model, layout)
    return volumes
