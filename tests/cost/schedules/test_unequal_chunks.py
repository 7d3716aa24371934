"""Micro-batches in flight where the virtual stages of a rank are unequal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.schedules.estimates import interleaved_micro_batches_in_flight
from parc.compiler.cost.schedules.formulas import chunks_in_flight
from parc.compiler.cost.schedules.orders import interleaved
from parc.compiler.cost.schedules.table import PipelineShape

SHAPES = st.tuples(
    st.integers(2, 6), st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(1, 3)
).filter(lambda shape: sum(shape[1]) > 0)


def layers_at_the_peak(pp: int, layers: list[int], micro_batches: int, rank: int) -> int:
    """Counted along the actions of a rank."""
    held = most = 0
    for action in interleaved(PipelineShape(pp, micro_batches, len(layers))).actions(rank):
        held += layers[action.stage // pp] * (1 if action.computation == "F" else -1)
        most = max(most, held)
    return most


@given(SHAPES)
def test_the_peak_is_that_of_the_action_table(shape: tuple[int, list[int], int]) -> None:
    pp, layers, rounds = shape
    for rank in range(pp):
        flight = interleaved_micro_batches_in_flight(
            rank, pp, len(layers), rounds * pp, tuple(layers)
        )
        expected = layers_at_the_peak(pp, layers, rounds * pp, rank)
        assert flight * sum(layers) == pytest.approx(expected)


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_equal_chunks_wait_as_chunks_do(pp: int, vpp: int, rounds: int) -> None:
    for rank in range(pp):
        expected = chunks_in_flight(rank, pp, vpp, rounds * pp) / vpp
        assert interleaved_micro_batches_in_flight(rank, pp, vpp, rounds * pp) == expected
        assert interleaved_micro_batches_in_flight(
            rank, pp, vpp, rounds * pp, (3,) * vpp
        ) == pytest.approx(expected)


@given(SHAPES)
def test_a_longer_step_holds_no_more(shape: tuple[int, list[int], int]) -> None:
    pp, layers, _ = shape
    for rank in range(pp):
        peak = interleaved_micro_batches_in_flight(rank, pp, len(layers), 8 * pp, tuple(layers))
        assert peak * sum(layers) == pytest.approx(layers_at_the_peak(pp, layers, 8 * pp, rank))


def test_a_last_chunk_with_the_loss_alone_leaves_the_first_waiting() -> None:
    assert interleaved_micro_batches_in_flight(3, 4, 2, 16, (1, 0)) == 5
    assert interleaved_micro_batches_in_flight(3, 4, 2, 16) == 2.5
