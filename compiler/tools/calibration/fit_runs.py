"""Fit the cost model's parameters for one GPU generation to measured runs.

The shipped values are the prior. A parameter that the runs give no information about keeps its
shipped value, and the remaining parameters are fitted again without it. The reported error is
therefore the error of the values that the calibration file contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from parc.backends.registry import framework_of_problem
from parc.compiler.cost.fitting import (
    FitResult,
    LinearizedRun,
    ParameterPrior,
    extrapolate_seconds,
    fit_parameters,
    linearize_runs,
)
from parc.compiler.cost.setup.calibrated_parameters import (
    Values,
    efficiency_for_stack,
    hardware_class,
    numeric_efficiency_parameters,
    parameter_prior,
)
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.tools.calibration.measured_runs import MeasuredRun

IDENTIFIED_SHARE = 0.8
"""Fraction of the prior's standard deviation below which a parameter counts as identified."""
UNINFORMED_SHARE = 0.98
"""Fraction of the prior's standard deviation above which runs do not inform about a parameter."""
MEASURED_SPREAD = 0.05
"""Standard deviation of the logarithm, in the prior of a parameter that ``--nccl`` measured."""
MIN_RUNS = 3
"""Minimum number of runs for which each run is also predicted from the other runs."""
FOLDS = 40
"""Maximum number of fits that leave runs out, so that hundreds of runs take seconds."""


@frozen
class FittedParameter:
    """Parameter of the cost model: its shipped value, fitted value and uncertainty."""

    name: str
    shipped: float
    fitted: float
    spread: float
    """Standard deviation of the parameter's logarithm after the fit."""
    identified: Literal["yes", "partly", "no"]
    """``yes``: the runs determine the value; ``partly``: they change it, but hardly reduce its
    uncertainty; ``no``: it keeps its shipped value."""


@frozen
class RunsFit:
    """Parameters fitted to measured runs, with the predictions before and after the fit."""

    hardware: str
    parameters: tuple[FittedParameter, ...]
    before: tuple[float, ...]
    """Predicted seconds per step of each run, with the shipped parameters."""
    after: tuple[float, ...]
    """Predicted seconds per step of each run, with the fitted parameters."""
    left_out: tuple[float, ...]
    """Predicted seconds per step of each run, fitted to the other runs only; empty for fewer than
    MIN_RUNS runs."""

    @property
    def fitted_values(self) -> dict[str, float]:
        """Fitted parameters as (name -> value), except those that keep their shipped value."""
        return {item.name: item.fitted for item in self.parameters if item.identified != "no"}

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Names of the parameters that the runs do not determine, or determine only partly."""
        return tuple(item.name for item in self.parameters if item.identified != "yes")


def fit_runs(
    runs: Sequence[MeasuredRun], collectives: Values, network: Mapping[str, float]
) -> RunsFit:
    """Fit the cost model's parameters to measured runs.

    Args:
        runs: at least one measured run; all runs have the same hardware class.
        collectives: parameters that were fitted to nccl-tests; they stay fixed.
        network: parameters that were fitted to nccl-tests; each is the center of a narrow prior.
    """
    cluster, stack = runs[0].problem.cluster, framework_of_problem(runs[0].problem).stack
    hardware = hardware_class(cluster.gpu, stack)
    start = numeric_efficiency_parameters(efficiency_for_stack(cluster.generation, stack))
    priors = {name: parameter_prior(name, value) for name, value in start.items()}
    for name, value in network.items():
        priors[name] = replace(parameter_prior(name, value), spread=MEASURED_SPREAD)
    shipped = {name: each.center for name, each in priors.items()}

    def predict(parameters: Mapping[str, float], fixed: Values = collectives) -> list[float]:
        values = tuple(sorted({**shipped, **parameters, **dict(fixed)}.items()))
        return [predicted_seconds(run, values) for run in runs]

    fitting = RowsFitter(predict, [run.seconds for run in runs], range(len(runs)))
    fit = fit_rows(fitting, hardware, priors, frozenset(network))
    parameters = tuple(replace(item, shipped=start[item.name]) for item in fit.parameters)
    return replace(fit, parameters=parameters, before=tuple(predict(start, ())))


def fit_rows(
    fitting: RowsFitter,
    hardware: str,
    priors: Mapping[str, ParameterPrior],
    measured_directly: frozenset[str] = frozenset(),
) -> RunsFit:
    """Fit the parameters in ``priors``, except those about which the rows give no information.

    Args:
        fitting: predictions and measured values of the rows.
        hardware: hardware class of the rows.
        priors: prior of each parameter; its center is the shipped value.
        measured_directly: names of parameters that count as identified whatever the rows show.
    """
    # The first fit only finds the parameters without information; the second leaves them out.
    first = fitting.fit(priors)
    uninformed = set(first.unidentified_parameters(priors, UNINFORMED_SHARE)) - measured_directly
    kept = {name: each for name, each in priors.items() if name not in uninformed}
    final = fitting.fit(kept) if kept else FitResult({}, {}, 0.0, 0)
    unidentified = set(final.unidentified_parameters(kept, IDENTIFIED_SHARE))
    known = measured_directly | (set(kept) - unidentified)
    parameters = (
        FittedParameter(
            name,
            prior.center,
            final.parameters.get(name, prior.center),
            final.spreads.get(name, prior.spread),
            "yes" if name in known else "partly" if name in kept else "no",
        )
        for name, prior in priors.items()
    )
    return RunsFit(
        hardware,
        tuple(parameters),
        tuple(fitting.predict({})),
        tuple(fitting.predict(final.parameters)),
        fitting.predict_left_out(final.parameters, kept) if fitting.count >= MIN_RUNS else (),
    )


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the mean of |predicted / measured - 1| over pairs of predicted and measured times."""
    return sum(abs(s / m - 1) for s, m in zip(predicted, measured, strict=True)) / len(measured)


class RowsFitter:
    """Fitter of parameters to measured rows, each of which has one or more measured values."""

    def __init__(
        self,
        predict: Callable[[Mapping[str, float]], Sequence[float]],
        measured: Sequence[float],
        rows: Sequence[int],
        weights: Sequence[float] = (),
    ) -> None:
        """Create a fitter.

        ``predict`` returns the predicted value of each element of ``measured``; a parameter that
        is not in its argument has the shipped value. ``rows`` contains the number of the row of
        each element, in ascending order from 0. ``weights`` contains the factor of the residual of
        each element, by default 1.
        """
        self.predict = predict
        self.measured = measured
        self.rows = rows
        self.weights = weights or (1.0,) * len(measured)
        self.count = len(set(rows))
        """Number of rows."""

    def fit(self, priors: Mapping[str, ParameterPrior]) -> FitResult:
        """Fit the parameters in ``priors`` to the measured values of all rows."""
        start = {name: each.center for name, each in priors.items()}
        return fit_parameters(self.predict, self.measured, start, priors, weights=self.weights)

    def predict_left_out(
        self, parameters: Mapping[str, float], priors: Mapping[str, ParameterPrior]
    ) -> tuple[float, ...]:
        """Return the values of each row, predicted by a fit without this row.

        With more than FOLDS rows, each fit leaves out several rows. To save evaluations of the cost
        model, these fits use predictions that are linearized around the fit to all rows.
        """
        # Without fitted parameters, leaving out a row changes no prediction.
        if not parameters:
            return tuple(self.predict({}))
        lines = linearize_runs(self.predict, parameters)
        indices = range(len(lines))
        found = list(self.measured)
        for fold in range(min(FOLDS, self.count)):
            # Fold k leaves out the rows k, k + FOLDS, k + 2 FOLDS, ...
            others = [index for index in indices if self.rows[index] % FOLDS != fold]
            predicted = self._predict_from_subset(parameters, priors, lines, others)
            for index in indices:
                if self.rows[index] % FOLDS == fold:
                    found[index] = predicted[index]
        return tuple(found)

    def _predict_from_subset(
        self,
        parameters: Mapping[str, float],
        priors: Mapping[str, ParameterPrior],
        lines: Sequence[LinearizedRun],
        others: Sequence[int],
    ) -> list[float]:
        """Fit the parameters to some of the values; return the predictions of all values.

        Args:
            parameters: start values, which were fitted to all values.
            priors: prior of each parameter.
            lines: linearized prediction of each value.
            others: indices of the values to which the parameters are fitted.
        """
        measured = [self.measured[index] for index in others]

        def predict(values: Mapping[str, float]) -> list[float]:
            every = extrapolate_seconds(lines, parameters, values)
            return [every[index] for index in others]

        # The start is the fit to all rows, so a few rounds are enough.
        weights = [self.weights[index] for index in others]
        found = fit_parameters(predict, measured, parameters, priors, 8, weights)
        return extrapolate_seconds(lines, parameters, found.parameters)


def predicted_seconds(run: MeasuredRun, values: Values) -> float:
    """Return the cost model's seconds per step of ``run`` with the parameters ``values``."""
    problem = replace(run.problem, calibration=values)
    cost_model = cost_model_for(problem, framework_of_problem(problem))
    return step_time(cost_model, run.layout).total_seconds
