"""Balanced stages: no division of the layers has a faster slowest rank."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.memory.peak import HIGH, peak_bytes
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.search.balance_stages import PRECISION, StageWork, balanced_counts
from parc.compiler.search.search_layouts import search_layouts
from parc.compiler.search.time_cache import seconds_to_hold
from tests.search.search_reference import cost_model_of

SECONDS = st.sampled_from([0.5, 1.0, 1.7])


def least_seconds(work: StageWork, most: list[int]) -> float | None:
    """Return the time of the slowest rank in the best of all divisions; None if there is none."""
    chunks, layers = len(work.others), len(work.layers)
    best = None
    for cuts in combinations(range(layers + chunks - 1), chunks - 1):
        ends = (-1, *cuts, layers + chunks - 1)
        counts = [after - before - 1 for before, after in pairwise(ends)]
        ranks = [sum(counts[rank :: work.pp]) for rank in range(work.pp)]
        if any(count < least for count, least in zip(counts, work.least, strict=True)):
            continue
        if all(count <= limit for count, limit in zip(ranks, most, strict=True)):
            seconds = work.slowest_seconds(counts)
            best = seconds if best is None else min(best, seconds)
    return best


@st.composite
def works(draw: st.DrawFn, vpp: int) -> tuple[StageWork, list[int]]:
    """Return layers and other work of a small pipeline, and the limits on the layers of a rank."""
    pp = draw(st.integers(2, 4 if vpp == 1 else 3))
    count = draw(st.integers(pp * vpp, 9))
    layers = draw(st.lists(SECONDS, min_size=count, max_size=count)) if vpp == 1 else [1.0] * count
    others = [0.0] * (pp * vpp - 1) + [draw(st.sampled_from([0.0, 0.4, 1.0, 2.6]))]
    least = [1] * (pp * vpp - 1) + [draw(st.integers(0, 1))]
    most = draw(st.lists(st.integers(1, 9), min_size=pp, max_size=pp))
    return StageWork(pp, tuple(layers), tuple(others), tuple(least)), most


@given(works(vpp=1))
def test_without_interleaving_the_slowest_stage_is_as_fast_as_possible(
    case: tuple[StageWork, list[int]],
) -> None:
    work, most = case
    found, best = balanced_counts(work, most), least_seconds(work, most)
    if best is None:
        assert found == []
        return
    assert all(sum(counts) == len(work.layers) for counts in found)
    assert min(map(work.slowest_seconds, found)) <= best * (1 + 2 * PRECISION)


@given(works(vpp=2))
def test_with_interleaving_equal_layers_are_balanced_too(
    case: tuple[StageWork, list[int]],
) -> None:
    work, _ = case
    most = [len(work.layers)] * work.pp
    found, best = balanced_counts(work, most), least_seconds(work, most)
    assert best is not None
    # A rank whose chunks all have their fewest layers leaves more to the others.
    assert all(sum(counts) == len(work.layers) for counts in found)
    assert min(map(work.slowest_seconds, found)) <= best * (1 + 2 * PRECISION)
    heads = [(seconds, 1) for seconds in work.others_of_ranks]
    assert seconds_to_hold(len(work.layers), 1.0, heads, 0.0) <= best * (1 + PRECISION)


@pytest.mark.parametrize(("head", "seconds"), [(0.0, 20.0), (0.3, 20.3), (1.4, 21.0), (9.9, 23.0)])
def test_no_division_has_a_faster_slowest_rank_than_the_bound(head: float, seconds: float) -> None:
    work = StageWork(4, (1.0,) * 80, (0.0, 0.0, 0.0, head), (1,) * 4)
    assert seconds_to_hold(80, 1.0, [(0.0, 3), (head, 1)], 20.0) == pytest.approx(seconds)
    best = min(map(work.slowest_seconds, balanced_counts(work, [80] * 4)))
    assert best == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("pp", "vpp", "loss", "expected"),
    [
        # 48 layers: the loss takes as long as three of them.
        (3, 1, 3.0, [(17, 17, 14)]),
        (4, 1, 4.0, [(13, 13, 13, 9)]),
        (2, 1, 0.0, [(24, 24)]),
    ],
)
def test_the_stage_of_the_loss_has_fewer_layers(
    pp: int, vpp: int, loss: float, expected: list[tuple[int, ...]]
) -> None:
    others = (*[0.0] * (pp * vpp - 1), loss)
    least = (*[1] * (pp * vpp - 1), 0)
    assert balanced_counts(StageWork(pp, (1.0,) * 48, others, least), [48] * pp)[:1] == expected


def test_a_stage_with_little_memory_gets_fewer_layers() -> None:
    work = StageWork(3, (1.0,) * 12, (0.0,) * 3, (1,) * 3)
    for counts in balanced_counts(work, [2, 12, 12]):
        assert counts == (2, 5, 5)


def test_a_layout_that_fits_only_with_another_split_can_win() -> None:
    spec = {
        "parc": 1,
        "name": "near-miss",
        "model": "llama-3-70b",
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 6144, "global_batch": 128},
    }
    cost_model = cost_model_of(spec)
    search, limit = search_layouts(cost_model, None), memory_limit_bytes(cost_model)
    assert search is not None
    layout = search.ranked[0].layout
    even = cost_model.framework.find_split(cost_model.problem, layout.pp, layout.vpp)
    assert even is not None
    # The first of four stages has all micro-batches in flight, so it needs most memory.
    assert peak_bytes(cost_model, replace(layout, split=even), HIGH) > limit
    assert peak_bytes(cost_model, layout, HIGH) <= limit
    assert layout.split.stage_layers(0) < even.stage_layers(0)
    fits = [one for one in search.ranked if one.layout.split.stage_layers(0) * one.layout.pp >= 80]
    # 6 % is what moving layers saves here against the fastest layout whose own split fits.
    assert min(one.step_seconds for one in fits) > 1.05 * search.ranked[0].step_seconds
