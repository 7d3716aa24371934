"""Predictions of runs that no fit has seen: locked rows, and open rows without their source.

Fits use open rows only. Each hardware class is fitted separately. A left-out group contains every
case of one source. The class is refitted on the remaining cases, from priors that no training run
set.

To save time, a refit first uses a linear approximation of the logarithms of the predictions around
the full fit. If the group is a larger part of its class, a few rounds on the cost model follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from statistics import median

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.naive import naive_seconds
from benchmarks.accuracy.predict import Parameters, predict, priors, shipped
from benchmarks.accuracy.sources import is_locked, source_of
from parc.compiler.cost.fitting import (
    FitResult,
    LinearizedRun,
    ParameterPrior,
    extrapolate_seconds,
    fit_parameters,
    linearize_runs,
)

SITE_SPREAD = 0.05
"""Spread of the logarithm of a cluster's factor."""
LARGE = 0.03
"""Share of its class from which a left-out group is also refitted on the cost model itself."""
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Columns:
    """Predicted over measured time of every case, by run id and kind of prediction."""

    shipped: dict[str, float]
    """Every case, with the shipped parameters, whose fit saw the open cases only."""
    no_source: dict[str, float]
    """Open cases, each with a fit without any case of its source."""
    naive: dict[str, float]
    """Naive formula with rates from the open cases of other sources."""
    fits: dict[str, FitResult]
    """Hardware class -> its fit on all open cases."""

    @property
    def unseen(self) -> dict[str, float]:
        """Prediction of every case by a fit that has not seen its source."""
        return {**self.shipped, **self.no_source}


def columns(cases: Sequence[Case]) -> Columns:
    """Return all columns for the scored cases."""
    timed = [case for case in cases if case.scored]
    found = simple_columns(timed)
    rows = [case for case in timed if not is_locked(case)]
    for generation in sorted({case.generation for case in rows}):
        _fit_class([case for case in rows if case.generation == generation], found)
    return found


def simple_columns(timed: Sequence[Case]) -> Columns:
    """Return the columns that need no fit of the cost model; the other columns are empty."""
    found = Columns({}, {}, {}, {})
    found.shipped.update(_ratios(timed, predict(timed)))
    for out, rest in left_out_sources(timed):
        found.naive.update(_ratios(out, naive_seconds(rest or timed, out)))
    return found


def left_out_sources(cases: Sequence[Case]) -> list[tuple[list[Case], list[Case]]]:
    """Return (cases of one source, open cases of other sources) for every source."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(source_of(case.run.source), []).append(case)
    rows = [case for case in cases if not is_locked(case)]
    return [
        (out, [case for case in rows if source_of(case.run.source) != source])
        for source, out in sorted(groups.items())
    ]


OUTLIER = 2.0
"""Error factor under the first fit from which a row is left out as untuned or misreported."""
SITE_OUTLIER = 1.3
"""Factor between a multi-host row and the median of its model and cluster from which the row is
left out, because of other jobs on the network or a slow host. Such rows are still predicted."""


def refit(cases: Sequence[Case], generation: str, start: Parameters, rounds: int = 25) -> FitResult:
    """Return the parameters of a class fitted to ``cases``, or the priors if there are none.

    Outliers of a first fit are left out of the second.
    """
    first = _refit(cases, generation, start, rounds)
    kept = _drop_outliers(cases, predict(cases, first.parameters))
    if len(kept) == len(cases):
        return first
    return _refit(kept, generation, first.parameters, rounds)


def _drop_outliers(cases: Sequence[Case], seconds: Sequence[float]) -> list[Case]:
    """Return the cases that are not outliers when they are predicted to take ``seconds``."""
    errors = {name: log(ratio) for name, ratio in _ratios(cases, seconds).items()}
    groups: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        groups.setdefault(_model_and_cluster(case), []).append(errors[case.run.id])
    usual = {name: median(group) for name, group in groups.items()}
    return [
        case
        for case in cases
        if abs(errors[case.run.id]) < log(OUTLIER)
        and (
            case.run.gpus <= case.problem.cluster.node.gpus
            or abs(errors[case.run.id] - usual[_model_and_cluster(case)]) < log(SITE_OUTLIER)
        )
    ]


def _refit(cases: Sequence[Case], generation: str, start: Parameters, rounds: int) -> FitResult:
    """Fit the parameters of a class once."""
    known = {**priors(generation), **site_priors(cases)}
    found = fit_parameters(
        lambda parameters: apply_site_factors(
            cases, predict(cases, without_site_factors(parameters)), parameters
        ),
        [case.seconds for case in cases],
        {name: start.get(name, 1.0) for name in known},
        known,
        rounds,
        error_weights(cases),
    )
    return replace(found, parameters=without_site_factors(found.parameters))


SITE = "site "


def without_site_factors(parameters: Parameters) -> dict[str, float]:
    """Return ``parameters`` without the factors of clusters."""
    return {name: value for name, value in parameters.items() if not name.startswith(SITE)}


def site_priors(cases: Sequence[Case]) -> dict[str, ParameterPrior]:
    """Return a prior for the factor of each cluster.

    Similar machines differ by some per cent, which affects all rows of a cluster alike.
    """
    return {SITE + case.run.cluster: ParameterPrior(1.0, SITE_SPREAD, 0.5, 2.0) for case in cases}


def apply_site_factors(
    cases: Sequence[Case], seconds: Sequence[float], parameters: Parameters
) -> list[float]:
    """Multiply the seconds of each case by the factor of its cluster."""
    return [
        value * parameters[SITE + case.run.cluster]
        for case, value in zip(cases, seconds, strict=True)
    ]


def error_weights(cases: Sequence[Case]) -> list[float]:
    """Return the weights of the errors.

    Rows of one model on one cluster share their errors, so their squares together count as one row.
    """
    groups = Counter(_model_and_cluster(case) for case in cases)
    return [groups[_model_and_cluster(case)] ** -0.5 for case in cases]


def _model_and_cluster(case: Case) -> tuple[str, str]:
    return (case.width, case.run.cluster)


def _fit_class(cases: list[Case], found: Columns) -> None:
    """Fit one class on all its cases, then refit it without each source."""
    generation = cases[0].generation
    full = refit(cases, generation, shipped(generation))
    found.fits[generation] = full
    found_lines = linearize_runs(partial(predict, cases), full.parameters)
    lines = dict(zip((case.run.id for case in cases), found_lines, strict=True))
    like = {case.run.id for case in _drop_outliers(cases, predict(cases, full.parameters))}
    for out, rest in left_out_sources(cases):
        plain = [case for case in rest if case.run.id in like]
        known = _refit_lines(plain, full.parameters, lines) if plain else _centres(generation)
        # The linear approximation holds only near the full fit; a large group moves further.
        if plain and len(out) > LARGE * len(cases):
            known = refit(rest, generation, known, ROUNDS).parameters
        found.no_source.update(_ratios(out, predict(out, known)))


def _centres(generation: str) -> dict[str, float]:
    """Return the prior means, the parameters of a class without rows."""
    return {name: prior.centre for name, prior in priors(generation).items()}


def _refit_lines(
    cases: Sequence[Case], start: dict[str, float], lines: dict[str, LinearizedRun]
) -> dict[str, float]:
    """Fit ``cases`` with predictions from the linear approximation ``lines``."""
    known = {**priors(cases[0].generation), **site_priors(cases)}
    chosen = [lines[case.run.id] for case in cases]

    def predicted(parameters: Parameters) -> list[float]:
        return apply_site_factors(cases, extrapolate_seconds(chosen, start, parameters), parameters)

    begin = {name: start.get(name, 1.0) for name in known}
    measured = [case.seconds for case in cases]
    return without_site_factors(
        fit_parameters(predicted, measured, begin, known, 8, error_weights(cases)).parameters
    )


def _ratios(cases: Sequence[Case], seconds: Sequence[float]) -> dict[str, float]:
    return {case.run.id: time / case.seconds for case, time in zip(cases, seconds, strict=True)}
