"""Step times that are computed late leave every order and every choice as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.memory.peak import peak_bytes
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, LayoutVariant
from parc.compiler.search.enumerate_layouts import LayoutPoint, make_point
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.survivors import ROUNDING, Survivor, fastest_first, survivors_within
from tests.search.search_reference import cost_model_of

SECONDS = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])


@dataclass
class Prices:
    """Step times by the tensor-parallel size of a layout, and the sizes that were asked for."""

    seconds: list[float]
    asked: list[int] = field(default_factory=list)

    def build_layout(self, point: LayoutPoint) -> Layout:
        """No test builds a layout."""
        raise NotImplementedError

    def step_seconds(self, point: LayoutPoint) -> float:
        """Return the step time of ``point``."""
        self.asked.append(point.tp)
        return self.seconds[point.tp]


@given(st.lists(st.tuples(SECONDS, SECONDS, st.booleans(), st.integers(1, 2)), min_size=1))
def test_the_order_is_that_of_a_sort_by_step_time(
    drawn: list[tuple[float, float, bool, int]],
) -> None:
    prices = Prices([max(pair[:2]) for pair in drawn])
    rows = [
        Survivor(bound if late else prices.seconds[tp], _point(tp, dp), 0, late)
        for tp, (bound, _, late, dp) in enumerate(drawn)
    ]
    expected = sorted(rows, key=lambda row: (row.point.dp, prices.seconds[row.point.tp]))
    found = list(fastest_first({0: prices}, rows, lambda point: point.dp))
    assert [row.point for row in found] == [row.point for row in expected]
    assert [row.seconds for row in found] == [prices.seconds[row.point.tp] for row in found]
    assert not any(row.is_lower_bound for row in found)


def test_a_step_time_is_computed_only_if_its_bound_does_not_decide() -> None:
    prices = Prices([1.0, 9.0, 9.0])
    rows = [Survivor(bound, _point(tp), 0, True) for tp, bound in enumerate((0.5, 0.9, 1.1))]
    first = next(fastest_first({0: prices}, rows, lambda _: 0))
    assert (first.point.tp, first.seconds, prices.asked) == (0, 1.0, [0, 1])
    prices.asked.clear()
    assert survivors_within({0: prices}, rows, 1.0) == [Survivor(1.0, rows[0].point)]
    assert prices.asked == [0, 1]


def test_a_point_from_a_tuple_is_the_point_of_the_constructor() -> None:
    assert make_point(range(10)) == LayoutPoint(*range(10))
    assert type(make_point(range(10))) is LayoutPoint


def test_every_valid_layout_has_the_peak_and_the_time_of_a_filter_that_saw_no_other() -> None:
    # Caches are shared by all layouts of a search, so a key that lacks a field gives the value of
    # the layout that came first. Here, the parts in graphs and the load of experts depend on ep.
    spec = {
        "parc": 1,
        "name": "shared",
        "model": "deepseek-v2-lite",
        "cluster": {"node": "gb200-nvl72", "nodes": 2},
        "job": {
            "sequence_length": 4096,
            "global_batch": 32,
            "moe_dispatcher": "hybridep",
            "moe_overlap": True,
            "moe_imbalance": 1.5,
        },
        "layout": {"micro_batch": 1},
    }

    def new_filter() -> LayoutFilter:
        cost_model = cost_model_of(spec)
        problem, program = cost_model.problem, cost_model.framework
        space = LayoutSpace.for_variant(problem, program, LayoutVariant(cuda_graphs=True))
        rules = all_rules(problem, program)
        return LayoutFilter(cost_model, rules, memory_limit_bytes(cost_model), space)

    shared = new_filter()
    peaks = {
        point.with_recompute_level(level): (peaks[level], seconds)
        for point, peaks in shared.valid_peaks()
        for level, seconds in zip(peaks, shared.sibling_seconds(point, peaks), strict=True)
    }
    assert len({point.ep for point in peaks}) > 2
    for ep in sorted({point.ep for point in peaks}):
        point = next(one for one in peaks if one.ep == ep)
        alone, peak = new_filter(), peak_bytes(cost_model_of(spec), shared.build_layout(point))
        alone.stage_splits(point.pp)
        assert peaks[point] == (pytest.approx(peak, rel=ROUNDING), alone.step_seconds(point))


@pytest.mark.parametrize(("target", "zero_stage"), [("fsdp", 0), ("fsdp", 2), ("accelerate", 3)])
def test_the_search_prices_copies_of_weights_as_the_estimate_does(
    target: str, zero_stage: int
) -> None:
    spec = {
        "parc": 1,
        "name": "copies",
        "model": "llama-3.2-1b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 2048, "global_batch": 16},
        "layout": {"zero_stage": zero_stage},
        "emit": [target],
    }
    cost_model = cost_model_of(spec)
    problem, program = cost_model.problem, cost_model.framework
    variant = next(one for one in program.layout_variants(problem) if one.zero_stage == zero_stage)
    space = LayoutSpace.for_variant(problem, program, variant)
    limit = memory_limit_bytes(cost_model)
    priced = LayoutFilter(cost_model, all_rules(problem, program), limit, space)
    points = [
        point.with_recompute_level(level)
        for point, peaks in priced.valid_peaks()
        for level in peaks
    ]
    assert len({point.micro_batch for point in points}) > 1
    for point in points:
        exact = step_time(cost_model, priced.build_layout(point)).total_seconds
        assert priced.step_seconds(point) == pytest.approx(exact, rel=ROUNDING)


@pytest.mark.parametrize(("target", "hosts"), [("megatron", 2), ("fsdp", 1), ("deepspeed", 2)])
def test_the_smallest_layout_is_that_of_all_peaks(target: str, hosts: int) -> None:
    spec = {
        "parc": 1,
        "name": "small",
        "model": "mixtral-8x7b" if target == "megatron" else "llama-3.2-1b",
        "cluster": {"node": "dgx-h100", "nodes": hosts},
        "job": {"sequence_length": 2048, "global_batch": 32},
        "emit": [target],
    }
    cost_model = cost_model_of(spec)
    problem, program = cost_model.problem, cost_model.framework
    for variant in program.layout_variants(problem)[:2]:
        space = LayoutSpace.for_variant(problem, program, variant)
        limit = memory_limit_bytes(cost_model)
        one = LayoutFilter(cost_model, all_rules(problem, program), limit, space)
        smallest = one.smallest_layout()
        peaks = {
            point.with_recompute_level(level): peak
            for point, siblings in one.valid_peaks()
            for level, peak in siblings.items()
        }
        if smallest is None:
            assert not peaks
            continue
        point, sizes = smallest
        assert peaks[point] <= min(peaks.values()) * (1 + ROUNDING)
        used = {name for p in peaks for name, n in p.degrees._asdict().items() if n > 1}
        assert sizes == used


def _point(tp: int, dp: int = 1) -> LayoutPoint:
    return LayoutPoint(tp, 1, 1, dp, 1, 1, 1, 1)
