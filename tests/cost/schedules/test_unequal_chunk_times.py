"""Step time of interleaved 1F1B with chunks of different lengths, against the event simulation."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.schedules.action_tables import interleaved_table
from parc.compiler.cost.schedules.simulation import StageCosts, StageSeconds, simulate_schedule
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.schedules.unequal_chunks import (
    is_in_groups_of_ranks,
    least_interleaved_seconds,
    unequal_interleaved_seconds,
)
from tests.property_settings import examples

FORWARD_SHARE = 0.3


def costs_of(shape: PipelineShape, dice: Random, hop: float) -> StageCosts:
    """Chunks of 1 to 4 units; the first one has an embedding and the last one a loss."""
    seconds = [float(dice.randint(1, 4)) for _ in range(shape.ranks * shape.chunks)]
    seconds[0] += dice.uniform(0, 0.2)
    seconds[-1] += dice.uniform(0, 2)
    forward, rest = FORWARD_SHARE, (1 - FORWARD_SHARE) / 2
    stages = tuple(StageSeconds(forward * one, rest * one, rest * one) for one in seconds)
    return StageCosts(stages, hop)


def simulated(shape: PipelineShape, costs: StageCosts) -> float:
    return simulate_schedule(interleaved_table(shape), costs).makespan_seconds


@examples(30)
@given(
    st.integers(2, 6),
    st.integers(2, 4),
    st.integers(1, 4),
    st.floats(0, 3),
    st.integers(0, 10**6),
)
def test_steps_of_few_groups_take_the_simulated_time(
    pp: int, vpp: int, groups: int, hop: float, seed: int
) -> None:
    shape = PipelineShape(pp, groups * pp, vpp)
    costs = costs_of(shape, Random(seed), hop)
    expected = simulated(shape, costs)
    assert unequal_interleaved_seconds(shape, costs) == pytest.approx(expected)
    assert least_interleaved_seconds(shape, costs) <= expected * (1 + 1e-9)


@pytest.mark.parametrize(("pp", "vpp"), [(2, 2), (4, 8), (6, 3), (8, 2)])
def test_long_steps_take_the_simulated_time_to_one_percent(pp: int, vpp: int) -> None:
    shape = PipelineShape(pp, 16 * pp, vpp)
    costs = costs_of(shape, Random(pp * vpp), 0.1)
    expected = simulated(shape, costs)
    assert unequal_interleaved_seconds(shape, costs) == pytest.approx(expected, rel=0.01)


def test_the_bound_is_exact_if_only_the_loss_is_added_to_equal_chunks() -> None:
    shape = PipelineShape(4, 32, 3)
    chunk, last = StageSeconds(1.0, 1.0, 1.0), StageSeconds(1.4, 1.4, 1.4)
    costs = StageCosts((chunk,) * 11 + (last,), 0.05)
    assert least_interleaved_seconds(shape, costs) == pytest.approx(simulated(shape, costs))


def test_ranks_with_equal_sums_wait_for_each_other_if_their_chunks_differ() -> None:
    # Each rank has 4 units per micro-batch, 1 of them in its first chunk and 3 in its second.
    short, long = StageSeconds(0.3, 0.35, 0.35), StageSeconds(0.9, 1.05, 1.05)
    shape, costs = PipelineShape(2, 64, 2), StageCosts((short, short, long, long))
    assert unequal_interleaved_seconds(shape, costs) > 1.1 * (64 * 4)
    assert least_interleaved_seconds(shape, costs) < 1.02 * (64 * 4)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((4, 2, 8), True), ((4, 2, 6), False), ((4, 1, 8), False), ((1, 2, 8), False)],
)
def test_only_whole_groups_of_interleaved_micro_batches_are_evaluated(
    sizes: tuple[int, int, int], expected: bool
) -> None:
    assert is_in_groups_of_ranks(*sizes) is expected
