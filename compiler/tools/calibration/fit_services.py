"""Fit the factors of the serving cost model to measured services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parc.compiler.cost.fitting import NOISE, ParameterPrior
from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS, calibrated_service
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.cost.setup.calibrated_parameters import Values
from parc.compiler.diagnostics import Span
from parc.compiler.ir import Model, ServingEstimate
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_calibration import service_class
from parc.compiler.tools.calibration.fit_runs import RowsFitter, RunsFit, fit_rows
from parc.compiler.tools.calibration.measured_services import MeasuredService

TTFT_NOISE = 0.2
"""Standard deviation of the log error of times to the first token around a good fit. Within a
published benchmark it is 0.1 to 0.4; this value gave the smallest errors of left-out rows (python
-m benchmarks.accuracy.serving.calibration). Other quantities have the ``NOISE`` of step times."""
PRIOR_TAIL = 1.0
"""``tail`` of the priors: most services are close to the shipped values, and a few are far away."""


@frozen
class Observation:
    """Measured mean of a run, in the form in which reports show training runs."""

    name: str
    quantity: str
    model: Model
    seconds: float
    """Measured value: seconds, or tokens per second if ``quantity`` is ``tokens/s``."""
    span: Span


def fit_services(services: Sequence[MeasuredService]) -> tuple[tuple[Observation, ...], RunsFit]:
    """Fit the factors to the means that ``services`` measured; return the means and the fit.

    All services have the same hardware class.
    """
    observations, rows = list[Observation](), list[int]()
    for row, service in enumerate(services):
        for quantity, value in service.observations:
            observations.append(_observation(service, quantity, value))
            rows.append(row)

    def predict(factors: Mapping[str, float]) -> list[float]:
        values = tuple(sorted(factors.items()))
        return [value for service in services for value in _predicted(service, values)]

    first = services[0].problem
    weights = [observation_weight(one.quantity) for one in observations]
    fitting = RowsFitter(predict, [one.seconds for one in observations], rows, weights)
    hardware = service_class(first.cluster, first.framework)
    return tuple(observations), fit_rows(fitting, hardware, service_priors())


def observation_weight(quantity: str) -> float:
    """Return the factor of the residuals of ``quantity``: ttft, tpot or tokens/s."""
    return NOISE / TTFT_NOISE if quantity == "ttft" else 1.0


def service_priors() -> dict[str, ParameterPrior]:
    """Return the prior of each factor; the shipped value of every factor is 1."""
    return {
        name: ParameterPrior(1.0, factor.spread, factor.low, factor.high, PRIOR_TAIL)
        for name, factor in SERVICE_FACTORS.items()
    }


def _observation(service: MeasuredService, quantity: str, value: float) -> Observation:
    record = service.record
    name = f"{record.name}, {quantity}"
    return Observation(name, quantity, service.problem.model, value, record.span)


def _predicted(service: MeasuredService, values: Values) -> list[float]:
    found = estimate_measured(service, values)
    by_name = {
        "ttft": found.ttft_seconds,
        "tpot": found.tpot_seconds,
        "tokens/s": found.tokens_per_second,
    }
    return [by_name[quantity] for quantity, _ in service.observations]


def estimate_measured(service: MeasuredService, values: Values) -> ServingEstimate:
    """Return the estimate of a measured service under the factors ``values``."""
    problem, setup = service.problem, service.problem.service.setup
    cluster, engine = calibrated_service(problem.cluster, setup.engine, values)
    deployment = build_deployment(
        problem.model, cluster, replace(setup, engine=engine), service.layout
    )
    return estimate_deployment(deployment, service.traffic)
