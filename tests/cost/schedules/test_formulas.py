"""Closed formulas equal the simulation over a sweep, published ones under their conditions."""

from __future__ import annotations

from random import Random

import pytest

from parc.compiler.cost.schedules.formulas import EqualStages, chunks_in_flight
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageSeconds, simulate_schedule
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.ir.layout import bubble_fraction
from tests.cost.schedules.in_flight import peak_in_flight

ROUNDS = 250
"""Random cases per schedule; seconds are whole numbers, so that sums are exact."""
HOPS = ("gpipe", "1f1b", "interleaved")
"""Schedules whose closed formula includes hops."""


def random_shape(name: str, dice: Random) -> PipelineShape:
    """Return sizes up to 8 ranks, few or many micro-batches, with or without a partial group."""
    ranks = dice.randint(1, 8)
    chunks = dice.randint(2, 4) if name == "interleaved" else dice.choice([1, 1, 2, 3])
    group = ranks + dice.randint(0, ranks + 1)
    rest = dice.choice([0, 0, dice.randint(ranks, group)])
    many = group * dice.randint(1, 3) + rest
    return PipelineShape(
        ranks, dice.choice([many, many, dice.randint(1, 2 * ranks)]), chunks, group
    )


def random_stages(name: str, dice: Random) -> EqualStages:
    stage = StageSeconds(*(float(dice.randint(1, 30)) for _ in range(3)))
    hop = float(dice.choice([0, 1, dice.randint(1, 40)])) if name in HOPS else 0.0
    return EqualStages(stage, hop, dice.choice([0.0, 0.5, 1.0]))


def simulated_seconds(name: str, shape: PipelineShape, even: EqualStages) -> float:
    table = SCHEDULES[name].table(shape)
    return simulate_schedule(table, even.simulation_costs(table.depth)).makespan_seconds


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_closed_formula_equals_the_simulation_wherever_it_is_known(name: str) -> None:
    dice, wrong, known = Random(name), [], 0
    while known < ROUNDS:
        shape, even = random_shape(name, dice), random_stages(name, dice)
        if SCHEDULES[name].size_error(shape):
            continue
        seconds = SCHEDULES[name].seconds(shape, even)
        known += seconds is not None
        if seconds is not None and seconds != simulated_seconds(name, shape, even):
            wrong.append((shape, even, seconds))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "shape", "hop"),
    [
        ("interleaved", PipelineShape(4, 8, 2), 3.0),
        ("zb-h1", PipelineShape(4, 8), 0.5),
        ("zb-h1", PipelineShape(4, 3, 2), 0.0),
        ("zb-v", PipelineShape(4, 6), 0.0),
        ("dualpipe-v", PipelineShape(4, 8), 0.5),
        ("dualpipe", PipelineShape(4, 8), 0.5),
    ],
)
def test_without_a_closed_formula_the_simulation_is_used(
    name: str, shape: PipelineShape, hop: float
) -> None:
    even = EqualStages(StageSeconds(1.0, 2.0, 1.0), hop)
    assert SCHEDULES[name].seconds(shape, even) is None
    seconds = SCHEDULES[name].makespan_seconds(shape, even)
    assert seconds == simulated_seconds(name, shape, even)


def test_invalid_sizes_raise_an_error_instead_of_a_makespan() -> None:
    with pytest.raises(ValueError, match="fewer than 8"):
        SCHEDULES["dualpipe-v"].makespan_seconds(
            PipelineShape(4, 4), EqualStages(StageSeconds(1.0, 1.0, 1.0))
        )


@pytest.mark.parametrize("stage", [(3, 3, 3), (4, 4, 2), (5, 5, 1), (3, 2, 2), (2, 5, 2)])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_published_bubbles_are_exact_under_their_conditions(
    p: int, stage: tuple[int, int, int]
) -> None:
    f, i, w = stage
    even = EqualStages(StageSeconds(*map(float, stage)))
    b, m = i + w, 4 * p

    def bubble(name: str, chunks: int, shape: PipelineShape) -> float:
        return simulated_seconds(name, shape, even) - m * chunks * (f + b)

    assert bubble("gpipe", 1, PipelineShape(p, m)) == (p - 1) * (f + b)
    assert bubble("1f1b", 1, PipelineShape(p, m)) == (p - 1) * (f + b)
    assert bubble("interleaved", 3, PipelineShape(p, m, 3)) == (p - 1) * (f + b)
    assert bubble("zb-h1", 1, PipelineShape(p, m)) == (p - 1) * (f + i - w)
    if f == i:
        assert bubble("dualpipe-v", 2, PipelineShape(p, m)) == (p - 1) * (f + b + b - 3 * w)
        assert bubble("dualpipe", 1, PipelineShape(p, m)) == (p // 2 - 1) * (f + b + b - 3 * w)


def test_published_zero_bubble_formulas_fail_for_long_weight_gradients() -> None:
    even = EqualStages(StageSeconds(1.0, 1.0, 4.0))
    work, p, m = 6.0, 4, 16
    assert (p - 1) * (1.0 + 1.0 - 4.0) < 0  # the published bubble of H1
    assert simulated_seconds("zb-h1", PipelineShape(p, m), even) == m * work + (p - 1) * 1.0
    assert (
        simulated_seconds("dualpipe-v", PipelineShape(p, m), even) == 2 * m * work + (p - 1) * 2.0
    )


def test_zb_v_leaves_no_gap_between_a_ranks_first_and_last_action() -> None:
    table = SCHEDULES["zb-v"].table(PipelineShape(4, 12))
    seen = simulate_schedule(
        table, EqualStages(StageSeconds(1.0, 1.0, 1.0)).simulation_costs(table.depth)
    )
    spans = [starts[-1] + 1.0 - starts[0] for starts in seen.start_seconds]
    assert spans == list(seen.busy_seconds)
    assert seen.makespan_seconds == seen.busy_seconds[0] + 3.0


def test_the_bubble_fraction_equals_the_simulation() -> None:
    even = EqualStages(StageSeconds(1.0, 1.0, 1.0))
    for p, v, m in ((4, 1, 8), (8, 1, 64), (4, 2, 16), (6, 3, 12)):
        name = "interleaved" if v > 1 else "1f1b"
        ideal = m * v * 3.0
        bubble = simulated_seconds(name, PipelineShape(p, m, v), even) - ideal
        assert bubble / ideal == pytest.approx(bubble_fraction(p, v, m), rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_chunks_in_flight_equal_the_peak_of_the_action_table(name: str) -> None:
    dice, wrong, seen = Random(name), [], 0
    while seen < ROUNDS:
        shape = random_shape(name, dice)
        if SCHEDULES[name].size_error(shape):
            continue
        seen += 1
        peaks = peak_in_flight(SCHEDULES[name].table(shape))
        counted = tuple(SCHEDULES[name].in_flight(shape, rank) for rank in range(shape.ranks))
        if counted != peaks:
            wrong.append((shape, counted, peaks))
    assert wrong == []


def test_the_search_counts_the_chunks_in_flight_of_the_action_table() -> None:
    for p, v, m in ((1, 1, 4), (4, 1, 2), (4, 1, 16), (4, 2, 4), (4, 2, 16), (8, 3, 24)):
        name = "interleaved" if v > 1 else "1f1b"
        peaks = peak_in_flight(SCHEDULES[name].table(PipelineShape(p, m, v)))
        assert tuple(chunks_in_flight(stage, p, v, m) for stage in range(p)) == peaks
