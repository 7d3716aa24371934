"""The paths that a search evaluates bound a step as all critical paths of its pipeline do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.schedules.unequal_chunks import critical_paths
from parc.compiler.search.time_cache import longest_path_seconds
from parc.compiler.search.work_counts import work_of_paths

WORK = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3))
"""(output heads, layers of one kind, layers of another kind) of a chunk."""


@given(st.data(), st.integers(2, 5), st.integers(2, 4), st.integers(1, 6))
def test_the_longest_path_is_that_of_all_critical_paths(
    data: st.DataObject, ranks: int, chunks: int, groups: int
) -> None:
    distinct = data.draw(st.lists(WORK, min_size=1, max_size=4))
    index = st.integers(0, len(distinct) - 1)
    order = data.draw(st.lists(index, min_size=ranks * chunks, max_size=ranks * chunks))
    times = data.draw(st.tuples(*[st.sampled_from((0.5, 1.0, 1.7, 4.0))] * 3))
    hop = data.draw(st.sampled_from((0.0, 0.1, 2.0)))
    seconds = [sum(n * each for n, each in zip(distinct[i], times, strict=True)) for i in order]
    paths = critical_paths(ranks, seconds)
    found = longest_path_seconds(work_of_paths(ranks, distinct, order), times, ranks * groups, hop)
    assert found == pytest.approx(max(path.seconds(ranks * groups, hop) for path in paths))
