"""Micro-batches in flight if the virtual stages of a rank have unequal numbers of layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.schedules.action_tables import interleaved_table
from parc.compiler.cost.schedules.estimates import interleaved_micro_batches_in_flight
from parc.compiler.cost.schedules.formulas import chunks_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.stages import contents_of_chunks
from parc.compiler.ir import ModelChunk
from tests.placement.placement_plans import model

SHAPES = st.tuples(
    st.integers(2, 6), st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(1, 3)
).filter(lambda shape: sum(shape[1]) > 0)


def layers_at_the_peak(pp: int, layers: list[int], micro_batches: int, rank: int) -> int:
    """Return the largest number of stored layers, counted along the actions of a rank."""
    stored = peak = 0
    for action in interleaved_table(PipelineShape(pp, micro_batches, len(layers))).actions(rank):
        stored += layers[action.stage // pp] * (1 if action.computation == "F" else -1)
        peak = max(peak, stored)
    return peak


@given(SHAPES)
def test_the_peak_with_unequal_chunks_equals_the_action_table(
    shape: tuple[int, list[int], int],
) -> None:
    pp, layers, rounds = shape
    for rank in range(pp):
        flight = interleaved_micro_batches_in_flight(
            rank, pp, len(layers), rounds * pp, tuple(layers)
        )
        expected = layers_at_the_peak(pp, layers, rounds * pp, rank)
        assert flight * sum(layers) == pytest.approx(expected)


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_equal_chunks_give_the_closed_formula(pp: int, vpp: int, rounds: int) -> None:
    for rank in range(pp):
        expected = chunks_in_flight(rank, pp, vpp, rounds * pp) / vpp
        assert interleaved_micro_batches_in_flight(rank, pp, vpp, rounds * pp) == expected
        assert interleaved_micro_batches_in_flight(
            rank, pp, vpp, rounds * pp, (3,) * vpp
        ) == pytest.approx(expected)


@given(SHAPES)
def test_a_longer_step_does_not_raise_the_peak(shape: tuple[int, list[int], int]) -> None:
    pp, layers, _ = shape
    for rank in range(pp):
        peak = interleaved_micro_batches_in_flight(rank, pp, len(layers), 8 * pp, tuple(layers))
        assert peak * sum(layers) == pytest.approx(layers_at_the_peak(pp, layers, 8 * pp, rank))


def test_if_the_last_chunk_has_only_the_loss_the_first_chunk_determines_the_peak() -> None:
    assert interleaved_micro_batches_in_flight(3, 4, 2, 16, (1, 0)) == 5
    assert interleaved_micro_batches_in_flight(3, 4, 2, 16) == 2.5


@pytest.mark.parametrize(
    ("lengths", "expected"), [((4,), ()), ((3, 3), ()), ((3, 2), (3, 2)), ((3, 3, 2), (3, 3, 2))]
)
def test_only_unequal_chunks_are_listed(
    lengths: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    # Without a list, equal stages of layouts with other numbers of chunks share cached estimates.
    chunks = tuple(ModelChunk(0, layers, False, 0, False) for layers in lengths)
    assert contents_of_chunks(model(12), chunks).chunks == expected
