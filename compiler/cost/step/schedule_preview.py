"""Simulation of a layout's schedule over a few micro-batches, for the timeline of the report."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import (
    StageCosts,
    StageSeconds,
    Timeline,
    simulate_schedule,
)
from parc.compiler.cost.schedules.table import ActionTable, PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import contents_of_chunks
from parc.compiler.cost.step.layer_time import output_head_seconds
from parc.compiler.cost.step.step_time import (
    cached_layer_time,
    stage_boundary_seconds,
    stage_time,
)
from parc.compiler.ir import Layout, ModelChunk

MOST_ROUNDS = 2
"""Number of simulated micro-batches per pipeline rank, rounded down. Two are enough to show
warm-up, steady state and cool-down."""


@dataclass(frozen=True, slots=True)
class SchedulePreview:
    """Simulation of one training step, in which repetitions of the steady state are left out."""

    table: ActionTable
    timeline: Timeline
    costs: StageCosts
    micro_batches: int
    """Number of micro-batches that were simulated."""
    left_out: int
    """Number of micro-batches that were left out of the steady state. It is a multiple of the
    pipeline size."""


def preview_schedule(cost_model: CostModel, layout: Layout) -> SchedulePreview:
    """Return a simulation of the schedule of ``layout`` with the estimated times of its chunks.

    In a step of many micro-batches, repetitions of the steady state are left out. If the schedule
    is invalid for the smaller number of micro-batches, the whole step is simulated.
    """
    whole = layout.micro_batches(cost_model.problem.job.global_batch)
    # The steady state repeats every ``pp`` micro-batches, so that only whole rounds are left out.
    rounds = max(0, (whole - MOST_ROUNDS * layout.pp) // layout.pp)
    simulated = whole - rounds * layout.pp
    schedule = SCHEDULES[layout.schedule]
    shape = PipelineShape(layout.pp, simulated, layout.vpp)
    if schedule.size_error(shape):
        shape = PipelineShape(layout.pp, whole, layout.vpp)
    table = schedule.table(shape)
    costs = _stage_costs(cost_model, layout, table)
    left_out = whole - shape.micro_batches
    return SchedulePreview(
        table, simulate_schedule(table, costs), costs, shape.micro_batches, left_out
    )


def _stage_costs(cost_model: CostModel, layout: Layout, table: ActionTable) -> StageCosts:
    """Return the times of all stages of ``table`` in the form that the simulation requires."""
    # The n-th stage of a rank is its n-th chunk.
    next_chunk = [0] * layout.pp
    stages = []
    for owner in table.owners[: table.depth]:
        stages.append(
            _chunk_seconds(cost_model, layout, layout.split.chunks[owner][next_chunk[owner]])
        )
        next_chunk[owner] += 1
    return StageCosts(tuple(stages), stage_boundary_seconds(cost_model, layout))


def _chunk_seconds(cost_model: CostModel, layout: Layout, chunk: ModelChunk) -> StageSeconds:
    """Return the times in seconds of forward, input gradient and weight gradient of one chunk.

    Recomputation counts as part of the input gradient. The remaining time of the backward pass is
    divided equally between the two gradients.
    """
    load = contents_of_chunks(cost_model.problem.model, (chunk,))
    counts = load.layers_by_kind(cost_model.problem.model)
    layers = {kind: cached_layer_time(cost_model, layout, kind) for kind in counts}
    whole = stage_time(cost_model, layout, load, (chunk,), layers)
    forward = sum(count * layers[kind].forward_pass for kind, count in counts.items())
    heads = int(load.loss) + load.mtp_layers
    # The forward pass of the output projection is one of its three products.
    forward += heads * output_head_seconds(cost_model, layout) / 3 if heads else 0.0
    backward = whole.total - forward
    # A recomputation always precedes the input gradient, which other ranks wait for.
    weight = max(0.0, (backward - whole.recompute) / 2)
    return StageSeconds(forward, backward - weight, weight)
