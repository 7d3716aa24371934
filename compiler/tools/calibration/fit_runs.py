"""Fit of the parameters of one GPU generation to measured runs, with the shipped values as prior.

A parameter that the runs give no information about keeps its shipped value, and the remaining
parameters are fitted again without it. The reported error is therefore the error of the values that
are written.
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
"""Share of the prior's spread below which the spread of an identified parameter must fall."""
SILENT_SHARE = 0.98
"""Share of the prior's spread above which the runs give no information about a parameter."""
MEASURED_SPREAD = 0.05
"""Prior spread (of the logarithm) of a parameter that --nccl measured."""
MIN_RUNS = 3
"""Minimum number of runs for predictions of left-out runs."""
FOLDS = 40
"""Maximum number of refits for left-out runs, so that hundreds of runs take seconds."""


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """Parameter with its shipped and fitted value, and its uncertainty."""

    name: str
    shipped: float
    fitted: float
    spread: float
    """Standard deviation of its logarithm."""
    identified: Literal["yes", "partly", "no"]
    """``no``: the parameter keeps its shipped value."""


@dataclass(frozen=True, slots=True)
class RunsFit:
    """Parameters fitted to runs, with the predictions before and after the fit."""

    hardware: str
    parameters: tuple[FittedParameter, ...]
    before: tuple[float, ...]
    """Predicted seconds per run, with the shipped parameters."""
    after: tuple[float, ...]
    left_out: tuple[float, ...]
    """Predicted seconds per run by a fit without it; empty for fewer than MIN_RUNS runs."""

    @property
    def values(self) -> dict[str, float]:
        """Fitted parameters that replace shipped ones."""
        return {item.name: item.fitted for item in self.parameters if item.identified != "no"}

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Names of the parameters whose uncertainty the runs hardly reduce."""
        return tuple(item.name for item in self.parameters if item.identified != "yes")


def fit_runs(
    runs: Sequence[MeasuredRun], collectives: Values, network: Mapping[str, float]
) -> RunsFit:
    """Fit the parameters to ``runs``: at least one run, all of one GPU generation.

    ``collectives`` and ``network`` are fitted to measured collectives. The former stay fixed, the
    latter are the centers of narrow priors.
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
    parameters = (
        FittedParameter(
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
        tuple(parameters),
        _Fitting(runs, (), start).seconds({}),
        fitting.seconds(final.parameters),
        fitting.left_out(final.parameters, kept) if len(runs) >= MIN_RUNS else (),
    )


def mean_error(seconds: Sequence[float], measured: Sequence[float]) -> float:
    """Return the mean of |predicted / measured - 1|."""
    return sum(abs(s / m - 1) for s, m in zip(seconds, measured, strict=True)) / len(measured)


class _Fitting:
    """Runs, with the values of the parameters that are not fitted."""

    def __init__(
        self, runs: Sequence[MeasuredRun], collectives: Values, fixed: Mapping[str, float]
    ) -> None:
        self.runs = runs
        self.collectives = collectives
        self.fixed = fixed
        self.measured = [run.seconds for run in runs]

    def seconds(self, parameters: Mapping[str, float]) -> tuple[float, ...]:
        """Return the predictions with ``parameters``; other parameters have their fixed values."""
        values = tuple(sorted({**self.fixed, **parameters, **dict(self.collectives)}.items()))
        return tuple(predicted_seconds(run, values) for run in self.runs)

    def fit(self, priors: Mapping[str, Prior]) -> Fitted:
        """Fit the parameters of ``priors`` to all runs."""
        start = {name: each.centre for name, each in priors.items()}
        return fit(self.seconds, self.measured, start, priors)

    def left_out(
        self, parameters: Mapping[str, float], priors: Mapping[str, Prior]
    ) -> tuple[float, ...]:
        """Return the prediction of each run by a fit without it.

        The refits use predictions linearized around the full fit, which saves evaluations of the
        cost model. With more than FOLDS runs, several runs are left out together.
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
        """Return the predictions of all runs by a fit to the runs ``others``."""
        measured = [self.measured[index] for index in others]

        def predict(values: Mapping[str, float]) -> list[float]:
            every = extrapolate(lines, parameters, values)
            return [every[index] for index in others]

        found = fit(predict, measured, parameters, priors, rounds=8)
        return extrapolate(lines, parameters, found.parameters)


def predicted_seconds(run: MeasuredRun, values: Values) -> float:
    """Return the predicted seconds per step of ``run`` with the parameters ``values``."""
    problem = replace(run.problem, calibration=values)
    pricing = pricing_for(problem, framework_of(problem))
    return step_time(pricing, run.layout).total_seconds
