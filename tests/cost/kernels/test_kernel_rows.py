from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kernel_rows import COLUMNS, SERIES, Attribution, Timing, align_rows, fold_of

COST = st.floats(-3.0, 8.0)
TABLES = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(COST, min_size=width, max_size=width), min_size=1, max_size=width
    )
)


@given(costs=TABLES)
def test_rows_are_aligned_in_order_at_the_least_cost(costs: list[list[float]]) -> None:
    def total(columns: tuple[int, ...]) -> float:
        return sum(costs[row][column] for row, column in enumerate(columns))

    found = tuple(align_rows(costs))
    every = combinations(range(len(costs[0])), len(costs))
    assert list(found) == sorted(set(found))
    assert total(found) <= min(map(total, every)) + 1e-9


def test_rows_of_a_complete_shape_are_named_in_order_and_others_by_prediction() -> None:
    series = SERIES["attention_prefill"]
    complete = [Timing((1, 1, 1, 1, 64), float(number + 1)) for number in range(len(series))]
    partial = [Timing((2, 1, 1, 1, 64), 3.0), Timing((2, 1, 1, 1, 64), 7.0)]
    state = Attribution("attention_prefill", [*complete, *partial])
    changed = state.realign(lambda each, row: series.index(each) + 1.0)
    assert changed == 2
    assert state.column_of == [*range(len(series)), 2, 6]


def test_a_fold_depends_only_on_the_shape() -> None:
    rows = [Timing((m, 2, 3), float(m)) for m in range(200)]
    assert [fold_of(row, 5) for row in rows] == [fold_of(Timing(row.shape, 9.0), 5) for row in rows]
    assert {fold_of(row, 5) for row in rows} == set(range(5))


def test_every_kernel_has_columns_and_unique_series() -> None:
    assert set(COLUMNS) == set(SERIES)
    assert all(len(set(series)) == len(series) for series in SERIES.values())
