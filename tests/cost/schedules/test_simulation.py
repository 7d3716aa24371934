"""Event simulation against timelines drawn by hand."""

from __future__ import annotations

import time

import pytest

from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import (
    DeadlockError,
    StageCosts,
    StageSeconds,
    simulate_schedule,
)
from parc.compiler.cost.schedules.table import Action, ActionTable, OverlappedPair, PipelineShape
from tests.cost.schedules.in_flight import peak_in_flight

ONE = StageSeconds(1.0, 1.0, 1.0)


def even(table: ActionTable, hop: float = 0.0) -> StageCosts:
    return StageCosts((ONE,) * table.depth, hop)


def test_two_ranks_and_two_micro_batches_match_a_timeline_drawn_by_hand() -> None:
    table = SCHEDULES["1f1b"].table(PipelineShape(2, 2))
    seen = simulate_schedule(table, even(table))
    # rank 0: 0F0 0F1 . . 0B0 . 0B1    rank 1: . 1F0 1B0 1F1 1B1
    assert seen.start_seconds == ((0.0, 1.0, 4.0, 7.0), (1.0, 2.0, 4.0, 5.0))
    assert seen.makespan_seconds == 9.0
    assert seen.busy_seconds == (6.0, 6.0)


def test_a_slow_stage_delays_the_stages_that_wait_for_it() -> None:
    table = SCHEDULES["1f1b"].table(PipelineShape(2, 2))
    slow = StageSeconds(2.0, 3.0, 1.0)
    seen = simulate_schedule(table, StageCosts((ONE, slow)))
    assert seen.start_seconds == ((0.0, 1.0, 7.0, 13.0), (1.0, 3.0, 7.0, 9.0))
    assert seen.makespan_seconds == 15.0
    assert seen.busy_seconds == (6.0, 12.0)


def test_a_hop_delays_the_input_and_occupies_no_rank() -> None:
    table = SCHEDULES["gpipe"].table(PipelineShape(3, 4))
    near, far = (
        simulate_schedule(table, even(table)),
        simulate_schedule(table, even(table, hop=0.5)),
    )
    assert far.makespan_seconds == near.makespan_seconds + 4 * 0.5
    assert far.busy_seconds == near.busy_seconds


def test_stages_of_one_rank_need_no_hop() -> None:
    table = SCHEDULES["zb-v"].table(PipelineShape(1, 3))
    assert simulate_schedule(table, even(table, hop=9.0)).makespan_seconds == 18.0


def test_the_weight_gradient_needs_no_input_and_the_input_gradient_is_sent_at_once() -> None:
    table = SCHEDULES["zb-h1"].table(PipelineShape(2, 1))
    seen = simulate_schedule(table, even(table))
    # rank 0: 0F0 . . 0I0 0W0    rank 1: . 1F0 1I0 1W0
    assert seen.start_seconds == ((0.0, 3.0, 4.0), (1.0, 2.0, 3.0))


@pytest.mark.parametrize(("overlap", "seconds"), [(0.0, 7.0), (0.5, 6.0), (1.0, 5.0)])
def test_a_pair_hides_a_share_of_its_shorter_half(overlap: float, seconds: float) -> None:
    pair = OverlappedPair(Action(0, "F", 1), Action(0, "B", 0))
    table = ActionTable(((Action(0, "F", 0), pair, Action(0, "B", 1)),), (0,), 1)
    costs = StageCosts((StageSeconds(2.0, 3.0, 2.0),), overlap=overlap)
    seen = simulate_schedule(table, costs)
    assert costs.pair_seconds(pair) == seconds
    assert seen.start_seconds == ((0.0, 2.0, 2.0 + seconds),)


def test_a_pair_starts_when_both_halves_have_their_input() -> None:
    pair = OverlappedPair(Action(1, "F", 1), Action(1, "B", 0))
    rows = (
        (Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0), Action(0, "B", 1)),
        (Action(1, "F", 0), pair, Action(1, "B", 1)),
    )
    table = ActionTable(rows, (0, 1), 2)
    seen = simulate_schedule(table, StageCosts((StageSeconds(4.0, 1.0, 1.0), ONE)))
    assert seen.start_seconds[1] == (4.0, 8.0, 11.0)


def test_a_deadlock_names_the_ranks_that_wait() -> None:
    backward_first = (Action(0, "B", 0), Action(0, "F", 0))
    table = ActionTable((backward_first, (Action(1, "F", 0), Action(1, "B", 0))), (0, 1), 2)
    with pytest.raises(DeadlockError, match=r"\[0, 1\]"):
        simulate_schedule(table, even(table))


def test_busy_time_is_the_work_on_every_rank() -> None:
    for name, schedule in SCHEDULES.items():
        table = schedule.table(PipelineShape(4, 12, 2 if name == "interleaved" else 1))
        seen = simulate_schedule(table, even(table))
        work = 3.0 * 12 * table.depth / 4  # DualPipe: two copies, half the micro-batches each
        assert seen.busy_seconds == (work,) * 4, name
        assert all(busy <= seen.makespan_seconds for busy in seen.busy_seconds), name


def test_the_peak_depends_on_the_action_that_frees_a_chunk() -> None:
    table = SCHEDULES["zb-h1"].table(PipelineShape(4, 8))
    assert peak_in_flight(table) == (4, 4, 4, 4)
    assert peak_in_flight(table, until="I") == (4, 3, 2, 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_ten_thousand_stage_visits_are_simulated_in_milliseconds(name: str) -> None:
    """The simulation needs 20 ms; ten times that is a quadratic loop, less may be a busy
    machine."""
    chunks = 2 if name in ("interleaved", "zb-v", "dualpipe-v") else 1
    table = SCHEDULES[name].table(PipelineShape(16, 640 // chunks, chunks))
    spent = []
    for _ in range(5):
        start = time.process_time()
        simulate_schedule(table, even(table, hop=0.1))
        spent.append(time.process_time() - start)
    assert min(spent) < 0.2
