"""Simulation of a layout's schedule over a few micro-batches, for the timeline of the report."""

from __future__ import annotations

from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageCosts, Timeline, simulate_schedule
from parc.compiler.cost.schedules.table import ActionTable, PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.stage_time import chunk_seconds
from parc.compiler.cost.step.step_time import stage_boundary_seconds
from parc.compiler.ir import Layout
from parc.compiler.ir.frozen import frozen

MOST_ROUNDS = 2
"""Number of simulated micro-batches per pipeline rank, rounded down. Two are enough to show
warm-up, steady state and cool-down."""


@frozen
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
    seconds = chunk_seconds(cost_model, layout)
    # The n-th stage of a rank is its n-th chunk.
    next_chunk = [0] * layout.pp
    stages = []
    for owner in table.owners[: table.depth]:
        stages.append(seconds[next_chunk[owner] * layout.pp + owner])
        next_chunk[owner] += 1
    return StageCosts(tuple(stages), stage_boundary_seconds(cost_model, layout))
