"""The 80 % interval of the step time: what widens it, and where its constants come from."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import exp, log

import pytest

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.fit_classes import open_rows
from benchmarks.accuracy.groups import class_groups, named_groups
from benchmarks.accuracy.hardware_classes import fitted_classes
from benchmarks.accuracy.intervals import (
    coverage_table,
    is_inside,
    measured_spreads,
    open_coverage,
)
from benchmarks.accuracy.predict import cost_model_of
from benchmarks.accuracy.sources import source_of
from parc.compiler.cost.step.step_interval import (
    CALIBRATED_SPREAD,
    DENSE_SPREAD,
    EXPERTS_SPREAD,
    FEW_SPREAD,
    LAUNCH_SPREAD,
    SEVERAL,
    UNMEASURED_SPREAD,
    launch_share,
    step_interval,
)
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.estimate_layout import estimate_layout
from tests.published_runs import ratios, scored_cases


def case_of(kind: str) -> Case:
    return next(one for one in scored_cases() if one.kind == kind and "hopper" in one.generation)


def spread(case: Case, sources: int = SEVERAL, calibrated: bool = False) -> float:
    """Return the half width of the interval as a logarithm, with this many sources for the GPU."""
    cost_model = cost_model_of(case)
    counts = ((case.problem.cluster.gpu.catalog_name, sources), ("another", 9))
    cost_model.efficiency = replace(cost_model.efficiency, gpu_sources=counts)
    calibration = (("gemm", 1.1),) if calibrated else ()
    cost_model.problem = replace(cost_model.problem, calibration=calibration)
    low, high = step_interval(cost_model, case.layout, 1e9)
    assert low * high == pytest.approx(1e18)
    return log(high / 1e9)


def test_an_interval_is_wider_the_less_is_known() -> None:
    dense, experts = case_of("dense"), case_of("MoE")
    assert spread(dense, calibrated=True) == pytest.approx(CALIBRATED_SPREAD)
    assert spread(dense) == pytest.approx(DENSE_SPREAD)
    assert spread(experts) == pytest.approx(EXPERTS_SPREAD)
    for case in (dense, experts):
        assert spread(case, sources=SEVERAL - 1) == spread(case, sources=1)
        assert spread(case, sources=1) == pytest.approx(FEW_SPREAD)
        assert spread(case, sources=0) == pytest.approx(UNMEASURED_SPREAD)
    assert CALIBRATED_SPREAD < DENSE_SPREAD < EXPERTS_SPREAD <= FEW_SPREAD < UNMEASURED_SPREAD


def test_an_interval_is_wider_if_kernel_launches_determine_the_step() -> None:
    case = case_of("dense")
    cost_model = cost_model_of(case)
    seconds = step_time(cost_model, case.layout).total_seconds
    share = launch_share(cost_model, case.layout, seconds)
    slow = cost_model_of(case)
    slow.efficiency = replace(
        slow.efficiency, launch_seconds=1.001 * slow.efficiency.launch_seconds
    )
    grown = step_time(slow, case.layout).total_seconds / seconds
    assert log(grown) / log(1.001) == pytest.approx(share, abs=0.02)
    slow = cost_model_of(case)
    slow.efficiency = replace(slow.efficiency, launch_seconds=1e-2, measured_launches=False)
    slowest = step_time(slow, case.layout).total_seconds
    assert launch_share(slow, case.layout, slowest) > 0.7
    low, high = step_interval(slow, case.layout, slowest)
    assert high / slowest == pytest.approx(slowest / low)
    fitted = cost_model_of(case)
    fitted.efficiency = replace(slow.efficiency, measured_launches=True)
    ends = step_interval(fitted, case.layout, slowest)
    assert log(ends[1] / slowest) == pytest.approx(DENSE_SPREAD)
    assert DENSE_SPREAD < 0.7 * LAUNCH_SPREAD < log(high / slowest) < DENSE_SPREAD + LAUNCH_SPREAD


def test_the_catalog_counts_the_sources_of_each_gpu() -> None:
    sources = defaultdict[tuple[str, str], set[str]](set)
    cases = {}
    for case in open_rows(scored_cases()):
        key = case.generation, case.problem.cluster.gpu.catalog_name
        sources[key].add(source_of(case.run.source))
        cases[key] = case
    for key, found in sources.items():
        if key[0] not in fitted_classes():  # without a row of its own
            continue
        row = cost_model_of(cases[key]).efficiency
        assert row.sources_of_gpu(key[1]) == len(found), key
        assert row.sources_of_gpu("unknown") == 0


def test_the_estimate_carries_the_interval_of_its_step_time() -> None:
    case = case_of("dense")
    cost_model = cost_model_of(case)
    found = estimate_layout(cost_model, case.layout)
    ends = step_interval(cost_model, case.layout, found.time.total_seconds)
    assert (found.step_low_seconds, found.step_high_seconds) == ends
    assert ends[0] < found.time.total_seconds < ends[1]


def test_a_source_counts_once_in_a_spread() -> None:
    dense = [one for one in scored_cases() if one.generation == "hopper/jax"]
    largest = Counter(source_of(one.run.source) for one in dense).most_common(1)[0][0]
    many = [one for one in dense if source_of(one.run.source) == largest][:5]
    few = [one for one in dense if source_of(one.run.source) != largest][:1]
    ratios = {one.run.id: exp(0.5) for one in many} | {one.run.id: exp(-0.1) for one in few}
    found = measured_spreads([*many, *few], ratios)
    assert found["FEW_SPREAD"] == pytest.approx(0.5)  # each has one other source
    assert found["CALIBRATED_SPREAD"] == pytest.approx(0.0)


def test_the_open_coverage_uses_the_errors_of_other_sources() -> None:
    rows = [one for one in scored_cases() if one.generation == "ampere/unfused"]
    dense = [one for one in rows if one.problem.cluster.gpu.catalog_name == "a100-sxm-80gb"]
    first, second, third = sorted({source_of(one.run.source) for one in dense})[:3]
    errors = {first: 0.1, second: 0.2, third: 0.4}
    rows = [one for one in dense if source_of(one.run.source) in errors]
    ratios = {one.run.id: exp(errors[source_of(one.run.source)]) for one in rows}
    near = [one for one in rows if source_of(one.run.source) != third]
    # Four fifths of two sources is the larger error, which is that of the third source for both.
    assert open_coverage(rows, ratios) == {"FEW": pytest.approx(len(near) / len(rows))}


def test_the_coverage_counts_rows_inside_their_intervals() -> None:
    case = case_of("dense")
    assert is_inside(case, exp(0.99 * DENSE_SPREAD))
    assert not is_inside(case, exp(1.01 * DENSE_SPREAD))
    assert not is_inside(case, exp(-1.01 * DENSE_SPREAD))
    table = coverage_table([case], [("one", [case.run.id])], {case.run.id: 1.0})
    assert table.endswith("| one | 1 | 100 |")


def test_most_rows_lie_inside_their_intervals() -> None:
    predicted = ratios().shipped
    groups = dict([*named_groups(scored_cases()), *class_groups(scored_cases())])
    known = {case.run.id: case for case in scored_cases()}
    inside = [is_inside(known[run], predicted[run]) for run in groups["all"]]
    assert 0.75 <= sum(inside) / len(inside) <= 0.95
