"""Bubble and chunks in flight of the schedules, as layouts are estimated with them."""

from __future__ import annotations

import pytest

from parc.compiler.cost.schedules.estimates import bubble_relative_to_1f1b, peak_chunks_in_flight
from parc.compiler.cost.schedules.formulas import EqualStages
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageSeconds, simulate_schedule
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.ir import Schedule

CHUNKS: dict[Schedule, int] = {
    "gpipe": 1,
    "1f1b": 1,
    "interleaved": 2,
    "zb-h1": 1,
    "zb-v": 2,
    "dualpipe-v": 2,
}


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_idle_share_equals_the_simulation(schedule: Schedule, pp: int, repeated: bool) -> None:
    stage = StageSeconds(1.0, 2.0 if repeated else 1.0, 1.0)
    shape = PipelineShape(pp, 4 * pp, CHUNKS[schedule])
    table = SCHEDULES[schedule].table(shape)
    makespan = simulate_schedule(
        table, EqualStages(stage).simulation_costs(table.depth)
    ).makespan_seconds
    idle = makespan - shape.micro_batches * shape.chunks * stage.total
    assert bubble_relative_to_1f1b(schedule, pp, repeated) * (
        pp - 1
    ) * stage.total == pytest.approx(idle)


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("micro_batches", [2, 8, 32])
def test_no_rank_stores_more_chunks_than_estimated(schedule: Schedule, micro_batches: int) -> None:
    shape = PipelineShape(4, micro_batches, CHUNKS[schedule])
    if SCHEDULES[schedule].size_error(shape):
        return
    for rank in range(4):
        stored = peak_chunks_in_flight(schedule, rank, shape)
        assert SCHEDULES[schedule].in_flight(shape, rank) <= stored or stored == 2 * micro_batches
        assert stored <= micro_batches * shape.chunks


def test_zero_bubble_schedules_idle_less_and_gpipe_stores_most() -> None:
    assert bubble_relative_to_1f1b("zb-v", 8, False) == pytest.approx(1 / 3)
    assert bubble_relative_to_1f1b("zb-h1", 8, False) == pytest.approx(1 / 3)
    assert bubble_relative_to_1f1b("dualpipe-v", 8, False) == pytest.approx(2 / 3)
    assert bubble_relative_to_1f1b("1f1b", 8, True) == 1.0
    shape = PipelineShape(4, 64)
    assert peak_chunks_in_flight("gpipe", 0, shape) == 64
    assert peak_chunks_in_flight("1f1b", 0, shape) == 4
    assert peak_chunks_in_flight("zb-v", 3, PipelineShape(4, 64, 2)) == 8
