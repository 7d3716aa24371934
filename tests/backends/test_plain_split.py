"""Tests of pipeline stages of consecutive layers."""

from __future__ import annotations

from parc.backends.shared.pipeline_split import even_layer_counts, looped_split, v_schedule_split
from parc.compiler.ir import PipelineSplit
from tests.placement.placement_plans import model


def owned(split: PipelineSplit) -> list[list[list[int]]]:
    return [
        [list(range(chunk.first_layer, chunk.first_layer + chunk.layers)) for chunk in stage]
        for stage in split.chunks
    ]


def test_layers_that_do_not_divide_go_to_the_first_chunks() -> None:
    assert even_layer_counts(10, 4) == (3, 3, 2, 2)
    assert even_layer_counts(2, 4) == (1, 1, 0, 0)


def test_interleaved_chunks_are_assigned_round_robin() -> None:
    split = looped_split(model(), even_layer_counts(8, 4), 2)
    assert owned(split) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert split.chunks[0][0].embedding
    assert split.chunks[1][1].loss


def test_the_first_rank_of_a_v_has_the_embedding_and_the_loss() -> None:
    split = v_schedule_split(model(), even_layer_counts(8, 4), 2)
    assert owned(split) == [[[0, 1], [6, 7]], [[2, 3], [4, 5]]]
    assert split.chunks[0][0].embedding
    assert split.chunks[0][1].loss
