"""Fits the parameters of a model to measurements: damped Gauss-Newton on the log ratio.

Residuals are log(predicted / measured), so that 2x too slow and 2x too fast weigh the same; the
Huber loss (Huber 1964, Robust Estimation of a Location Parameter) keeps one odd run from pulling
the rest; a prior holds every parameter that the points cannot identify. Levenberg-Marquardt after
Marquardt 1963. Pure Python: a dozen parameters, hundreds of points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

from parc.compiler.cost.fitting.linear import cholesky_inverse, solve

Parameters = Mapping[str, float]
Predict = Callable[[Parameters], Sequence[float]]

NOISE = 0.06
"""Log error of a good prediction: run-to-run noise (3 %) and what the model leaves out."""
HUBER = 0.12
"""Log error beyond which a point pulls no harder."""
STEP = 1e-3
"""Relative step of the finite differences."""
ROUNDS = 25
"""Jacobians at most; a fit of a few hundred points takes five to ten."""
STRIDE = 0.7
"""Longest log move of a parameter in one round."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of one positive parameter before any point is seen."""

    centre: float
    spread: float
    """Standard deviation of its logarithm."""
    low: float
    high: float

    def clamp(self, value: float) -> float:
        """``value`` inside the bounds."""
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The parameters, and how well the points know them."""

    parameters: dict[str, float]
    spreads: dict[str, float]
    """Standard deviation of each logarithm; near that of the prior: the points say nothing."""
    loss: float
    rounds: int

    def unidentified(self, priors: Mapping[str, Prior], share: float = 0.8) -> tuple[str, ...]:
        """Parameters that stay nearly as uncertain as before, in name order."""
        return tuple(
            name for name in sorted(priors) if self.spreads[name] > share * priors[name].spread
        )


@dataclass(frozen=True, slots=True)
class _Point:
    """A place in parameter space: logarithms, residuals, loss."""

    logs: tuple[float, ...]
    errors: tuple[float, ...]
    loss: float


class _Fit:
    """One fit; ``names`` fixes the order of the vector."""

    def __init__(
        self,
        predict: Predict,
        measured: Sequence[float],
        priors: Mapping[str, Prior],
        weights: Sequence[float],
    ) -> None:
        self.predict = predict
        self.weights = weights or (1.0,) * len(measured)
        self.measured = [log(value) for value in measured]
        self.names = sorted(priors)
        self.priors = [priors[name] for name in self.names]

    def point(self, logs: Sequence[float]) -> _Point:
        kept = tuple(
            log(prior.clamp(exp(value))) for prior, value in zip(self.priors, logs, strict=True)
        )
        errors = self.errors(kept)
        pulls = sum(pull * pull for pull in self.pulls(kept))
        return _Point(kept, errors, sum(map(_huber, errors)) + 0.5 * pulls)

    def errors(self, logs: Sequence[float]) -> tuple[float, ...]:
        """log(predicted / measured) of every point, times its weight."""
        values = {name: exp(value) for name, value in zip(self.names, logs, strict=True)}
        predicted = self.predict(values)
        return tuple(
            weight * (log(max(seconds, 1e-12)) - known)
            for weight, seconds, known in zip(self.weights, predicted, self.measured, strict=True)
        )

    def pulls(self, logs: Sequence[float]) -> list[float]:
        """Distance of every parameter from its prior, in spreads."""
        return [
            (value - log(prior.centre)) / prior.spread
            for prior, value in zip(self.priors, logs, strict=True)
        ]

    def jacobian(self, at: _Point) -> list[list[float]]:
        """Slopes of the errors by log parameter, a row each; steps lead away from a bound."""
        rows = []
        for index, (value, prior) in enumerate(zip(at.logs, self.priors, strict=True)):
            step = STEP if value + STEP <= log(prior.high) else -STEP
            moved = list(at.logs)
            moved[index] += step
            errors = self.errors(moved)
            rows.append([(new - old) / step for new, old in zip(errors, at.errors, strict=True)])
        return rows

    def normal(
        self, at: _Point, jacobian: list[list[float]]
    ) -> tuple[list[list[float]], list[float]]:
        """Curvature and downhill direction of the loss, with Huber weights."""
        weights = [_weight(error) for error in at.errors]
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
        for index, (pull, prior) in enumerate(zip(self.pulls(at.logs), self.priors, strict=True)):
            curvature[index][index] += 1 / prior.spread**2
            slope[index] -= pull / prior.spread
        return curvature, slope


def fit(  # noqa: PLR0913 - what is fitted, and how
    predict: Predict,
    measured: Sequence[float],
    start: Parameters,
    priors: Mapping[str, Prior],
    rounds: int = ROUNDS,
    weights: Sequence[float] = (),
) -> Fitted:
    """The parameters of ``priors`` that make ``predict`` come nearest to ``measured`` (all > 0).

    ``predict`` gets a value for every name of ``priors`` and returns as many numbers as there are
    in ``measured``; ``weights`` multiply the errors. Deterministic; stops where a step gains less
    than 1e-5 of the loss.
    """
    search = _Fit(predict, measured, priors, weights)
    here = search.point([log(start[name]) for name in search.names])
    damping, count = 1e-3, 0
    while count < rounds:
        count += 1
        curvature, slope = search.normal(here, search.jacobian(here))
        there, damping = _downhill(search, here, (curvature, slope), damping)
        gain = here.loss - there.loss
        here = there
        if gain <= 1e-5 * max(here.loss, 1e-9):
            break
    curvature, _ = search.normal(here, search.jacobian(here))
    inverse = cholesky_inverse(curvature)
    return Fitted(
        parameters={name: exp(value) for name, value in zip(search.names, here.logs, strict=True)},
        spreads={name: sqrt(inverse[i][i]) for i, name in enumerate(search.names)},
        loss=here.loss,
        rounds=count,
    )


def _downhill(
    search: _Fit, here: _Point, normal: tuple[list[list[float]], list[float]], damping: float
) -> tuple[_Point, float]:
    """The best next point, more damping until the loss falls; ``here`` where it never does."""
    curvature, slope = normal
    for _ in range(12):
        damped = [
            [value * (1 + damping) if i == j else value for j, value in enumerate(row)]
            for i, row in enumerate(curvature)
        ]
        step = solve(damped, slope)
        longest = max((abs(move) for move in step), default=0.0)
        scale = min(1.0, STRIDE / longest) if longest else 0.0
        there = search.point([a + scale * b for a, b in zip(here.logs, step, strict=True)])
        if there.loss < here.loss:
            return there, max(damping / 5, 1e-9)
        damping *= 4
    return here, inf


def _huber(error: float) -> float:
    size = abs(error)
    cost = 0.5 * size * size if size <= HUBER else HUBER * (size - 0.5 * HUBER)
    return cost / NOISE**2


def _weight(error: float) -> float:
    return min(1.0, HUBER / abs(error) if error else 1.0) / NOISE**2
