"""Fits the parameters of one hardware class to a user's runs, around their shipped values.

A parameter about which the runs say nothing keeps its shipped value, and the others are fitted
again without it, so that the error which is reported is the error of what is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from parc.backends.registry import framework_of
from parc.compiler.cost.fitting import Fitted, Prior, Tangent, extrapolate, fit, tangents
from parc.compiler.cost.setup.calibrated import (
    Values,
    fitted_parameters,
    hardware_class,
    prior,
    stack_row,
)
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.tools.calibration.measured_runs import MeasuredRun

KNOWN_SHARE = 0.8
"""A parameter is identified where its spread falls below this share of what it was before."""
SILENT_SHARE = 0.98
"""Above this share the runs say nothing about it."""
MEASURED_SPREAD = 0.05
"""Log spread that is left of a parameter which --nccl measured."""
LEAST_RUNS = 3
"""Fewer runs say nothing about a run that is left out."""
FOLDS = 40
"""Refits at most, so that a table of hundreds of runs takes seconds."""


@dataclass(frozen=True, slots=True)
class Learned:
    """One parameter: before, after, how well it is known."""

    name: str
    shipped: float
    fitted: float
    spread: float
    """Standard deviation of its logarithm."""
    identified: Literal["yes", "partly", "no"]
    """``no``: it keeps its shipped value."""


@dataclass(frozen=True, slots=True)
class RunsFit:
    """What came of the runs."""

    hardware: str
    learned: tuple[Learned, ...]
    before: tuple[float, ...]
    """Seconds of every run by the shipped parameters."""
    after: tuple[float, ...]
    left_out: tuple[float, ...]
    """Seconds of every run by a fit to the others; empty for fewer than LEAST_RUNS runs."""

    @property
    def values(self) -> dict[str, float]:
        """The parameters that replace shipped ones."""
        return {item.name: item.fitted for item in self.learned if item.identified != "no"}

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Names of the parameters that are hardly known better than before."""
        return tuple(item.name for item in self.learned if item.identified != "yes")


def fit_runs(
    runs: Sequence[MeasuredRun], collectives: Values, network: Mapping[str, float]
) -> RunsFit:
    """The parameters that make the predictions of ``runs`` (one hardware class, at least one) fit.

    ``collectives`` and ``network`` come from measured collectives: the former are taken as they
    are, the latter are centres of narrow priors.
    """
    cluster, stack = runs[0].problem.cluster, framework_of(runs[0].problem).stack
    hardware = hardware_class(cluster.gpu, stack)
    start = fitted_parameters(stack_row(cluster.generation, stack))
    priors = {name: prior(name, value) for name, value in start.items()}
    for name, value in network.items():
        priors[name] = replace(prior(name, value), spread=MEASURED_SPREAD)
    fitting = _Fitting(runs, collectives, {name: each.centre for name, each in priors.items()})
    first = fitting.fit(priors)
    silent = set(first.unidentified(priors, SILENT_SHARE)) - set(network)
    kept = {name: each for name, each in priors.items() if name not in silent}
    final = fitting.fit(kept) if kept else Fitted({}, {}, 0.0, 0)
    known = set(network) | (set(kept) - set(final.unidentified(kept, KNOWN_SHARE)))
    learned = (
        Learned(
            name,
            value,
            final.parameters.get(name, value),
            final.spreads.get(name, priors[name].spread),
            "yes" if name in known else "partly" if name in kept else "no",
        )
        for name, value in start.items()
    )
    return RunsFit(
        hardware,
        tuple(learned),
        _Fitting(runs, (), start).seconds({}),
        fitting.seconds(final.parameters),
        fitting.left_out(final.parameters, kept) if len(runs) >= LEAST_RUNS else (),
    )


def mean_error(seconds: Sequence[float], measured: Sequence[float]) -> float:
    """Mean of |predicted / measured - 1|."""
    return sum(abs(s / m - 1) for s, m in zip(seconds, measured, strict=True)) / len(measured)


class _Fitting:
    """The runs, and the values of the parameters that are not fitted."""

    def __init__(
        self, runs: Sequence[MeasuredRun], collectives: Values, held: Mapping[str, float]
    ) -> None:
        self.runs = runs
        self.collectives = collectives
        self.held = held
        self.measured = [run.seconds for run in runs]

    def seconds(self, parameters: Mapping[str, float]) -> tuple[float, ...]:
        """Predictions with ``parameters`` over those that are held."""
        values = tuple(sorted({**self.held, **parameters, **dict(self.collectives)}.items()))
        return tuple(predicted_seconds(run, values) for run in self.runs)

    def fit(self, priors: Mapping[str, Prior]) -> Fitted:
        """All runs."""
        start = {name: each.centre for name, each in priors.items()}
        return fit(self.seconds, self.measured, start, priors)

    def left_out(
        self, parameters: Mapping[str, float], priors: Mapping[str, Prior]
    ) -> tuple[float, ...]:
        """Each run by a fit to the others, which follows straight lines from the full fit.

        Of more than FOLDS runs, several are left out together.
        """
        if not parameters:
            return self.seconds({})
        lines = tangents(self.seconds, parameters)
        indices = range(len(lines))
        found = list(self.measured)
        for fold in range(min(FOLDS, len(lines))):
            others = [index for index in indices if index % FOLDS != fold]
            predicted = self._from_others(parameters, priors, lines, others)
            found[fold::FOLDS] = predicted[fold::FOLDS]
        return tuple(found)

    def _from_others(
        self,
        parameters: Mapping[str, float],
        priors: Mapping[str, Prior],
        lines: Sequence[Tangent],
        others: Sequence[int],
    ) -> list[float]:
        """Predictions of all runs by the fit to ``others``."""
        measured = [self.measured[index] for index in others]

        def predict(values: Mapping[str, float]) -> list[float]:
            every = extrapolate(lines, parameters, values)
            return [every[index] for index in others]

        found = fit(predict, measured, parameters, priors, rounds=8)
        return extrapolate(lines, parameters, found.parameters)


def predicted_seconds(run: MeasuredRun, values: Values) -> float:
    """Seconds of one step of ``run`` on a machine with the parameters ``values``."""
    problem = replace(run.problem, calibration=values)
    pricing = pricing_for(problem, framework_of(problem))
    return step_time(pricing, run.layout).total_seconds
