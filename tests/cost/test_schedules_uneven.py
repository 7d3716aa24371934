"""Stages that differ: what is exact, what is a bound, and how far the bound may be off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from parc.compiler.cost.schedule_registry import SCHEDULES
from parc.compiler.cost.schedule_simulation import Costs, StageSeconds, simulate
from parc.compiler.cost.schedule_table import Shape
from parc.compiler.cost.schedule_uneven import bottleneck_seconds, gpipe_uneven_seconds

ROUNDS = 150
Stages = Callable[[int, Random], Costs]


def seconds(name: str, shape: Shape, costs: Costs) -> float:
    return simulate(SCHEDULES[name].table(shape), costs).makespan_seconds


def any_stages(count: int, dice: Random) -> Costs:
    return Costs(
        tuple(StageSeconds(*(float(dice.randint(1, 9)) for _ in range(3))) for _ in range(count))
    )


def alike_stages(count: int, dice: Random) -> Costs:
    """Backward twice the forward on every stage, which layers alone nearly give."""
    times = [float(dice.randint(4, 12)) for _ in range(count)]
    return Costs(tuple(StageSeconds(time, time, time) for time in times))


def with_head(count: int, dice: Random) -> Costs:
    """Equal stages, the last with a language-model head on top."""
    more = float(dice.randint(0, 12))
    head = StageSeconds(10.0 + more, 12.0 + more, 8.0 + more)
    return Costs((StageSeconds(10.0, 12.0, 8.0),) * (count - 1) + (head,))


def heavy_ends(count: int, dice: Random) -> Costs:
    """``with_head``, and an embedding or some layers more on the first stage."""
    more = float(dice.randint(0, 10))
    first = StageSeconds(10.0 + more, 12.0 + more, 8.0 + more)
    return Costs((first, *with_head(count - 1, dice).stages))


def random_loop(chunks: int, dice: Random) -> Shape:
    ranks = dice.randint(2, 8)
    group = ranks + dice.choice([0, 0, 2])
    count = group * dice.randint(1, 5) if chunks > 1 else dice.randint(1, 30)
    return Shape(ranks, count, chunks, group)


def test_gpipe_is_exact_for_any_stages_and_hop() -> None:
    dice = Random("gpipe")
    for _ in range(ROUNDS):
        shape = Shape(dice.randint(1, 8), dice.randint(1, 30))
        costs = Costs(any_stages(shape.ranks, dice).stages, float(dice.randint(0, 5)))
        assert gpipe_uneven_seconds(shape, costs) == seconds("gpipe", shape, costs)


@pytest.mark.parametrize(
    ("stages", "chunks"), [(heavy_ends, 1), (with_head, 1), (with_head, 2), (with_head, 4)]
)
def test_the_bottleneck_is_exact_where_it_claims_to_be(stages: Stages, chunks: int) -> None:
    name = "interleaved" if chunks > 1 else "1f1b"
    dice, wrong = Random(f"{name} {chunks}"), []
    for _ in range(ROUNDS):
        shape = random_loop(chunks, dice)
        costs = stages(shape.ranks * chunks, dice)
        if bottleneck_seconds(shape, costs) != seconds(name, shape, costs):
            wrong.append((shape, costs))
    assert wrong == []


@pytest.mark.parametrize(
    ("stages", "chunks", "below"),
    [(any_stages, 1, 0.06), (alike_stages, 1, 0.06), (alike_stages, 2, 0.3), (any_stages, 4, 0.3)],
)
def test_elsewhere_it_is_a_lower_bound_of_the_stated_tightness(
    stages: Stages, chunks: int, below: float
) -> None:
    name = "interleaved" if chunks > 1 else "1f1b"
    dice, gaps = Random(f"{name} {chunks}"), []
    for _ in range(ROUNDS):
        shape = random_loop(chunks, dice)
        costs = stages(shape.ranks * chunks, dice)
        real = seconds(name, shape, costs)
        gaps.append(1 - bottleneck_seconds(shape, costs) / real)
    assert min(gaps) >= -1e-12
    assert 0 < max(gaps) < below


def test_the_textbook_sum_and_maximum_is_exact_only_for_a_slow_last_stage() -> None:
    usual, slow = StageSeconds(1.0, 1.0, 1.0), StageSeconds(2.0, 2.0, 2.0)
    for place, excess in ((3, 0.0), (2, 2.0), (1, 4.0), (0, 6.0)):
        stages = tuple(slow if stage == place else usual for stage in range(4))
        textbook = 3 * 3.0 + 6.0 + (8 - 1) * 6.0
        real = seconds("1f1b", Shape(4, 8), Costs(stages))
        assert textbook - real == excess
        assert bottleneck_seconds(Shape(4, 8), Costs(stages)) == real
