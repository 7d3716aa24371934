"""Spreads of the 80 % intervals of step times, and how many locked rows lie inside.

Spreads are measured on open rows, each predicted without its source. Every source counts as one
row, because its rows share their errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import log, sqrt
from statistics import fmean, median

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.groups import Group
from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.predict import cost_model_of, layout_with_graphs
from benchmarks.accuracy.sources import source_of
from parc.compiler.cost.step.step_interval import SEVERAL, launch_spread, step_interval
from parc.compiler.cost.step.step_time import step_time

COVERAGE = 0.8
"""Share of rows that an interval is meant to contain."""


def measured_spreads(cases: Sequence[Case], ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the constants of ``step_interval`` by name.

    ``ratios`` are predictions of ``cases`` by fits without their sources.
    """
    kinds = _prediction_kinds(cases)
    errors: dict[str, list[tuple[str, float]]] = defaultdict(list)
    within: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        source, error = source_of(case.run.source), log(ratios[case.run.id])
        errors[kinds[case.run.id]].append((source, _own_error(case, error)))
        within[source].append(error)
    for source, members in within.items():
        if len(members) > 1:
            usual = median(members)
            errors["CALIBRATED"] += [(source, abs(error - usual)) for error in members]
    return {f"{name}_SPREAD": _percentile(rows) for name, rows in sorted(errors.items())}


def open_coverage(cases: Sequence[Case], ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the share of rows inside intervals whose half width does not depend on their source.

    The result has one share per kind of prediction, such as ``DENSE``. ``cases`` and ``ratios`` are
    those of ``measured_spreads``.
    """
    kinds, inside = _prediction_kinds(cases), defaultdict[str, list[bool]](list)
    for out in {source_of(case.run.source) for case in cases}:
        others = [case for case in cases if source_of(case.run.source) != out]
        spreads = measured_spreads(others, ratios)
        for case in cases:
            kind = kinds[case.run.id]
            if source_of(case.run.source) == out and f"{kind}_SPREAD" in spreads:
                error = _own_error(case, log(ratios[case.run.id]))
                inside[kind].append(error <= spreads[f"{kind}_SPREAD"])
    return {kind: fmean(found) for kind, found in sorted(inside.items())}


def _own_error(case: Case, error: float) -> float:
    """Return the half width, without the one due to launches, of an interval with ``error``.

    ``error`` is log(predicted / measured). The interval then ends at the measured time.
    """
    return sqrt(max(0.0, error**2 - _launch_spread(case) ** 2))


@cache
def _launch_spread(case: Case) -> float:
    """Return ``launch_spread`` of ``case`` with the shipped parameters."""
    cost_model, layout = cost_model_of(case), layout_with_graphs(case)
    return launch_spread(cost_model, layout, step_time(cost_model, layout).total_seconds)


def _prediction_kinds(cases: Sequence[Case]) -> dict[str, str]:
    """Return the kind of the prediction of every case by run id, such as ``DENSE``.

    The kind depends on the number of other sources with the stack and the GPU of the case.
    """
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for case in cases:
        sources[_stack_and_gpu(case)].add(source_of(case.run.source))
    words = {"dense": "DENSE", "MoE": "EXPERTS"}
    kinds = {}
    for case in cases:
        others = len(sources[_stack_and_gpu(case)]) - 1
        few = "FEW" if others else "UNMEASURED"
        kinds[case.run.id] = words[case.kind] if others >= SEVERAL else few
    return kinds


def _stack_and_gpu(case: Case) -> tuple[str, str]:
    return case.generation, case.problem.cluster.gpu.catalog_name


def _percentile(rows: Iterable[tuple[str, float]]) -> float:
    """Return the percentile ``COVERAGE`` of errors, in which every source has the same weight."""
    members = sorted(rows, key=lambda row: row[1])
    counts: dict[str, int] = defaultdict(int)
    for source, _ in members:
        counts[source] += 1
    limit, total = COVERAGE * len(counts), 0.0
    for source, error in members:
        total += 1 / counts[source]
        if total >= limit:
            return error
    return members[-1][1]


def is_inside(case: Case, ratio: float) -> bool:
    """Return True if the measured time is inside the interval of the prediction."""
    low, high = step_interval(cost_model_of(case), layout_with_graphs(case), ratio * case.seconds)
    return low <= case.seconds <= high


def coverage_table(
    cases: Sequence[Case], groups: Sequence[Group], ratios: Mapping[str, float]
) -> str:
    """Return the table of the share of rows inside their intervals, in per cent."""
    known = {case.run.id: case for case in cases}
    rows = []
    for name, ids in groups:
        inside = sum(is_inside(known[run], ratios[run]) for run in ids)
        rows.append((name, str(len(ids)), f"{100 * inside / len(ids):.0f}"))
    return markdown(("group", "rows", "inside, %"), rows)
