from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

import pytest

from parc.compiler.cost.fitting import (
    ParameterPrior,
    cholesky_inverse,
    fit_parameters,
    solve_linear_system,
)

WORK = [(a, b) for a in (1.0, 2.0, 5.0, 9.0) for b in (0.5, 3.0, 8.0)]
PRIORS = {
    "rate": ParameterPrior(1.0, 0.5, 0.01, 100.0),
    "latency": ParameterPrior(1.0, 0.5, 0.01, 100.0),
    "unused": ParameterPrior(3.0, 0.4, 0.01, 100.0),
}
START = {"rate": 1.0, "latency": 1.0, "unused": 2.0}


def seconds(parameters: Mapping[str, float]) -> list[float]:
    """Return the times of all measurements: work over a rate plus steps of a latency."""
    return [a / parameters["rate"] + b * parameters["latency"] for a, b in WORK]


MEASURED = seconds({"rate": 1.4, "latency": 0.6})


def test_a_fit_finds_the_parameters_that_generated_the_measurements() -> None:
    found = fit_parameters(seconds, MEASURED, START, PRIORS)
    assert found.parameters["rate"] == pytest.approx(1.4, rel=0.02)
    assert found.parameters["latency"] == pytest.approx(0.6, rel=0.02)


def test_an_unidentified_parameter_stays_at_its_prior_and_is_reported() -> None:
    found = fit_parameters(seconds, MEASURED, START, PRIORS)
    assert found.parameters["unused"] == pytest.approx(3.0, rel=1e-3)
    assert found.spreads["unused"] == pytest.approx(0.4, rel=1e-3)
    assert found.unidentified_parameters(PRIORS) == ("unused",)


def test_one_outlier_hardly_changes_the_fit() -> None:
    odd = [MEASURED[0] * 10, *MEASURED[1:]]
    found = fit_parameters(seconds, odd, START, PRIORS)
    assert found.parameters["rate"] == pytest.approx(1.4, rel=0.08)
    assert found.parameters["latency"] == pytest.approx(0.6, rel=0.08)


def test_a_fit_stays_inside_the_bounds() -> None:
    tight = {**PRIORS, "rate": ParameterPrior(1.0, 0.5, 0.5, 1.2)}
    found = fit_parameters(seconds, MEASURED, START, tight)
    assert found.parameters["rate"] == pytest.approx(1.2)


def test_without_measurements_the_fit_returns_the_priors() -> None:
    found = fit_parameters(lambda _: [], [], START, PRIORS)
    assert found.parameters == pytest.approx({"rate": 1.0, "latency": 1.0, "unused": 3.0}, rel=1e-3)


def test_a_fit_does_not_depend_on_the_order_of_names() -> None:
    turned = dict(reversed(PRIORS.items()))
    assert fit_parameters(seconds, MEASURED, START, PRIORS) == fit_parameters(
        seconds, MEASURED, START, turned
    )


def test_errors_of_the_same_factor_count_equally_in_both_directions() -> None:
    flat = {"rate": ParameterPrior(1.0, 50.0, 1e-6, 1e6)}
    found = fit_parameters(lambda p: [p["rate"]] * 2, [exp(0.1), exp(-0.1)], {"rate": 1.5}, flat)
    assert log(found.parameters["rate"]) == pytest.approx(0.0, abs=0.01)


def test_linear_systems_are_solved() -> None:
    matrix = [[4.0, 2.0, 0.4], [2.0, 5.0, 1.0], [0.4, 1.0, 3.0]]
    x = solve_linear_system(matrix, [1.0, -2.0, 3.0])
    for row, right in zip(matrix, (1.0, -2.0, 3.0), strict=True):
        assert sum(a * b for a, b in zip(row, x, strict=True)) == pytest.approx(right)
    inverse = cholesky_inverse(matrix)
    product = [sum(matrix[0][k] * inverse[k][j] for k in range(3)) for j in range(3)]
    assert product == pytest.approx([1.0, 0.0, 0.0])
