"""Least-squares fits of cost-model parameters to measurements.

Residuals are log(predicted / measured), so that predictions 2x too slow and 2x too fast count
equally. The Huber loss (Huber 1964, Robust Estimation of a Location Parameter) limits the influence
of outliers, and a prior determines each parameter that the measurements cannot identify. The
minimum is found by Levenberg-Marquardt (Marquardt 1963), in pure Python: problems have a dozen
parameters and a few hundred measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, log, sqrt

from parc.compiler.ir.frozen import frozen

Parameters = Mapping[str, float]
Predict = Callable[[Parameters], Sequence[float]]
Matrix = Sequence[Sequence[float]]

NOISE = 0.06
"""Standard deviation of the log error of a good prediction. It covers run-to-run noise (3 %) and
effects that are not modeled."""
HUBER = 0.12
"""Log error above which the loss of a measurement grows linearly instead of quadratically."""
STEP = 1e-3
"""Step of the finite differences, in the logarithm of a parameter."""
ROUNDS = 25
"""Maximum number of iterations. A fit of a few hundred measurements needs five to ten."""
MAX_MOVE = 0.7
"""Largest change of a log parameter per iteration, because the linear model is valid only for small
changes."""
TANGENT_STEP = 0.02
"""Finite-difference step of the slopes of a ``LinearizedRun``, in the logarithm of a parameter."""


@frozen
class ParameterPrior:
    """Log-normal prior of one positive parameter, with bounds."""

    center: float
    spread: float
    """Standard deviation of the logarithm."""
    low: float
    high: float
    tail: float = inf
    """Distance from the center in standard deviations above which the loss grows linearly instead
    of quadratically, so that measurements that agree can move the parameter far."""

    def clamp(self, value: float) -> float:
        """Return ``value`` limited to the bounds of the parameter."""
        return min(max(value, self.low), self.high)


@frozen
class FitResult:
    """Fitted parameters and their uncertainty."""

    parameters: dict[str, float]
    spreads: dict[str, float]
    """Standard deviation of the logarithm of each parameter. The value is close to that of the
    prior if the measurements contain no information on the parameter."""
    loss: float
    rounds: int

    def unidentified_parameters(
        self, priors: Mapping[str, ParameterPrior], share: float = 0.8
    ) -> tuple[str, ...]:
        """Return the sorted names of the parameters that the measurements do not determine.

        These are the parameters whose fitted spread exceeds ``share`` times the spread of their
        prior.
        """
        return tuple(
            name for name in sorted(priors) if self.spreads[name] > share * priors[name].spread
        )


@frozen
class _ParameterPoint:
    """Point in parameter space: log parameters, residuals and loss."""

    logs: tuple[float, ...]
    errors: tuple[float, ...]
    loss: float


class _Objective:
    """Objective function of a fit. The parameter vector has the order of ``names``."""

    def __init__(
        self,
        predict: Predict,
        measured: Sequence[float],
        priors: Mapping[str, ParameterPrior],
        weights: Sequence[float],
    ) -> None:
        self.predict = predict
        self.weights = weights or (1.0,) * len(measured)
        self.measured = [log(value) for value in measured]
        self.names = sorted(priors)
        self.priors = [priors[name] for name in self.names]

    def point_at(self, logs: Sequence[float]) -> _ParameterPoint:
        """Return the point at ``logs``, the logarithms of the parameters, with residuals and loss.

        Parameters outside their bounds are moved to the nearest bound.
        """
        kept = tuple(
            log(prior.clamp(exp(value))) for prior, value in zip(self.priors, logs, strict=True)
        )
        errors = self.residuals(kept)
        pulls = zip(self.prior_distances(kept), self.priors, strict=True)
        loss = sum(_huber(pull, prior.tail) for pull, prior in pulls)
        return _ParameterPoint(kept, errors, sum(map(_huber_loss, errors)) + loss)

    def residuals(self, logs: Sequence[float]) -> tuple[float, ...]:
        """Return the weighted residuals log(predicted / measured), one per measurement."""
        values = {name: exp(value) for name, value in zip(self.names, logs, strict=True)}
        predicted = self.predict(values)
        return tuple(
            weight * (log(max(seconds, 1e-12)) - truth)
            for weight, seconds, truth in zip(self.weights, predicted, self.measured, strict=True)
        )

    def prior_distances(self, logs: Sequence[float]) -> list[float]:
        """Return the distance of each log parameter from its prior, in standard deviations."""
        return [
            (value - log(prior.center)) / prior.spread
            for prior, value in zip(self.priors, logs, strict=True)
        ]

    def jacobian(self, at: _ParameterPoint) -> list[list[float]]:
        """Return the derivatives of the residuals by the log parameters, one row per parameter.

        The finite-difference step is negative near the upper bound of a parameter, so that
        ``predict`` never receives a value above this bound.
        """
        rows = []
        for index, (value, prior) in enumerate(zip(at.logs, self.priors, strict=True)):
            step = STEP if value + STEP <= log(prior.high) else -STEP
            moved = list(at.logs)
            moved[index] += step
            errors = self.residuals(moved)
            rows.append([(new - old) / step for new, old in zip(errors, at.errors, strict=True)])
        return rows

    def normal_equations(
        self, at: _ParameterPoint, jacobian: list[list[float]]
    ) -> tuple[list[list[float]], list[float]]:
        """Return (curvature matrix, negative gradient) of the loss at the point ``at``.

        ``jacobian`` contains the derivatives of the residuals at this point. Outliers among the
        measurements have lower weights, as the Huber loss requires.
        """
        weights = [huber_weight(error) for error in at.errors]
        curvature = [
            [
                sum(w * a * b for w, a, b in zip(weights, left, right, strict=True))
                for right in jacobian
            ]
            for left in jacobian
        ]
        slope = [
            -sum(w * a * e for w, a, e in zip(weights, row, at.errors, strict=True))
            for row in jacobian
        ]
        for index, (pull, prior) in enumerate(
            zip(self.prior_distances(at.logs), self.priors, strict=True)
        ):
            # The prior acts as one more measurement of each parameter.
            weight = min(1.0, prior.tail / abs(pull)) if pull else 1.0
            curvature[index][index] += weight / prior.spread**2
            slope[index] -= weight * pull / prior.spread
        return curvature, slope


def fit_parameters(  # noqa: PLR0913 - model, data, start, priors and two options of one fit
    predict: Predict,
    measured: Sequence[float],
    start: Parameters,
    priors: Mapping[str, ParameterPrior],
    rounds: int = ROUNDS,
    weights: Sequence[float] = (),
) -> FitResult:
    """Return the parameters for which the predictions are closest to the measurements.

    Args:
        predict: Function from the values of the parameters, by name, to one prediction per
            measurement.
        measured: Measurements; all must be positive.
        start: Values of the parameters from which the search starts, by name.
        priors: Priors of the parameters to fit, by name.
        rounds: Maximum number of iterations. The fit ends earlier if an iteration reduces the loss
            by no more than a fraction of 1e-5.
        weights: Factors of the residuals, one per measurement; by default 1.
    """
    search = _Objective(predict, measured, priors, weights)
    here = search.point_at([log(start[name]) for name in search.names])
    damping, count = 1e-3, 0  # almost Gauss-Newton at first
    while count < rounds:
        count += 1
        curvature, slope = search.normal_equations(here, search.jacobian(here))
        there, damping = _damped_step(search, here, (curvature, slope), damping)
        gain = here.loss - there.loss
        here = there
        if gain <= 1e-5 * max(here.loss, 1e-9):
            break
    curvature, _ = search.normal_equations(here, search.jacobian(here))
    # Laplace approximation: the inverse curvature at the minimum is the covariance of the log
    # parameters.
    inverse = cholesky_inverse(curvature)
    return FitResult(
        parameters={name: exp(value) for name, value in zip(search.names, here.logs, strict=True)},
        spreads={name: sqrt(inverse[i][i]) for i, name in enumerate(search.names)},
        loss=here.loss,
        rounds=count,
    )


def _damped_step(
    search: _Objective,
    here: _ParameterPoint,
    normal: tuple[list[list[float]], list[float]],
    damping: float,
) -> tuple[_ParameterPoint, float]:
    """Return (next point of the fit, new damping) after one Levenberg-Marquardt step.

    ``normal`` contains the normal equations at the point ``here``. The damping is increased until
    the loss decreases. If 12 increases are not enough, the result is ``here`` with an infinite
    damping.
    """
    curvature, slope = normal
    for _ in range(12):
        damped = [
            # Marquardt scales the damping with the diagonal, so that it does not depend on units.
            [value * (1 + damping) if i == j else value for j, value in enumerate(row)]
            for i, row in enumerate(curvature)
        ]
        step = solve_linear_system(damped, slope)
        # A shorter step keeps its direction, so that all parameters stay near the linear model.
        longest = max((abs(move) for move in step), default=0.0)
        scale = min(1.0, MAX_MOVE / longest) if longest else 0.0
        there = search.point_at([a + scale * b for a, b in zip(here.logs, step, strict=True)])
        if there.loss < here.loss:
            return there, max(damping / 5, 1e-9)
        # More damping turns the step towards the gradient and makes it shorter (Marquardt).
        damping *= 4
    return here, inf


def _huber_loss(error: float) -> float:
    """Return the Huber loss of one residual, divided by the variance of the measurement noise."""
    return _huber(error, HUBER) / NOISE**2


def _huber(error: float, limit: float) -> float:
    """Return the Huber loss of ``error``, which grows linearly above ``limit``."""
    size = abs(error)
    return 0.5 * size * size if size <= limit else limit * (size - 0.5 * limit)


def huber_weight(error: float) -> float:
    """Return the weight of one residual in a least-squares step that minimizes the Huber loss."""
    return min(1.0, HUBER / abs(error) if error else 1.0) / NOISE**2


def cholesky_factor(matrix: Matrix) -> list[list[float]]:
    """Return the lower triangular matrix L with L L' = ``matrix``, where L' is the transpose of L.

    The algorithm is in Golub and Van Loan, section 4.2. A diagonal element whose square would be
    below 1e-18 is set to 1e-9. A singular matrix therefore causes no error but a long step, which
    ``MAX_MOVE`` limits.
    """
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = sqrt(max(rest, 1e-18)) if i == j else rest / lower[j][j]
    return lower


def solve_linear_system(matrix: Matrix, right: Sequence[float]) -> list[float]:
    """Return the solution x of ``matrix`` x = ``right``.

    ``matrix`` must be symmetric and positive definite.
    """
    return _solve_with_factor(cholesky_factor(matrix), right)


def cholesky_inverse(matrix: Matrix) -> list[list[float]]:
    """Return the inverse of ``matrix``, which must be symmetric and positive definite."""
    lower, size = cholesky_factor(matrix), len(matrix)
    return [_solve_with_factor(lower, [float(i == j) for i in range(size)]) for j in range(size)]


def _solve_with_factor(lower: Matrix, right: Sequence[float]) -> list[float]:
    """Return the solution x of L L' x = ``right`` for the lower triangular factor L (``lower``)."""
    size = len(right)
    half = [0.0] * size
    for i in range(size):
        half[i] = (right[i] - sum(lower[i][k] * half[k] for k in range(i))) / lower[i][i]
    full = [0.0] * size
    for i in reversed(range(size)):
        below = sum(lower[k][i] * full[k] for k in range(i + 1, size))
        full[i] = (half[i] - below) / lower[i][i]
    return full


@frozen
class LinearizedRun:
    """Linear approximation of the log seconds of one run as a function of the log parameters.

    A refit uses such approximations because they are much cheaper than the cost model.
    """

    log_seconds: float
    slopes: tuple[float, ...]
    """Derivative of the log seconds by each log parameter, in the order of the parameters."""


def linearize_runs(
    predict: Callable[[Mapping[str, float]], Sequence[float]], parameters: Mapping[str, float]
) -> list[LinearizedRun]:
    """Return a linear approximation of the time of each run near ``parameters``.

    ``predict`` returns the seconds of each run at given parameters. The slopes are finite
    differences.
    """
    here = [log(seconds) for seconds in predict(parameters)]
    slopes = []
    for name, value in parameters.items():
        # A downward step stays valid for a parameter at its upper bound.
        moved = predict({**parameters, name: value * exp(-TANGENT_STEP)})
        slopes.append(
            [(old - log(new)) / TANGENT_STEP for old, new in zip(here, moved, strict=True)]
        )
    return [
        LinearizedRun(at, slope) for at, slope in zip(here, zip(*slopes, strict=True), strict=True)
    ]


def extrapolate_seconds(
    lines: Sequence[LinearizedRun], origin: Mapping[str, float], values: Mapping[str, float]
) -> list[float]:
    """Return the predicted time in seconds of each run at the parameters ``values``.

    ``lines`` contains one linear approximation per run, computed by ``linearize_runs`` at the
    parameters ``origin``.
    """
    moves = [log(values[name] / value) for name, value in origin.items()]
    return [
        exp(
            line.log_seconds
            + sum(slope * move for slope, move in zip(line.slopes, moves, strict=True))
        )
        for line in lines
    ]
